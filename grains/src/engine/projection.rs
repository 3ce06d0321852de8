//! What a run is, seen from the engine.

use super::{Effect, EngineOptions, Input, Refusal};
use crate::definition::Plan;
use grain_contract::{Row, RowKey, Timestamp};
use granary_proto::v1;
use uuid::Uuid;

/// The engine's view of one run.
pub struct Projection {
    run_id: Uuid,
}

/// Rows to write and to delete: only what changed since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub puts: Vec<Row>,
    pub deletes: Vec<RowKey>,
}

/// The rows cannot be what this engine wrote for this plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub String);

/// What became of the last input that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Applied,
    /// This fact had been applied before; nothing happened.
    Repeated,
    /// The fact came too late to matter (ended step, older attempt); its number is used up and nothing else happened.
    Superseded(String),
}

/// S1's WorkflowRunState.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Pending,
    Running,
    WaitingForTimer,
    WaitingForHuman,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}

impl RunState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::WaitingForTimer => "WaitingForTimer",
            Self::WaitingForHuman => "WaitingForHuman",
            Self::Compensating => "Compensating",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl Projection {
    /// A run of which nothing is known yet: Pending.
    pub fn new(_tenant: &str, run_id: Uuid) -> Self {
        Self { run_id }
    }

    /// The run as its rows have it. `plan` may be absent only for a run that was refused at acceptance, or not accepted.
    pub fn load(_tenant: &str, run_id: Uuid, _rows: Vec<Row>, _plan: Option<&Plan>) -> Result<Self, Corrupt> {
        Ok(Self { run_id })
    }

    /// Applies one input. Fires every timer due by `now` first (see the module's text). Refused: nothing changed.
    /// `plan` is absent only for an acceptance with a refusal.
    pub fn decide(
        &mut self,
        _plan: Option<&Plan>,
        _options: &EngineOptions,
        _now: Timestamp,
        _input: Input,
    ) -> Result<Vec<Effect>, Refusal> {
        Ok(Vec::new())
    }

    pub fn note(&self) -> &Note {
        &Note::Applied
    }

    pub fn take_changes(&mut self) -> Changes {
        Changes::default()
    }

    /// One page of the run's graph. `page_token` empty = from the start; `page_size` 0 = as many as a page may have.
    pub fn graph(&self, _plan: Option<&Plan>, _page_token: &str, _page_size: u32) -> v1::RunGraph {
        v1::RunGraph::default()
    }

    /// Steps that Run Control should have an attempt or approval for.
    pub fn plan_next(&self, _plan: &Plan) -> Vec<v1::PlannedStep> {
        Vec::new()
    }

    /// Why it waits: one entry a step that has not ended, at most [`grain_contract::limits::PAGE_MAX`].
    pub fn waiting(&self, _plan: &Plan) -> Vec<v1::StepWaiting> {
        Vec::new()
    }

    pub fn run_id(&self) -> Uuid {
        self.run_id
    }
    pub fn state(&self) -> RunState {
        RunState::Pending
    }
    pub fn is_terminal(&self) -> bool {
        self.state().is_terminal()
    }
    /// 0 = nothing accepted yet.
    pub fn last_outcome_sequence(&self) -> u64 {
        0
    }
    /// The earliest moment at which [`Input::TimersDue`] is wanted.
    pub fn next_due(&self) -> Option<Timestamp> {
        None
    }
    /// True while steps are active that Run Control is to work on.
    pub fn has_active_steps(&self) -> bool {
        false
    }
    pub fn release_id(&self) -> &str {
        ""
    }
    pub fn graph_hash(&self) -> &str {
        ""
    }
    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        0
    }
}
