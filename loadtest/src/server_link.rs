//! Calls to the servers.

use granary_proto::v1::{
    cluster_client::ClusterClient, run_control_client::RunControlClient, workflow_engine_client::WorkflowEngineClient,
};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Connections to each server that calls are spread over: one HTTP/2 connection writes with one hand.
const CONNECTIONS: usize = 2;
/// A server that is silent for so long while something is open is taken for dead: it may be frozen.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_ANSWER: Duration = Duration::from_millis(1_500);
/// Between two tries of a call that may succeed later.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Link {
    /// One server's after the other's, so that the next one is another server's.
    channels: Vec<Channel>,
    call_timeout: Duration,
}

impl Link {
    /// Connects when first used, and again whenever the connection is lost.
    pub fn new(urls: &[String], call_timeout: Duration) -> anyhow::Result<Self> {
        anyhow::ensure!(!urls.is_empty(), "Expected a server, but found none.");
        let each = std::iter::repeat_n(urls, CONNECTIONS).flatten();
        let channels = each.map(|url| Ok(endpoint(url)?.connect_lazy())).collect::<anyhow::Result<_>>()?;
        Ok(Self { channels, call_timeout })
    }

    /// `n` spreads the calls: the next number is the next server.
    pub fn run_control(&self, n: u64) -> RunControlClient<Channel> {
        RunControlClient::new(self.channel(n))
    }

    pub fn engine(&self, n: u64) -> WorkflowEngineClient<Channel> {
        WorkflowEngineClient::new(self.channel(n))
    }

    pub fn cluster(&self, n: u64) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel(n))
    }

    fn channel(&self, n: u64) -> Channel {
        self.channels[(n % self.channels.len() as u64) as usize].clone()
    }

    /// Calls until there is an answer that stands, each try with the next number. The caller bounds the whole by a deadline;
    /// each try is bounded here. Gives what the tries before failed with as well.
    pub async fn until_answered<T, F, Fut>(&self, mut call: F) -> (Result<T, Status>, Vec<Code>)
    where
        F: FnMut(u64) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut pause = RETRY_MIN;
        let mut failed = Vec::new();
        for attempt in 0.. {
            let status = match tokio::time::timeout(self.call_timeout, call(attempt)).await {
                Ok(Ok(response)) => return (Ok(response.into_inner()), failed),
                Ok(Err(status)) if !may_succeed_later(&status) => return (Err(status), failed),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            failed.push(status.code());
            tokio::time::sleep(hint_of(&status).unwrap_or(pause)).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
        unreachable!("the numbers do not end")
    }
}

pub fn endpoint(url: &str) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::from_shared(url.to_owned())?
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER))
}

/// A connection that broke in the middle shows as `Unknown` or `Cancelled`; every call made here is idempotent.
fn may_succeed_later(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Cancelled
    )
}

/// The server's own word on when to come again.
fn hint_of(status: &Status) -> Option<Duration> {
    let text = status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?;
    Some(Duration::from_millis(text.parse::<u64>().ok()?.clamp(1, 5_000)))
}
