//! What one turn may write. A turn is one log entry, and one that is too large is refused for ever: the run would hang. So
//! the engine counts what it makes, and beyond the bound the step fails, and the run moves.
//!
//! Counted are values (inputs, outputs, elements), each copy of them once, and for each step run what its rows, its journal
//! entries and its events take. Not to the byte: the bound leaves a quarter of an entry for what is not counted. The count
//! begins anew with each commit and with each moment, so a re-projection, which commits only once, counts the same.

use super::state::{Projection, RunIx, RunState};
use super::turn::Turn;
use crate::definition::{Step, StepKind};
use grain_contract::Timestamp;
use grain_contract::limits::TURN_BYTES_MAX;
use granary_proto::v1::Failure;

/// A value above this may use three quarters of the bound only: what handles a failure is small and must still have room.
const SMALL_BYTES: usize = 64 * 1024;

/// A step run that is made: its row and the event of its first move. Measured, rounded up.
const STEP_RUN_BYTES: usize = 350;
/// A step run that is asked for: Run Control's row, three journal entries, two events.
const ORDER_BYTES: usize = 830;
/// How often a step's name is in those, about half of it in each.
const NAMES_IN_EACH: usize = 4;

/// Bytes made since the last commit, and when.
#[derive(Default)]
pub(super) struct Spent {
    at: i64,
    pub bytes: usize,
}

impl Spent {
    pub fn begin(&mut self, now: Timestamp) {
        if self.at != now.0 {
            *self = Self { at: now.0, bytes: 0 };
        }
    }
}

impl Projection {
    /// Bytes that the turns since the last [`Projection::take_changes`] made, roughly.
    pub fn spent_bytes(&self) -> usize {
        self.spent.bytes
    }
}

impl Turn<'_> {
    /// Counts what is made in any case.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.p.spent.bytes = self.p.spent.bytes.saturating_add(bytes);
    }

    /// Whether a value of this size still has room.
    pub(super) fn affords(&self, bytes: usize) -> bool {
        let bound = if bytes > SMALL_BYTES { TURN_BYTES_MAX / 4 * 3 } else { TURN_BYTES_MAX };
        self.p.spent.bytes.saturating_add(bytes) <= bound
    }

    /// Counts a value that is about to be made, or says why it must not be.
    pub(super) fn afford(&mut self, ix: RunIx, bytes: usize) -> Result<(), Failure> {
        if self.affords(bytes) {
            self.spend(bytes);
            return Ok(());
        }
        let message = format!(
            "Expected the values that one turn makes to have at most {TURN_BYTES_MAX} bytes in all (three quarters of it for large ones), \
             but {bytes} more of step {} do not fit; map less into each step, or hand on references.",
            self.step_id(ix)
        );
        Err(Failure { class: "mapping".into(), message })
    }

    /// Before an order: what Run Control will keep of the input. A compensation always has room, since there is one at a
    /// time and it must not fail for what the step before it asked for.
    pub(super) fn afford_order(&mut self, ix: RunIx) -> Result<(), Failure> {
        let kept = self.kept_input(ix);
        if self.p.run(ix).undoes.is_some() {
            self.spend(kept);
            return Ok(());
        }
        self.afford(ix, kept)
    }

    /// Bytes of the input that are stored once more when it is ordered. The run's own is not, except where a human reads it
    /// or a child run gets it.
    fn kept_input(&self, ix: RunIx) -> usize {
        let own = self.p.run(ix).input.is_none() && self.p.run(ix).undoes.is_none();
        let kind = &self.plan.step(self.p.run(ix).step).kind;
        let copied = matches!(kind, StepKind::Human { .. } | StepKind::SubWorkflow { .. });
        let of_run = own && self.p.item(self.plan, self.p.run(ix).frame).is_none();
        if of_run && !copied { 0 } else { self.p.input_of(self.plan, ix).len() }
    }

    pub(super) fn spend_order(&mut self, ix: RunIx) {
        let names = self.step_id(ix).len() * NAMES_IN_EACH;
        self.spend(ORDER_BYTES + names);
    }

    /// Whether one more step run may be made in this turn, and in this run.
    pub(super) fn has_bytes(&mut self, step: &Step) -> bool {
        let failure = |class: &str, message: String| Failure { class: class.into(), message };
        let bytes = STEP_RUN_BYTES + step.id.len() * NAMES_IN_EACH;
        if self.p.state == RunState::Compensating {
            self.spend(bytes); // One at a time, and what was done must be undone.
            return true;
        }
        if !self.affords(bytes) {
            let class = if step.loops.is_empty() { "fanout-limit" } else { "loop-bound" };
            let message = format!(
                "Expected what one turn makes to have at most {TURN_BYTES_MAX} bytes, but a step run of {} is more: too many steps follow each other or stand beside each other without any work between.",
                step.id
            );
            self.fail_run(&step.id, failure(class, message));
            return false;
        }
        if self.p.payload_bytes > self.options.run_bytes_max {
            let message = format!(
                "Expected the values of one run to have at most {} bytes in all, but they have {}.",
                self.options.run_bytes_max, self.p.payload_bytes
            );
            self.fail_run(&step.id, failure("infrastructure", message));
            return false;
        }
        self.spend(bytes);
        true
    }
}
