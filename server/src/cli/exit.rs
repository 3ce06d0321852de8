//! How a command ends: the exit code, and what is said when it fails.

use granary_proto::v1;
use std::process::ExitCode;
use tonic::{Code, Status};

/// The documented exit codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Done; the run completed.
    Good = 0,
    /// The run failed, or the answer is no.
    Failed = 1,
    /// Wrong usage or bad input.
    Usage = 2,
    /// The server cannot be reached.
    Unreachable = 3,
    /// The run was cancelled.
    Cancelled = 4,
    /// The run has not ended: it waits for a decision, or nobody watches any more.
    Waiting = 5,
    /// The cluster does not take this silo.
    Refused = 6,
}

impl Exit {
    /// How a run ended; `None` while it has not.
    pub fn of_run(state: &str) -> Option<Self> {
        match state {
            "Completed" => Some(Exit::Good),
            "Failed" => Some(Exit::Failed),
            "Cancelled" => Some(Exit::Cancelled),
            _ => None,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// Stable, for programs.
    pub code: String,
    pub message: String,
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: "invalid".to_owned(), message: message.into() }
    }

    pub fn no(code: &str, message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, code: code.to_owned(), message: message.into() }
    }

    pub fn unreachable(url: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Expected a Granary server at {url}, but found none: {why}. Start one with: granary dev");
        Self { exit: Exit::Unreachable, code: "unreachable".to_owned(), message }
    }

    pub fn as_json(&self) -> String {
        serde_json::json!({ "error": { "code": self.code, "message": self.message } }).to_string()
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = status.metadata().get("x-granary-code").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let exit = match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => Exit::Unreachable,
            Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
            _ => Exit::Failed,
        };
        Self {
            exit,
            code: code.unwrap_or_else(|| format!("{:?}", status.code())),
            message: status.message().to_owned(),
        }
    }
}

impl From<granary::worker::Error> for Failure {
    fn from(error: granary::worker::Error) -> Self {
        use granary::worker::Error;
        match &error {
            Error::Config { .. } | Error::Address { .. } | Error::NoAddress => Failure::usage(error.to_string()),
            Error::State { .. } | Error::StateInUse(_) | Error::Refused(_) => Failure::no("worker", error.to_string()),
        }
    }
}

/// `class: message`, in one line, of a failed run or step.
pub fn shown(failure: &v1::Failure) -> String {
    // One line, whatever a tool wrote; nor are its escape sequences the terminal's.
    let words: Vec<&str> = failure.message.split(|c: char| c.is_control()).map(str::trim).collect();
    let message = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ");
    if message.is_empty() { failure.class.clone() } else { format!("{}: {message}", failure.class) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_run_has_its_exit_code() {
        for (state, code) in [("Completed", Some(0)), ("Failed", Some(1)), ("Cancelled", Some(4)), ("Running", None)] {
            assert_eq!(Exit::of_run(state).map(|e| e as u8), code, "{state}");
        }
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = |message: &str| v1::Failure { class: "tool".into(), message: message.into() };
        for (message, wanted) in [
            ("", "tool"),
            ("it  broke", "tool: it  broke"),
            ("exit code 7\n  it broke\r\n\ntwice\n", "tool: exit code 7 it broke twice"),
        ] {
            assert_eq!(shown(&failure(message)), wanted);
        }
    }

    #[test]
    fn a_status_tells_whether_the_question_or_the_answer_was_wrong() {
        for (status, code) in [
            (Status::unavailable(""), 3),
            (Status::invalid_argument(""), 2),
            (Status::not_found(""), 1),
            (Status::failed_precondition(""), 1),
        ] {
            assert_eq!(Failure::from(status).exit as u8, code);
        }
    }
}
