//! The engine says that a step is ready: an attempt is made and offered, or a human is asked.
//!
//! Deduplicated on step run and attempt: what was asked before is not asked again, however often the engine says so.

use super::decide::words_for;
use super::state::{Approval, Ask, Attempt, AttemptState, PENDING, Step};
use super::{Authority, Record};
use crate::engine::ids::{approval_id, attempt_id};
use crate::engine::{Closing, Input, StepReadyOrder};
use crate::kinds::methods::index::PENDING_APPROVALS;
use grain_contract::{IndexChange, Offers, Timestamp};
use granary_proto::v1::{self, JournalEntry};
use granary_proto::wire;
use std::collections::BTreeMap;
use uuid::Uuid;

impl Authority {
    pub fn record_step_ready(
        &mut self,
        record: &mut Record,
        order: StepReadyOrder,
        offers: &mut dyn Offers,
        run_input: &[u8],
    ) {
        if self.is_over() || self.steps.get(&order.step_run_id).is_some_and(|step| step.number >= order.attempt) {
            return;
        }
        // The engine closes what it replaces; should it ever not, nobody may go on working on the old ask.
        self.close_open_ask(record, order.step_run_id, Closing::Cancelled);
        if order.queue.is_empty() {
            self.ask_human(record, order);
        } else {
            self.make_attempt(record, order, offers, run_input);
        }
    }

    fn make_attempt(&mut self, record: &mut Record, order: StepReadyOrder, offers: &mut dyn Offers, run_input: &[u8]) {
        let (step_run, number) = (order.step_run_id, order.attempt);
        let id = attempt_id(step_run, number);
        let attempt = Attempt {
            id,
            state: AttemptState::Queued,
            created: record.now,
            ended: None,
            lease: None,
            outcome_hash: None,
        };
        let run_input_taken = !run_input.is_empty() && order.input == run_input;
        let entry = JournalEntry {
            r#type: "AttemptCreated".into(),
            step_id: order.step_id.clone(),
            step_run_id: step_run.to_string(),
            attempt_id: id.to_string(),
            attempt: number,
            text: order.queue.clone(),
            ..JournalEntry::default()
        };
        let input = if run_input_taken { Vec::new() } else { order.input };
        let step = Step {
            step_run_id: step_run,
            step_id: order.step_id,
            kind: order.kind,
            action_class: order.action_class,
            queue: order.queue,
            name: order.step_name,
            input,
            run_input: run_input_taken,
            timeout_ms: order.timeout_ms,
            idempotency_key: order.idempotency_key,
            number,
            ask: Ask::Attempt(attempt),
            earlier: BTreeMap::new(),
        };
        self.put_step(record, step);
        self.journal(record, entry);
        record.taken.push(Input::StepTaken { step_run_id: step_run, attempt_id: Some(id), approval_id: None });
        self.offer_new(record, step_run, offers, run_input);
    }

    fn ask_human(&mut self, record: &mut Record, order: StepReadyOrder) {
        let (step_run, number) = (order.step_run_id, order.attempt);
        let id = approval_id(step_run, number);
        let definition_id = self.run.as_ref().map_or_else(String::new, |run| run.definition_id.clone());
        let kind = if order.ask.is_empty() { "approval".to_owned() } else { order.ask };
        let view = v1::Approval {
            approval_id: id.to_string(),
            run_id: self.run_id.to_string(),
            step_run_id: step_run.to_string(),
            step_id: order.step_id.clone(),
            options: words_for(&kind),
            kind,
            state: PENDING.into(),
            // Each ask of a step is a proposal of its own; who looked at an older one has not seen this one.
            proposal_version: number,
            proposal: (!order.input.is_empty()).then(|| wire::Json::new(order.input)),
            reason: order.reason,
            requested_at: Some(wire::Timestamp::from_millis(record.now.0)),
            definition_id,
            ..v1::Approval::default()
        };
        let entry = JournalEntry {
            r#type: "ApprovalRequested".into(),
            step_id: order.step_id.clone(),
            step_run_id: step_run.to_string(),
            attempt: number,
            approval_id: id.to_string(),
            proposal_version: number,
            text: view.kind.clone(),
            ..JournalEntry::default()
        };
        let step = Step {
            step_run_id: step_run,
            step_id: order.step_id,
            kind: order.kind,
            action_class: order.action_class,
            queue: String::new(),
            name: order.step_name,
            input: Vec::new(),
            run_input: false,
            timeout_ms: order.timeout_ms,
            idempotency_key: order.idempotency_key,
            number,
            ask: Ask::Approval(Box::new(Approval { id, view, decision_hash: None })),
            earlier: BTreeMap::new(),
        };
        self.put_step(record, step);
        self.pending_approvals += 1;
        self.journal(record, entry);
        record.index.push(IndexChange::Put {
            index: PENDING_APPROVALS,
            sort: approval_sort(record.now, id),
            value: id.to_string().into_bytes(),
        });
        record.taken.push(Input::StepTaken { step_run_id: step_run, attempt_id: None, approval_id: Some(id) });
    }

    /// Puts the newest ask of a step run; an older one steps back into its history, where late answers find it.
    pub(super) fn put_step(&mut self, record: &mut Record, mut step: Step) {
        let step_run = step.step_run_id;
        match self.steps.remove(&step_run) {
            Some(former) => {
                debug_assert!(!former.ask.is_open(), "a step run has one open ask at a time");
                self.changed.earlier.push((step_run, former.number));
                step.earlier = former.earlier;
                step.earlier.insert(former.number, former.ask);
            }
            None => {
                let entry = JournalEntry {
                    r#type: "StepCreated".into(),
                    step_id: step.step_id.clone(),
                    step_run_id: step_run.to_string(),
                    text: step.kind.clone(),
                    ..JournalEntry::default()
                };
                self.journal(record, entry);
            }
        }
        self.asked.insert(step.ask.id(), (step_run, step.number));
        self.open.insert(step_run);
        self.open_attempts += usize::from(step.ask.is_open_attempt());
        self.steps.insert(step_run, step);
        self.touch(step_run);
    }
}

/// Place of an approval in the index: by the time of the request.
pub(super) fn approval_sort(requested: Timestamp, id: Uuid) -> Vec<u8> {
    let mut sort = u64::try_from(requested.0).unwrap_or(0).to_be_bytes().to_vec();
    sort.extend_from_slice(id.as_bytes());
    sort
}
