//! The engine: it projects one run from the facts of Run Control and says what shall happen next.
//!
//! [`Projection::decide`] is the whole of it. It never changes what a run *is* (that is Run Control's), it only follows the
//! facts, and gives [`Effect`]s back. It is a function: the same inputs with the same times give the same rows, the same
//! events and the same ids, so a projection can be dropped and built again.
//!
//! # The idea
//!
//! A turn is a worklist. A trigger (`on_*`) ends or starts a step run; ending a step run decides its outgoing edges
//! (`edges`); each decided edge asks its target to look again whether it can go on (`readiness`), and that may start it,
//! skip it, or leave it waiting. Nothing recurses, so neither a long chain nor a thousand iterations need stack.
//!
//! Step runs live in *frames*. The run is the root frame; each branch of a Fanout opens one. Inside a frame a step has at
//! most one present step run; a taken loop-back makes those of its body past (`loops`), and past ones are kept for their
//! outputs and for compensation.
//!
//! # Rules where the documents are silent
//!
//! - Every turn first fires the timers that are due, then applies its fact, then fires those that became due by it.
//! - A fact that comes too late to matter (ended step, older attempt) uses up its number and does nothing else: it cannot be
//!   refused, since Run Control recorded it and the facts behind it must go on. See [`Note::Superseded`].
//! - A step failure with policy Fail fails the run, except inside a Fanout that has a Join: there it fails its branch, whose
//!   other step runs are cancelled, and the Join's quorum decides. `compensate` always compensates the whole run.
//! - A branch in which nothing reached the Join because conditions led elsewhere is *dry*: it does not count for `all`
//!   (only branches that can still come do). If every branch is dry the Join is skipped. An empty Fanout passes any quorum.
//! - Failures that the same input would bring again (condition, mapping, quorum, fanout-limit, loop-bound, policy-denied)
//!   are never retried by themselves; a human who is asked may retry them.
//! - A failure with policy Route that no outgoing edge takes fails as under policy Fail: it is never lost.
//! - A human's `skip` ends the step Skipped and goes on behind it with the output null: unguarded edges are taken.
//! - A step that takes a loop-back does not take its own unguarded edges in that iteration.
//! - A run waits for the losers that a Join keeps. Late successes are undone like others while the run is not compensating;
//!   once it compensates, what was in flight is closed and its outcome comes too late.
//! - A turn makes at most [`TURN_BYTES_MAX`](grain_contract::limits::TURN_BYTES_MAX) bytes (`budget`). A value beyond it fails
//!   its step (class `mapping`), a step run beyond it the run (`fanout-limit`, `loop-bound`).
//! - `compensated` is true only if at least one compensation was planned and every one succeeded.
//! - A WaitForCondition looks a last time at its timeout, before it fails; an observation that comes in that instant is applied
//!   behind it, as every fact is, and so comes too late.
//! - A cancel that meets a compensating run changes nothing: that run ends Failed (S1 has no other way out).

mod budget;
mod closing;
mod compensation;
mod edges;
mod effect;
mod events;
mod facts;
mod fanout;
mod finish;
mod frames;
mod graph_view;
pub mod ids;
mod input;
mod inputs;
mod join;
mod load;
mod loops;
mod on_accepted;
mod on_cancelled;
mod on_decision;
mod on_observed;
mod on_outcome;
mod on_stuck;
mod on_taken;
mod on_timers;
mod outputs;
mod policy;
mod questions;
mod readiness;
mod rebuild;
mod rows;
mod start;
mod state;
mod timers;
mod turn;
mod waiting;
mod words;

#[cfg(test)]
mod tests;

pub use effect::{Closing, Effect, RunEnd, StartChild, StepReadyOrder};
pub use input::{Accepted, Decided, Input, Observation, Outcome, OutcomeKind, Refusal, Seen};
pub use load::Corrupt;
pub use rows::Changes;
pub use state::{Projection, RunState};
pub use turn::Note;

/// `Workflows:Engine` of S1, and the bounds that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    pub max_fanout: u32,
    pub default_max_loop_iterations: u32,
    pub default_step_timeout_ms: u64,
    pub max_depth: u32,
    /// Stuck-run check, `StuckRunReconciler`.
    pub stuck_after_ms: u64,
    /// Keep a digest of every applied fact, so that an old number with other content is told apart. Off where the journal
    /// beside the engine has the facts themselves (bundled Run Control): then only the last one is compared.
    pub keep_fact_digests: bool,
    /// Child runs are asked for by StepReady, like attempts: where Run Control is external and hears events only. Such a step is
    /// Ready until its outcome. Else the engine starts the child itself, and the step is Running.
    pub children_by_event: bool,
    /// Step runs of one run, over all iterations and branches; the run fails beyond it.
    pub step_runs_max: usize,
    /// Bytes of its values, which an activation holds in memory; the run fails beyond it.
    pub run_bytes_max: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_fanout: 16,
            default_max_loop_iterations: 10,
            default_step_timeout_ms: 60 * 60 * 1_000,
            max_depth: grain_contract::limits::SUBWORKFLOW_DEPTH_MAX,
            stuck_after_ms: 5 * 60 * 1_000,
            keep_fact_digests: true,
            children_by_event: false,
            step_runs_max: grain_contract::limits::STEP_RUNS_MAX,
            run_bytes_max: grain_contract::limits::RUN_BYTES_MAX,
        }
    }
}
