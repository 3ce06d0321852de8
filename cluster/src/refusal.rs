//! From a shard's error to what the caller is told.

use grain_contract::{Code, Rejection};
use shard::Error;

/// How long a caller that met a full queue should wait, in milliseconds; part of the message, and the edge's retry hint.
pub const RETRY_HINT_MS: u64 = 100;

pub(crate) fn overloaded(what: &str, limit: usize) -> Rejection {
    Rejection::new(
        Code::Overloaded,
        format!(
            "Expected room for one more of {what}, but all {limit} places are taken; try again in {RETRY_HINT_MS} ms."
        ),
    )
}

pub(crate) fn too_busy(who: &str) -> Rejection {
    let message = format!("Expected {who} to have time, but it has too much to do; try again in {RETRY_HINT_MS} ms.");
    Rejection::new(Code::Overloaded, message)
}

pub(crate) fn unavailable(why: impl std::fmt::Display) -> Rejection {
    Rejection::new(Code::Unavailable, format!("Expected a shard that takes commits, but {why}."))
}

/// The reading side of a shard.
pub(crate) fn of_store(error: Error) -> Rejection {
    match error {
        Error::TooLarge { limit, found } => Rejection::new(
            Code::TooLarge,
            format!("Expected a turn of at most {limit} bytes, but this one takes {found} bytes."),
        ),
        Error::Overloaded { limit, .. } => overloaded("the shard's commits in flight", limit),
        other => unavailable(other),
    }
}
