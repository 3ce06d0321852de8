//! What the clients of other services share: lazy channels, deadlines, and what their refusals mean here.

use grain_contract::{Code, Rejection};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// One call of another service, at most.
const CALL_MAX: Duration = Duration::from_secs(10);
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A channel that connects at its first call and again after a loss.
pub fn channel(endpoint: &str) -> Result<Channel, Rejection> {
    let endpoint = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|e| Rejection::new(Code::Invalid, format!("Expected the URL of a service, but {endpoint:?}: {e}.")))?;
    Ok(endpoint.connect_timeout(CONNECT_MAX).timeout(CALL_MAX).tcp_nodelay(true).connect_lazy())
}

/// What is left until the deadline, within [`CALL_MAX`].
pub fn patience(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).min(CALL_MAX)
}

/// Another service's status as our refusal: what may pass stays retryable.
pub fn refusal(service: &str, status: &tonic::Status) -> Rejection {
    let code = match status.code() {
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::InvalidArgument | tonic::Code::OutOfRange => Code::Invalid,
        tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => Code::Denied,
        tonic::Code::FailedPrecondition => Code::WrongState,
        tonic::Code::AlreadyExists => Code::Conflict,
        tonic::Code::ResourceExhausted => Code::Overloaded,
        tonic::Code::Unimplemented | tonic::Code::DataLoss => Code::Internal,
        _ => Code::Unavailable,
    };
    Rejection::new(
        code,
        format!("Expected an answer of {service}, but it says {:?}: {}.", status.code(), status.message()),
    )
}
