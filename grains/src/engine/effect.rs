//! What comes out of the engine, in order. Imperative: it shall happen, after the commit.

use grain_contract::Timestamp;
use granary_proto::v1::{self, Failure};
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// One of the nine events of S1, numbered; goes to the outbox as it is.
    Publish(v1::Event),
    /// For Run Control: a step is ready (its event has been published just before). Run Control deduplicates on step run
    /// and attempt.
    StepReady(StepReadyOrder),
    /// For Run Control: no more is wanted of this step run; end its open attempt or approval.
    CloseStep {
        step_run_id: Uuid,
        closing: Closing,
    },
    StartChild(StartChild),
    CancelChild {
        child_run_id: Uuid,
        reason: String,
    },
    /// For Run Control: record the end. Exactly once, after its event, last of all effects of the run.
    RunEnded(RunEnd),
    /// The earliest moment at which the run wants `TimersDue`; `None`: never. At most one in an effect list, last.
    WakeAt(Option<Timestamp>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct StepReadyOrder {
    pub step_run_id: Uuid,
    pub step_id: String,
    pub step_name: String,
    /// S1's step kind. `Human` for escalations too (see `ask`).
    pub kind: String,
    pub action_class: String,
    pub attempt: u32,
    /// `agent:NAME`, `tool:NAME`; empty for Human.
    pub queue: String,
    /// JSON text.
    pub input: Vec<u8>,
    pub timeout_ms: u64,
    /// approval, input, escalation; empty unless a human is asked.
    pub ask: String,
    pub options: Vec<String>,
    /// Why a human is asked.
    pub reason: String,
    /// Stable over attempts; of the forward step for compensations.
    pub idempotency_key: String,
}

/// Why a step run is closed from the engine's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    TimedOut,
    /// A join passed without it, or the run ended.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StartChild {
    pub child_run_id: Uuid,
    pub step_run_id: Uuid,
    pub definition_id: String,
    pub version: Option<String>,
    pub input: Vec<u8>,
    pub project_id: String,
    pub depth: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    Completed { output: Vec<u8> },
    Failed { failed_step_id: String, failure: Failure, compensated: bool, output: Vec<u8> },
    Cancelled { open_step_runs: u32 },
}
