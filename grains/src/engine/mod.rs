//! The engine: it projects one run from the facts of Run Control and says what shall happen next.
//!
//! `Projection::decide(plan, options, now, input)` is the whole of it. It never changes what a run *is* (that is Run
//! Control's), it only follows the facts, and gives [`Effect`]s back.

mod effect;
pub mod ids;
mod input;
mod projection;

pub use effect::{Closing, Effect, RunEnd, StartChild, StepReadyOrder};
pub use input::{Accepted, Decided, Input, Outcome, OutcomeKind, Refusal};
pub use projection::{Changes, Corrupt, Note, Projection, RunState};

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
        }
    }
}
