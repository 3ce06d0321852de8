//! One attempt as a handler sees it, and what may come of it.

use granary_proto::v1;
use granary_proto::wire::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One attempt to do.
#[derive(Clone, Debug)]
pub struct Work {
    pub attempt_id: String,
    pub run_id: String,
    pub step_run_id: String,
    pub step_id: String,
    /// Agent, Tool or Compensation.
    pub kind: String,
    /// Name of the agent or tool.
    pub name: String,
    pub action_class: String,
    /// JSON text.
    pub input: Vec<u8>,
    /// Which attempt of the step, from 1.
    pub attempt: u32,
    /// The same for all attempts of one step run: whoever is called may use it to do the work once.
    pub idempotency_key: String,
    pub tenant_id: String,
    pub definition_id: String,
    /// How long it may take; afterwards the handler's future is dropped.
    pub timeout: Option<Duration>,
    interrupt: CancellationToken,
}

/// What came of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// JSON text, at most 1 MiB.
    Succeeded(Vec<u8>),
    Failed {
        class: String,
        message: String,
    },
    /// It may or may not have happened.
    Uncertain(String),
    /// Stopped because the silo asked for it.
    Cancelled(String),
}

impl Work {
    pub(super) fn new(assignment: v1::Assignment, interrupt: CancellationToken) -> Self {
        Self {
            attempt_id: assignment.attempt_id,
            run_id: assignment.run_id,
            step_run_id: assignment.step_run_id,
            step_id: assignment.step_id,
            kind: assignment.kind,
            name: assignment.name,
            action_class: assignment.action_class,
            input: assignment.input.map_or_else(|| b"null".to_vec(), |json| json.text),
            attempt: assignment.attempt,
            idempotency_key: assignment.idempotency_key,
            tenant_id: assignment.tenant_id,
            definition_id: assignment.definition_id,
            timeout: (assignment.timeout_ms > 0).then(|| Duration::from_millis(assignment.timeout_ms)),
            interrupt,
        }
    }

    pub fn input<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.input)
    }

    /// Resolves when the silo wants the attempt stopped. A handler that listens may settle its affairs; one that does not is
    /// dropped a few seconds later.
    pub async fn interrupted(&self) {
        self.interrupt.cancelled().await;
    }

    /// The failure class that fits this kind of work.
    pub fn failure_class(&self) -> &'static str {
        if self.kind == "Agent" { "agent" } else { "tool" }
    }

    /// `Failed` with the class of this kind of work.
    pub fn failed(&self, message: impl Into<String>) -> Outcome {
        Outcome::Failed { class: self.failure_class().to_owned(), message: message.into() }
    }
}

impl Outcome {
    pub fn succeeded<T: Serialize>(output: &T) -> Self {
        match serde_json::to_vec(output) {
            Ok(text) => Outcome::Succeeded(text),
            Err(error) => Outcome::Failed {
                class: "tool".to_owned(),
                message: format!("Expected an output that can be written as JSON, but found one that cannot: {error}"),
            },
        }
    }

    pub(super) fn report(self, attempt_id: String, run_id: String, lease_token: Vec<u8>) -> v1::Report {
        let (outcome, output, failure) = match self {
            Outcome::Succeeded(text) => ("Succeeded", Some(Json::new(text)), None),
            Outcome::Failed { class, message } => ("Failed", None, Some(v1::Failure { class, message })),
            Outcome::Uncertain(message) => {
                ("Uncertain", None, Some(v1::Failure { class: "uncertain".to_owned(), message }))
            }
            Outcome::Cancelled(message) => {
                ("Cancelled", None, Some(v1::Failure { class: "cancelled".to_owned(), message }))
            }
        };
        v1::Report {
            attempt_id,
            run_id,
            lease_token,
            outcome: outcome.to_owned(),
            output,
            failure,
            outcome_hash: String::new(),
        }
    }
}
