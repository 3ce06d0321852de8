//! A refusal as gRPC says it: status, and in the metadata the stable code, the field, and when to come back.

use grain_contract::{Code, Rejection};
use std::time::Duration;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code as Grpc, Status};

pub const CODE: &str = "x-granary-code";
pub const FIELD: &str = "x-granary-field";
/// gRPC's own name for it: clients with a retry policy wait so many milliseconds.
pub const RETRY: &str = "grpc-retry-pushback-ms";

/// When to come back after a refusal that may pass.
pub fn retry_after(code: Code) -> Option<Duration> {
    match code {
        Code::Overloaded => Some(Duration::from_millis(100)),
        Code::Unavailable => Some(Duration::from_millis(250)),
        Code::Gap => Some(Duration::from_millis(50)),
        _ => None,
    }
}

fn grpc_code(code: Code) -> Grpc {
    match code {
        Code::Invalid => Grpc::InvalidArgument,
        Code::NotFound => Grpc::NotFound,
        Code::Conflict => Grpc::AlreadyExists,
        Code::WrongState => Grpc::FailedPrecondition,
        Code::StaleToken | Code::Denied => Grpc::PermissionDenied,
        Code::Gap => Grpc::Aborted,
        Code::TooLarge => Grpc::OutOfRange,
        Code::Overloaded => Grpc::ResourceExhausted,
        Code::Unavailable => Grpc::Unavailable,
        Code::Quarantined => Grpc::DataLoss,
        Code::Internal => Grpc::Internal,
    }
}

/// Not a `From`: both types are others'.
pub fn status(refusal: Rejection) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(CODE, AsciiMetadataValue::from_static(refusal.code.as_str()));
    if !refusal.field.is_empty()
        && let Ok(field) = refusal.field.parse()
    {
        metadata.insert(FIELD, field);
    }
    if let Some(after) = retry_after(refusal.code)
        && let Ok(ms) = after.as_millis().to_string().parse()
    {
        metadata.insert(RETRY, ms);
    }
    if refusal.code == Code::Internal {
        tracing::error!(%refusal, "a fault of ours");
    }
    Status::with_metadata(grpc_code(refusal.code), refusal.message, metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_field_and_hint() {
        let made = status(Rejection::new(Code::Overloaded, "Expected room, but found none.").at("runId"));
        assert_eq!((made.code(), made.message()), (Grpc::ResourceExhausted, "Expected room, but found none."));
        let text = |key: &str| made.metadata().get(key).map(|v| v.to_str().expect("ascii").to_owned());
        assert_eq!(text(CODE).as_deref(), Some("overloaded"));
        assert_eq!(text(FIELD).as_deref(), Some("runId"));
        assert_eq!(text(RETRY).as_deref(), Some("100"));
    }

    #[test]
    fn each_retryable_code_has_a_hint_and_no_other() {
        use Code::{Conflict, Denied, Gap, Internal, Invalid, NotFound, Overloaded, Quarantined, StaleToken, TooLarge};
        for code in
            [Invalid, NotFound, Conflict, Code::WrongState, StaleToken, Gap, TooLarge, Overloaded, Code::Unavailable]
        {
            assert_eq!(retry_after(code).is_some(), code.is_retryable(), "{code:?}");
        }
        for code in [Denied, Quarantined, Internal] {
            assert_eq!(retry_after(code), None, "{code:?}");
        }
    }
}
