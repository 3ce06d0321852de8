//! What Run Control did about a step run: made an attempt or an approval for it, saw a worker claim it, or lose it unstarted.
//!
//! None of it decides anything: no edge, no timer and no policy depends on it. It moves a step run between Ready (asked for)
//! and Running (a worker is at it), and is shown in the graph. An external Run Control says none of this, so there a step
//! stays Ready until its outcome.

use super::state::{ATTEMPT_IDS_KEPT, Asked, Projection, RunIx, StepState};
use super::turn::Turn;
use uuid::Uuid;

impl Turn<'_> {
    pub(super) fn on_taken(&mut self, step_run_id: Uuid, attempt_id: Option<Uuid>, approval_id: Option<Uuid>) {
        let Some(ix) = self.p.by_id.get(&step_run_id).copied() else { return };
        if let Some(attempt_id) = attempt_id {
            self.p.remember_attempt(ix, attempt_id);
        }
        if approval_id.is_some() && self.p.run(ix).approval_id != approval_id {
            self.p.run_mut(ix).approval_id = approval_id;
        }
    }

    pub(super) fn on_claimed(&mut self, step_run_id: Uuid, attempt: u32) {
        self.move_attempt(step_run_id, attempt, StepState::Ready, StepState::Running);
    }

    pub(super) fn on_requeued(&mut self, step_run_id: Uuid, attempt: u32) {
        self.move_attempt(step_run_id, attempt, StepState::Running, StepState::Ready);
    }

    /// Only the present attempt moves: what is said of an older one, or of a step run that ended within the same turn, comes
    /// too late.
    fn move_attempt(&mut self, step_run_id: Uuid, attempt: u32, from: StepState, to: StepState) {
        let Some(ix) = self.p.by_id.get(&step_run_id).copied() else { return };
        let run = self.p.run(ix);
        let is_present = run.attempt == attempt && run.asked == Asked::Nothing;
        if is_present && run.state == from && self.plan.step(run.step).kind.queue().is_some() {
            self.enter(ix, to);
        }
    }
}

impl Projection {
    pub(super) fn remember_attempt(&mut self, ix: RunIx, attempt_id: Uuid) {
        if self.run(ix).attempt_ids.last() == Some(&attempt_id) {
            return;
        }
        let ids = &mut self.run_mut(ix).attempt_ids;
        if ids.len() >= ATTEMPT_IDS_KEPT {
            ids.remove(0);
        }
        ids.push(attempt_id);
    }
}
