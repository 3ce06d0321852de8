//! Run Control made an attempt or an approval for a step run: shown in the graph, decides nothing, moves nothing.
//!
//! Whether a worker is at it is Run Control's to know; for the engine the step stays Ready until its outcome. (Running are
//! the steps whose work the engine gave to a run of its own: SubWorkflow.)

use super::state::{ATTEMPT_IDS_KEPT, Projection, RunIx};
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
