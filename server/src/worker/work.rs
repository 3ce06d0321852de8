//! One attempt as a handler sees it, and what may come of it.

use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1;
use granary_proto::wire::Json;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One attempt to do.
#[derive(Clone, Debug)]
pub struct Work {
    pub attempt_id: String,
    pub run_id: String,
    pub step_run_id: String,
    pub step_id: String,
    /// Agent, Tool, Compensation or Condition.
    pub kind: String,
    /// Name of the agent or tool, or of the condition kind.
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
    seen: Seen,
}

/// What was seen during an attempt: goes with its report. The newest scene and the newest value of each variable count, so
/// neither can grow beyond the bound of a value.
#[derive(Clone, Default, Debug)]
pub struct Seen(Arc<Mutex<Observed>>);

#[derive(Default, Debug)]
struct Observed {
    scene: Option<Value>,
    world: Map<String, Value>,
}

impl Seen {
    /// # Errors
    /// The kind is neither `scene` nor `world`, a world is no object, or the value is too large. Nothing is kept then.
    pub fn observe(&self, kind: &str, value: Value) -> Result<(), String> {
        let most = PAYLOAD_BYTES_MAX;
        let size = |value: &Value| value.to_string().len();
        let mut observed = self.0.lock();
        match (kind, value) {
            ("scene", value) if size(&value) <= most => observed.scene = Some(value),
            ("world", Value::Object(variables)) => {
                let mut world = observed.world.clone();
                world.extend(variables);
                let world = Value::Object(world);
                if size(&world) > most {
                    return Err(format!("Expected variables of at most {most} bytes in all, but found more."));
                }
                if let Value::Object(world) = world {
                    observed.world = world;
                }
            }
            ("scene", _) => return Err(format!("Expected a scene of at most {most} bytes, but found more.")),
            ("world", _) => return Err("Expected an object of variables, but found something else.".to_owned()),
            (other, _) => return Err(format!("Expected scene or world, but found {other:?}.")),
        }
        Ok(())
    }

    pub(super) fn take(&self) -> Vec<v1::Observation> {
        let Observed { scene, world } = std::mem::take(&mut *self.0.lock());
        let scene = scene.map(|value| ("scene", value));
        let world = (!world.is_empty()).then_some(("world", Value::Object(world)));
        let observation =
            |(kind, value): (&str, Value)| v1::Observation { kind: kind.to_owned(), value: Some(Json::of(&value)) };
        scene.into_iter().chain(world).map(observation).collect()
    }
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
            seen: Seen::default(),
        }
    }

    /// Where a handler tells what it sees in the world of the run (S2): conditions of the workflow read it once the attempt is
    /// reported.
    pub fn seen(&self) -> Seen {
        self.seen.clone()
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
        match self.kind.as_str() {
            "Agent" => "agent",
            "Condition" => "condition",
            _ => "tool",
        }
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
            observations: Vec::new(),
        }
    }
}
