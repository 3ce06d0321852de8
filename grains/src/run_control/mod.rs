//! The bundled Run Control: the authority over one run, its steps, attempts, leases and approvals (S3).
//!
//! It has the same shape as the engine beside it: pure, one trigger a file. A trigger is done in two halves. The first half
//! *checks*: it looks and answers with what will be recorded, or with a refusal; nothing has changed then. The engine is
//! asked between the halves whether the fact fits. The second half *records*: it cannot fail any more. So a refused trigger
//! leaves both machines as they were, without a copy of either.
//!
//! | trigger | check | record |
//! | --- | --- | --- |
//! | a run is submitted | `submit` | `submit` |
//! | a worker reports | `report` | `outcome` |
//! | a lease expired | `lease_expired` | `outcome`, or offered again |
//! | a child run ended | `child` | `outcome` |
//! | a human decides | `decide` | `decide` |
//! | somebody cancels | `cancel` | `cancel` |
//! | a worker claims | `claim` | `claim` |
//! | a worker observes | `observe` | `observe` |
//! | the engine says: step ready, close, run ended | - | `step_ready`, `close_step`, `child`, `run_ended` |
//!
//! Facts are numbered from 1 without a gap for the engine, journal entries from 1 without a gap for everybody.

mod cancel;
mod child;
mod claim;
mod close_step;
mod decide;
mod lease_expired;
mod observe;
mod offers;
mod outcome;
mod record;
mod report;
mod rows;
mod run_ended;
mod state;
mod step_ready;
mod submit;
#[cfg(test)]
mod tests;

pub use cancel::{Cancellable, Cancelling};
pub use decide::DecisionMade;
pub use lease_expired::Expiry;
pub use observe::{check_seen, observation_of};
pub use outcome::{AttemptEnd, outcome_of, outcome_word};
pub use record::Record;
pub(crate) use rows::run_of;
pub use rows::{COUNTERS_KEY, RUN_KEY};
pub use state::{RunState, Submitted};
pub(crate) use submit::runs_sort;
pub use submit::{Pinned, Submission, accepted_of};

use crate::run_control::state::{Ask, Step};
use grain_contract::{Code, Rejection, Timestamp};
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

/// What a check found.
#[derive(Debug, PartialEq)]
pub enum Verdict<T> {
    /// To be recorded.
    New(T),
    /// Recorded before with this content: the same answer, no effect.
    Repeated,
}

/// The authority over one run. Before its submission everything is empty.
#[derive(Debug)]
pub struct Authority {
    tenant: String,
    run_id: Uuid,
    run: Option<Submitted>,
    /// Cancelled by its parent before it was submitted, and why.
    tombstone: Option<String>,
    counters: Counters,
    steps: HashMap<Uuid, Step>,
    /// Attempt, approval and child ids → step run and number.
    asked: HashMap<Uuid, (Uuid, u32)>,
    /// Step runs whose newest ask is open. Ordered, so that whatever walks it is the same on every node.
    open: BTreeSet<Uuid>,
    pending_approvals: usize,
    open_attempts: usize,
    /// What the index of open runs says: there are open attempts, or nobody knows.
    told_work: bool,
    changed: Changed,
}

/// Numbers and reminders that change with nearly every turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub next_sequence: u64,
    pub next_journal: u64,
    /// When the reminders stand.
    pub wake: Option<Timestamp>,
    pub stuck: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Changed {
    run: bool,
    counters: bool,
    /// In the order of change, each once.
    steps: Vec<Uuid>,
    earlier: Vec<(Uuid, u32)>,
}

impl Authority {
    pub fn new(tenant: &str, run_id: Uuid) -> Self {
        Self {
            tenant: tenant.to_owned(),
            run_id,
            run: None,
            tombstone: None,
            counters: Counters { next_sequence: 1, next_journal: 1, wake: None, stuck: None },
            steps: HashMap::new(),
            asked: HashMap::new(),
            open: BTreeSet::new(),
            pending_approvals: 0,
            open_attempts: 0,
            told_work: true,
            changed: Changed::default(),
        }
    }

    /// The run as it was submitted; `None` before that.
    pub fn run(&self) -> Option<&Submitted> {
        self.run.as_ref()
    }

    /// Why the parent cancelled the run before it was submitted.
    pub fn tombstone(&self) -> Option<&str> {
        self.tombstone.as_deref()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Notes where the reminders stand now.
    pub fn set_reminders(&mut self, wake: Option<Timestamp>, stuck: Option<Timestamp>) {
        if (self.counters.wake, self.counters.stuck) != (wake, stuck) {
            self.counters.wake = wake;
            self.counters.stuck = stuck;
            self.changed.counters = true;
        }
    }

    /// Whether the run was submitted and has ended.
    pub fn is_over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.state.is_terminal())
    }

    /// Step runs with an open attempt, approval or child, in a stable order.
    pub fn open_step_runs(&self) -> Vec<Uuid> {
        self.open.iter().copied().collect()
    }

    /// Bytes held in memory, roughly.
    pub fn memory(&self) -> usize {
        1_024 + self.steps.values().map(|step| 512 + step.input.len() + step.earlier.len() * 128).sum::<usize>()
    }

    fn submitted(&self) -> Result<&Submitted, Rejection> {
        self.run.as_ref().ok_or_else(|| {
            Rejection::new(Code::NotFound, format!("Expected a submitted run, but {} is not one.", self.run_id))
                .at("runId")
        })
    }

    /// The ask with this attempt, approval or child id: its step, its number, itself.
    fn find(&self, id: Uuid) -> Option<(&Step, u32, &Ask)> {
        let (step_run, number) = self.asked.get(&id)?;
        let step = self.steps.get(step_run)?;
        let ask = if step.number == *number { &step.ask } else { step.earlier.get(number)? };
        Some((step, *number, ask))
    }

    /// Changes the ask with this number and keeps account of what is open.
    fn change(&mut self, step_run: Uuid, number: u32, change: impl FnOnce(&mut Ask)) {
        let Some(step) = self.steps.get_mut(&step_run) else { return };
        if step.number != number {
            if let Some(ask) = step.earlier.get_mut(&number) {
                change(ask);
                self.changed.earlier.push((step_run, number));
            }
            return;
        }
        let (pending, at_work) = (step.ask.is_pending_approval(), step.ask.is_open_attempt());
        change(&mut step.ask);
        if !step.ask.is_open() {
            // Only an open ask is offered again, so its input has done its duty.
            step.input = Vec::new();
            step.run_input = false;
            self.open.remove(&step_run);
        }
        if pending && !step.ask.is_pending_approval() {
            self.pending_approvals -= 1;
        }
        match (at_work, step.ask.is_open_attempt()) {
            (true, false) => self.open_attempts -= 1,
            (false, true) => self.open_attempts += 1,
            _ => {}
        }
        self.touch(step_run);
    }

    fn touch(&mut self, step_run: Uuid) {
        // A turn touches few steps, mostly one or two; a set would cost more.
        if !self.changed.steps.contains(&step_run) {
            self.changed.steps.push(step_run);
        }
    }

    fn enter(&mut self, state: RunState) {
        if let Some(run) = &mut self.run
            && run.state != state
        {
            debug_assert!(run.state.may_become(state), "{:?} does not become {state:?}", run.state);
            run.state = state;
            self.changed.run = true;
        }
    }

    /// After a turn: whether the run goes on or waits for humans only.
    pub fn settle(&mut self) {
        let Some(run) = &self.run else { return };
        if !matches!(run.state, RunState::Accepted | RunState::Running | RunState::WaitingForApproval) {
            return;
        }
        let waits = self.pending_approvals > 0 && self.pending_approvals == self.open.len();
        self.enter(if waits { RunState::WaitingForApproval } else { RunState::Running });
    }

    fn take_sequence(&mut self) -> u64 {
        let sequence = self.counters.next_sequence;
        self.counters.next_sequence += 1;
        self.changed.counters = true;
        sequence
    }
}
