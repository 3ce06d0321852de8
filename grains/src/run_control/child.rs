//! Child runs: started and cancelled by calls through the outbox, ended by the child's own call.
//!
//! The outbox delivers at least once and forgets nothing, so a start that is refused for good comes back and is the end of
//! the step, and a cancel that arrives before the start is remembered by the child (FR-052).

use super::outcome::ToldBy;
use super::state::{Ask, CHILD_OPEN, Child, Step};
use super::{AttemptEnd, Authority, Record, RunState};
use crate::engine::{OutcomeKind, StartChild};
use crate::kinds::methods::run::{CALL_REJECTED, CANCEL_CHILD, CHILD_ENDED, KIND, SUBMIT};
use grain_contract::{GrainId, GrainKind, OutboxMessage, TenantId};
use granary_proto::v1::{self, Failure};
use granary_proto::{calls, wire};
use prost::Message as _;
use std::collections::BTreeMap;
use uuid::Uuid;

impl Authority {
    pub fn record_start_child(&mut self, record: &mut Record, step_id: String, start: StartChild) {
        let child = start.child_run_id;
        if self.is_over() || self.asked.contains_key(&child) {
            return;
        }
        let number = self.steps.get(&start.step_run_id).map_or(1, |step| step.number + 1);
        self.close_open_ask(record, start.step_run_id, crate::engine::Closing::Cancelled);
        let step = Step {
            step_run_id: start.step_run_id,
            step_id,
            kind: "SubWorkflow".into(),
            action_class: String::new(),
            queue: String::new(),
            name: start.definition_id.clone(),
            input: Vec::new(),
            run_input: false,
            timeout_ms: 0,
            idempotency_key: String::new(),
            number,
            ask: Ask::Child(Child { run_id: child, state: CHILD_OPEN.into() }),
            earlier: BTreeMap::new(),
        };
        self.put_step(record, step);
        let submit = calls::Submit {
            request: Some(v1::SubmitRunRequest {
                definition_id: start.definition_id,
                version: start.version.unwrap_or_default(),
                project_id: start.project_id,
                input: Some(wire::Json::new(start.input)),
                run_id: child.to_string(),
                ..v1::SubmitRunRequest::default()
            }),
            // The child asks for the release that its definition names now, and pins it.
            release_id: String::new(),
            parent_run_id: self.run_id.to_string(),
            parent_step_run_id: start.step_run_id.to_string(),
            depth: start.depth,
            by: format!("run {}", self.run_id),
        };
        record.calls.push(self.call(child, SUBMIT, submit.encode_to_vec()));
    }

    pub fn record_cancel_child(&mut self, record: &mut Record, child: Uuid, reason: &str) {
        let cancel = calls::CancelChild {
            child_run_id: child.to_string(),
            parent_run_id: self.run_id.to_string(),
            reason: reason.to_owned(),
        };
        record.calls.push(self.call(child, CANCEL_CHILD, cancel.encode_to_vec()));
        if let Some((step_run, number)) = self.asked.get(&child).copied() {
            self.change(step_run, number, |ask| {
                if let Ask::Child(child) = ask
                    && child.state == CHILD_OPEN
                {
                    child.state = "Cancelled".into();
                }
            });
        }
    }

    /// `None`: nothing to do. The end was told before, the step did not wait for it, or this run is over itself: an answer
    /// that the caller can stop at, since it would repeat a refusal for ever (FR-117, FR-144).
    pub fn check_child_ended(
        &self,
        child: Uuid,
        state: &str,
        output: Vec<u8>,
        failure: Option<Failure>,
    ) -> Option<AttemptEnd> {
        let (step, number, Ask::Child(known)) = self.find(child)? else { return None };
        if self.is_over() || known.state != CHILD_OPEN || step.number != number {
            return None;
        }
        let (outcome, failure) = match RunState::parse(state) {
            Some(RunState::Completed) => (OutcomeKind::Succeeded, None),
            Some(RunState::Cancelled) => (OutcomeKind::Cancelled, failure.or_else(|| cancelled(child))),
            _ => (OutcomeKind::Failed, failure.or_else(|| unexplained(child))),
        };
        Some(AttemptEnd {
            step_run_id: step.step_run_id,
            number,
            id: child,
            outcome,
            output,
            failure,
            told_by: ToldBy::Child { state: state.to_owned() },
        })
    }

    /// A child run tells its parent how it ended; nothing if the run has no parent.
    pub(super) fn tell_parent(
        &mut self,
        record: &mut Record,
        state: RunState,
        output: Vec<u8>,
        failure: Option<Failure>,
    ) {
        let Some((parent, step_run)) = self.run.as_ref().and_then(|run| run.parent_run_id.zip(run.parent_step_run_id))
        else {
            return;
        };
        let ended = calls::ChildEnded {
            child_run_id: self.run_id.to_string(),
            step_run_id: step_run.to_string(),
            state: state.as_str().into(),
            output: (!output.is_empty()).then(|| wire::Json::new(output)),
            failure,
        };
        record.calls.push(self.call(parent, CHILD_ENDED, ended.encode_to_vec()));
    }

    fn call(&self, run: Uuid, method: grain_contract::Method, body: Vec<u8>) -> OutboxMessage {
        let target = GrainId::new(&TenantId::new(&self.tenant), &GrainKind::new(KIND), &run.to_string());
        // Only a refused start matters to the sender.
        let on_rejected = (method == SUBMIT).then_some(CALL_REJECTED);
        OutboxMessage::Call { target, method, body, on_rejected }
    }
}

fn cancelled(child: Uuid) -> Option<Failure> {
    Some(Failure { class: "cancelled".into(), message: format!("Child run {child} was cancelled.") })
}

fn unexplained(child: Uuid) -> Option<Failure> {
    Some(Failure { class: "infrastructure".into(), message: format!("Child run {child} failed without a reason.") })
}
