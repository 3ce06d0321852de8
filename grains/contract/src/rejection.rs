//! A refusal is an answer: a stable code and both facts, what was wanted and what was found.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the caller can do about it. Stable: part of the API. Maps to one gRPC status and one HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request can never be right. gRPC `INVALID_ARGUMENT`, HTTP 400.
    Invalid,
    /// No such thing, as far as this tenant may know. `NOT_FOUND`, 404.
    NotFound,
    /// The same key was used with other content. `ALREADY_EXISTS`, 409.
    Conflict,
    /// Right in itself, wrong in this state (finished run, superseded attempt, old version). `FAILED_PRECONDITION`, 409.
    WrongState,
    /// The lease token is not the one in force. `PERMISSION_DENIED`, 403.
    StaleToken,
    /// Facts before this one are missing; the message names the number expected. `ABORTED`, 409, retryable.
    Gap,
    /// A stated limit was passed. `OUT_OF_RANGE`, 413.
    TooLarge,
    /// Not now: a queue is full. `RESOURCE_EXHAUSTED`, 429, retryable after the hint.
    Overloaded,
    /// Not here and now: no leader, moved, shutting down, disk full. `UNAVAILABLE`, 503, retryable.
    Unavailable,
    /// Policy says no. `PERMISSION_DENIED`, 403.
    Denied,
    /// The rows of this grain cannot be read by this build; it is set aside. `DATA_LOSS`, 500.
    Quarantined,
    /// A fault of ours. `INTERNAL`, 500.
    Internal,
}

impl Code {
    pub const ALL: [Code; 12] = [
        Code::Invalid,
        Code::NotFound,
        Code::Conflict,
        Code::WrongState,
        Code::StaleToken,
        Code::Gap,
        Code::TooLarge,
        Code::Overloaded,
        Code::Unavailable,
        Code::Denied,
        Code::Quarantined,
        Code::Internal,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::NotFound => "not-found",
            Code::Conflict => "conflict",
            Code::WrongState => "wrong-state",
            Code::StaleToken => "stale-token",
            Code::Gap => "gap",
            Code::TooLarge => "too-large",
            Code::Overloaded => "overloaded",
            Code::Unavailable => "unavailable",
            Code::Denied => "denied",
            Code::Quarantined => "quarantined",
            Code::Internal => "internal",
        }
    }

    /// Reads [`Code::as_str`] back; `None` for a word of a newer build.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Code::Gap | Code::Overloaded | Code::Unavailable)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rejection {
    pub code: Code,
    /// A sentence: "Expected …, but …".
    pub message: String,
    /// Which field of the request, as a path; empty if none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Rejection {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: String::new() }
    }

    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)?;
        if !self.field.is_empty() {
            write!(f, " (at {})", self.field)?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejection {}
