//! Why a turn goes no further.

use grain_contract::{Code, Decision, Need, Rejection};

pub(super) enum Stop {
    Rejection(Rejection),
    Need(Need),
}

impl Stop {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Rejection(Rejection::new(code, message))
    }

    /// The projection's rows cannot be read. The journal is whole, so the run can be projected again.
    pub fn quarantined(what: &str) -> Self {
        Self::new(
            Code::Quarantined,
            format!("Expected rows of a run, but they cannot be read: {what}. Project it again."),
        )
    }
}

impl From<Rejection> for Stop {
    fn from(rejection: Rejection) -> Self {
        Self::Rejection(rejection)
    }
}

impl From<Stop> for Decision {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Rejection(rejection) => Decision::Reject(rejection),
            Stop::Need(need) => Decision::Need(need),
        }
    }
}
