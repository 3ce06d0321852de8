//! Calls to any node, with the retry that clients are told to make.
//!
//! The rule: what was not answered, or answered with a word that passes, is asked again under the same key, at another node, after
//! a short pause; `x-granary-retry-after-ms` says how long if the server knows.

use anyhow::Result;
use granary_proto::v1::{
    cluster_client::ClusterClient, run_control_client::RunControlClient, workflow_engine_client::WorkflowEngineClient,
};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A connection that says nothing for this long is asked whether it still is one.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_ANSWER: Duration = Duration::from_secs(2);
/// One try of one call.
const TRY_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Connections to all nodes. Cheap to clone; nodes that are added later are seen by all clones.
#[derive(Clone)]
pub struct Clients {
    channels: Arc<RwLock<Vec<Channel>>>,
}

/// How a call went.
pub struct Answer<T> {
    pub result: Result<T, Status>,
    /// Tries that failed before.
    pub failed: u32,
}

impl Clients {
    /// Connects when first used.
    ///
    /// # Errors
    /// An address is none.
    pub fn new(urls: &[String]) -> Result<Self> {
        let channels: Result<Vec<_>> = urls.iter().map(|url| Ok(endpoint(url)?.connect_lazy())).collect();
        Ok(Self { channels: Arc::new(RwLock::new(channels?)) })
    }

    /// The nodes have other addresses now.
    ///
    /// # Errors
    /// An address is none.
    pub fn replace(&self, urls: &[String]) -> Result<()> {
        let channels: Result<Vec<_>> = urls.iter().map(|url| Ok(endpoint(url)?.connect_lazy())).collect();
        *self.channels.write().unwrap_or_else(PoisonError::into_inner) = channels?;
        Ok(())
    }

    /// # Errors
    /// The address is none.
    pub fn add(&self, url: &str) -> Result<()> {
        let channel = endpoint(url)?.connect_lazy();
        self.channels.write().unwrap_or_else(PoisonError::into_inner).push(channel);
        Ok(())
    }

    /// The `n`th node, counted round and round.
    pub fn channel(&self, n: usize) -> Channel {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels[n % channels.len()].clone()
    }

    pub fn size(&self) -> usize {
        self.channels.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn run_control(&self, n: usize) -> RunControlClient<Channel> {
        RunControlClient::new(self.channel(n)).max_decoding_message_size(grain_contract::limits::MESSAGE_BYTES_MAX)
    }

    pub fn engine(&self, n: usize) -> WorkflowEngineClient<Channel> {
        WorkflowEngineClient::new(self.channel(n)).max_decoding_message_size(grain_contract::limits::MESSAGE_BYTES_MAX)
    }

    pub fn cluster(&self, n: usize) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel(n))
    }

    /// Asks the `first` node, then the others in turn, until there is an answer that stands or `patience` is over.
    pub async fn persist<T, F, Fut>(&self, first: usize, patience: Duration, mut call: F) -> Answer<T>
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + patience;
        let mut pause = PAUSE_MIN;
        let mut failed = 0;
        loop {
            let channel = self.channel(first.wrapping_add(failed as usize));
            let status = match tokio::time::timeout(TRY_MAX, call(channel)).await {
                Ok(Ok(response)) => return Answer { result: Ok(response.into_inner()), failed },
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded(format!("no answer within {TRY_MAX:?}")),
            };
            if !passes(&status) || Instant::now() > until {
                return Answer { result: Err(status), failed };
            }
            failed += 1;
            tokio::time::sleep(hint_of(&status).unwrap_or(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// # Errors
/// The address is none.
pub fn endpoint(url: &str) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(url.to_owned())?.connect_timeout(CONNECT_MAX).tcp_nodelay(true);
    Ok(endpoint.http2_keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_ANSWER).keep_alive_while_idle(true))
}

/// A request that tells the server how long its answer is waited for.
pub fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(TRY_MAX);
    request
}

/// A connection that broke in the middle shows as `Unknown` or `Cancelled`.
pub fn passes(status: &Status) -> bool {
    use Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown};
    matches!(status.code(), Unavailable | ResourceExhausted | Aborted | DeadlineExceeded | Unknown | Cancelled)
}

/// The server's own word on when to come again.
fn hint_of(status: &Status) -> Option<Duration> {
    let text = status.metadata().get("x-granary-retry-after-ms")?.to_str().ok()?;
    Some(Duration::from_millis(text.parse::<u64>().ok()?.clamp(1, 5_000)))
}
