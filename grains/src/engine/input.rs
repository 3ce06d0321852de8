//! What goes into the engine: Run Control's facts, and the clock.

use granary_proto::v1::Failure;
use uuid::Uuid;

/// One thing that happened. Facts carry Run Control's sequence: one rising number per run over all of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    RunAccepted {
        sequence: u64,
        accepted: Accepted,
    },
    AttemptOutcomeRecorded {
        sequence: u64,
        outcome: Outcome,
    },
    ApprovalDecided {
        sequence: u64,
        decided: Decided,
    },
    RunCancelled {
        sequence: u64,
        reason: String,
    },
    Observed {
        sequence: u64,
        observation: Observation,
    },
    /// Not a fact: a reminder came due. Fires every timer that is due by now.
    TimersDue,
    /// Not a fact: the sweep. `open` are the step runs for which Run Control has an open attempt, approval or child.
    CheckStuck {
        open: Vec<Uuid>,
    },
    /// Which attempt or approval Run Control made for a step run: shown in the graph, decides nothing.
    StepTaken {
        step_run_id: Uuid,
        attempt_id: Option<Uuid>,
        approval_id: Option<Uuid>,
    },
    /// Not a fact: a worker has claimed this attempt. The step run is Running.
    AttemptClaimed {
        step_run_id: Uuid,
        attempt: u32,
    },
    /// Not a fact: the worker that had claimed this attempt never started it, and it waits in its queue again. The step run
    /// is Ready.
    AttemptRequeued {
        step_run_id: Uuid,
        attempt: u32,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    pub project_id: String,
    pub definition_release_id: String,
    /// JSON text.
    pub input: Vec<u8>,
    /// JSON object text, laid over the definition's `variables`; empty = none.
    pub variables: Vec<u8>,
    pub parent_run_id: Option<Uuid>,
    pub parent_step_run_id: Option<Uuid>,
    pub depth: u32,
    /// The run cannot start (unknown or refused release): it fails at once, saying why.
    pub refusal: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub step_run_id: Uuid,
    pub attempt_id: Option<Uuid>,
    /// Which attempt of the step, from 1. Another than the present one is superseded.
    pub attempt: u32,
    pub kind: OutcomeKind,
    /// JSON text; empty = null.
    pub output: Vec<u8>,
    pub output_ref: String,
    pub failure: Option<Failure>,
}

/// What a worker saw in the world of the run (S2).
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub seen: Seen,
    /// JSON text; of a world an object.
    pub value: Vec<u8>,
    pub step_run_id: Option<Uuid>,
    pub attempt_id: Option<Uuid>,
    /// The worker.
    pub by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Takes the place of the one before.
    Scene,
    /// Variables, laid over those that are known.
    World,
}

/// Run Control's outcomes (S3). A child run's end comes as one of them, with `attempt` 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Uncertain,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub step_run_id: Uuid,
    pub approval_id: Option<Uuid>,
    /// approved, rejected, answered, retry, skip, fail
    pub decision: String,
    pub proposal_version: u32,
    /// JSON text; empty = null.
    pub answer: Vec<u8>,
    pub comment: String,
    pub decided_by: String,
}

/// Why a fact was not applied. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Facts are missing before this one.
    Gap { expected: u64, found: u64 },
    /// This sequence was applied with other content.
    OtherContent { sequence: u64 },
    /// The fact does not fit: unknown step run, superseded attempt, finished step or run. `code` is stable.
    DoesNotFit { code: &'static str, message: String },
}
