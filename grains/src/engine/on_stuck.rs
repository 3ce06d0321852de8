//! The sweep: active step runs of which Run Control has nothing open are asked for again.

use super::state::{Asked, RunIx, StepState};
use super::turn::Turn;
use crate::definition::StepKind;
use std::collections::HashSet;
use uuid::Uuid;

impl Turn<'_> {
    /// Once for each step run and outcome sequence: asking again for the same pair would say nothing new.
    pub(super) fn on_stuck(&mut self, open: &[Uuid]) {
        let open: HashSet<&Uuid> = open.iter().collect();
        let mark = self.p.header.last_sequence + 1;
        let mut stuck: Vec<RunIx> = self.p.active.iter().map(|(_, ix)| *ix).collect();
        stuck.retain(|ix| {
            let run = self.p.run(*ix);
            let asked_for = matches!(run.state, StepState::Ready | StepState::Running | StepState::WaitingForHuman);
            let since = self.now.since(grain_contract::Timestamp(run.ready_ms));
            asked_for && !open.contains(&run.id) && run.asked_again != mark && since >= self.options.stuck_after_ms
        });
        stuck.sort_unstable();
        for ix in stuck {
            if !self.affords(self.p.input_of(self.plan, ix).len()) {
                return; // The rest at the next sweep.
            }
            self.spend(self.p.input_of(self.plan, ix).len());
            self.p.run_mut(ix).asked_again = mark;
            let plan = self.plan;
            match (&plan.step(self.p.run(ix).step).kind, self.p.run(ix).asked) {
                (StepKind::SubWorkflow { definition_id, version }, Asked::Nothing)
                    if !self.options.children_by_event =>
                {
                    self.order_child(ix, definition_id, version.as_deref());
                }
                _ => {
                    if self.p.run(ix).state == StepState::Running {
                        // Nobody is at it, whoever was.
                        self.enter(ix, StepState::Ready);
                    }
                    self.order(ix, self.reason(ix));
                }
            }
        }
    }
}
