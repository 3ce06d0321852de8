//! Calls to the server.

use granary_proto::v1::{run_control_client::RunControlClient, workflow_engine_client::WorkflowEngineClient};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Connections that calls are spread over: one HTTP/2 connection writes with one hand.
const CONNECTIONS: usize = 2;
/// How long a single call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two tries of a call that may succeed later.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Link {
    channels: Vec<Channel>,
}

impl Link {
    /// Connects when first used, and again whenever the connection is lost.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let channels = (0..CONNECTIONS).map(|_| Ok(endpoint(url)?.connect_lazy())).collect::<anyhow::Result<_>>()?;
        Ok(Self { channels })
    }

    pub fn run_control(&self, n: u64) -> RunControlClient<Channel> {
        RunControlClient::new(self.channels[n as usize % CONNECTIONS].clone())
    }

    pub fn engine(&self) -> WorkflowEngineClient<Channel> {
        WorkflowEngineClient::new(self.channels[0].clone())
    }
}

pub fn endpoint(url: &str) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::from_shared(url.to_owned())?.connect_timeout(Duration::from_secs(5)).tcp_nodelay(true))
}

/// Calls until there is an answer that stands. The caller bounds the whole by a deadline; each try is bounded here. Gives the
/// number of tries that failed as well.
pub async fn until_answered<T, F, Fut>(mut call: F) -> (Result<T, Status>, u64)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let mut pause = RETRY_MIN;
    let mut failed = 0;
    loop {
        let status = match tokio::time::timeout(CALL_TIMEOUT, call()).await {
            Ok(Ok(response)) => return (Ok(response.into_inner()), failed),
            Ok(Err(status)) if !may_succeed_later(&status) => return (Err(status), failed),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no answer in time"),
        };
        failed += 1;
        tokio::time::sleep(hint_of(&status).unwrap_or(pause)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
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
    let text = status.metadata().get("x-granary-retry-after-ms")?.to_str().ok()?;
    Some(Duration::from_millis(text.parse::<u64>().ok()?.clamp(1, 5_000)))
}
