//! Run Control recorded what a human decided.

use super::state::{Asked, Projection, RunIx, StepState};
use super::turn::{Turn, Work};
use super::{Decided, Refusal};
use granary_proto::v1::Failure;
use serde_json::json;

impl Projection {
    /// The decision must be a word that answers what was asked. Changes nothing.
    pub(super) fn decision_fits(&self, decided: &Decided) -> Result<(), Refusal> {
        let run = self.run(self.known(decided.step_run_id)?);
        let waits = run.state == StepState::WaitingForHuman;
        let options = run.asked.options();
        if !waits || options.contains(&decided.decision.as_str()) {
            return Ok(());
        }
        Err(Refusal::DoesNotFit {
            code: "unknown-decision",
            message: format!("Expected one of {}, but found {:?}.", options.join(", "), decided.decision),
        })
    }
}

impl Turn<'_> {
    pub(super) fn on_decision(&mut self, decided: Decided) {
        let Some(ix) = self.p.by_id.get(&decided.step_run_id).copied() else { return };
        if let Some(why) = self.decision_too_late(ix, &decided) {
            return self.supersede(why);
        }
        if let Some(approval_id) = decided.approval_id {
            self.p.run_mut(ix).approval_id = Some(approval_id);
        }
        self.clear_timers(ix);
        match decided.decision.as_str() {
            "approved" => {
                let output =
                    json!({ "decision": "approved", "by": decided.decided_by, "comment": decided.comment }).to_string();
                self.succeed(ix, output.into_bytes());
            }
            "answered" => {
                self.spend(2 * decided.answer.len()); // Once more in the journal, and with the question.
                let answer = if decided.answer.is_empty() { b"null".to_vec() } else { decided.answer };
                self.succeed(ix, answer);
            }
            "rejected" => {
                let who = if decided.decided_by.is_empty() { "a human" } else { &decided.decided_by };
                let message = match decided.comment.as_str() {
                    "" => format!("{who} rejected it"),
                    comment => format!("{who} rejected it: {comment}"),
                };
                self.fail_step(ix, Failure { class: "rejected".into(), message }, true);
            }
            "retry" => self.work.push_back(Work::Start(ix)),
            "skip" => self.skip_by_human(ix),
            "fail" => {
                let failure = self.p.run(ix).failure.clone().unwrap_or_default();
                match self.p.run(ix).undoes {
                    Some(_) => self.compensation_failed(ix, failure),
                    None => self.give_up(ix, failure),
                }
            }
            // The timers that were due just now changed what is asked.
            other => self.supersede(format!("{other:?} does not answer what step {} asks now", self.step_id(ix))),
        }
    }

    fn decision_too_late(&self, ix: RunIx, decided: &Decided) -> Option<String> {
        let run = self.p.run(ix);
        let step_id = self.step_id(ix);
        if run.state != StepState::WaitingForHuman || run.asked == Asked::Nothing {
            return Some(format!("step {step_id} does not wait for a decision; it is {}", run.state.as_str()));
        }
        match (decided.approval_id, run.approval_id) {
            (Some(found), Some(asked)) if found != asked => {
                Some(format!("step {step_id} waits for the decision of approval {asked}, not of {found}"))
            }
            _ if !run.asked.options().contains(&decided.decision.as_str()) => {
                Some(format!("{:?} does not answer what step {step_id} asks now", decided.decision))
            }
            _ => None,
        }
    }
}
