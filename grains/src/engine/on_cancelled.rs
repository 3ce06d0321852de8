//! Run Control cancelled the run: close the projection. Nothing is compensated (S1).

use super::state::RunState;
use super::turn::Turn;
use super::{Effect, RunEnd};
use granary_proto::v1;
use granary_proto::v1::event::Payload;

impl Turn<'_> {
    pub(super) fn on_cancelled(&mut self, reason: &str) {
        if self.p.state == RunState::Compensating {
            return self.supersede("the run is being compensated; it ends Failed".into());
        }
        let reason = if reason.is_empty() { "the run was cancelled" } else { reason };
        let open_step_runs = self.close_all(reason);
        self.end(RunState::Cancelled);
        self.p.header.open_step_runs = open_step_runs;
        self.publish(Payload::RunCancelled(v1::WorkflowRunCancelled {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            open_step_runs,
        }));
        self.effects.push(Effect::RunEnded(RunEnd::Cancelled { open_step_runs }));
    }
}
