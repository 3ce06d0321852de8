//! Run Control recorded how an attempt ended.

use super::state::{Asked, RunIx, StepState};
use super::turn::Turn;
use super::{Outcome, OutcomeKind, ids};
use crate::definition::StepKind;
use granary_proto::v1::Failure;

impl Turn<'_> {
    pub(super) fn on_outcome(&mut self, outcome: Outcome) {
        let Some(ix) = self.p.by_id.get(&outcome.step_run_id).copied() else { return };
        if let Some(why) = self.too_late(ix, &outcome) {
            return self.supersede(why);
        }
        if let Some(attempt_id) = outcome.attempt_id {
            self.p.remember_attempt(ix, attempt_id);
        }
        match outcome.kind {
            OutcomeKind::Succeeded => {
                self.p.run_mut(ix).output_ref = outcome.output_ref;
                self.spend(outcome.output.len()); // Once more in the journal.
                let output = if outcome.output.is_empty() { b"null".to_vec() } else { outcome.output };
                match self.plan.step(self.p.run(ix).step).kind {
                    StepKind::WaitFor { .. } | StepKind::Branch { .. } => self.on_answer(ix, &output),
                    _ => self.succeed(ix, output),
                }
            }
            OutcomeKind::Uncertain => self.uncertain(ix, self.why(ix, outcome.failure, "uncertain")),
            OutcomeKind::Failed => {
                let class = match self.plan.step(self.p.run(ix).step).kind {
                    StepKind::Agent { .. } => "agent",
                    StepKind::SubWorkflow { .. } => "infrastructure",
                    StepKind::WaitFor { .. } | StepKind::Branch { .. } => "condition",
                    _ => "tool",
                };
                self.fail_step(ix, self.why(ix, outcome.failure, class), true);
            }
            OutcomeKind::TimedOut => self.fail_step(ix, self.why(ix, outcome.failure, "timeout"), true),
            OutcomeKind::Cancelled => self.fail_step(ix, self.why(ix, outcome.failure, "cancelled"), true),
        }
    }

    /// Every state of the step run is answered: an outcome fits only the present attempt, while it is at work.
    fn too_late(&self, ix: RunIx, outcome: &Outcome) -> Option<String> {
        let run = self.p.run(ix);
        let step_id = self.step_id(ix);
        if run.state.is_terminal() {
            return Some(format!("step {step_id} is already {}", run.state.as_str()));
        }
        let kind = &self.plan.step(run.step).kind;
        let is_child = matches!(kind, StepKind::SubWorkflow { .. });
        let at_work = matches!(run.state, StepState::Ready | StepState::Running) && run.asked == Asked::Nothing;
        // A child's end names the child, and so the attempt, whatever its number says; but an external Run Control gives its
        // children ids of its own.
        let present = match outcome.attempt_id {
            Some(child) if is_child && !self.options.children_by_event => {
                child == ids::child_run_id(run.id, run.attempt)
            }
            _ => outcome.attempt == run.attempt,
        };
        if at_work && present {
            return None;
        }
        Some(format!(
            "attempt {} of step {step_id} is not the one at work; it is {} with attempt {}",
            outcome.attempt,
            run.state.as_str(),
            run.attempt
        ))
    }

    /// The reported failure, with a class in any case.
    fn why(&self, ix: RunIx, failure: Option<Failure>, class: &str) -> Failure {
        let mut failure = failure.unwrap_or_default();
        if failure.class.is_empty() {
            failure.class = class.to_owned();
        }
        if failure.message.is_empty() {
            let run = self.p.run(ix);
            failure.message = format!("attempt {} of step {} ended so", run.attempt, self.step_id(ix));
        }
        failure
    }
}
