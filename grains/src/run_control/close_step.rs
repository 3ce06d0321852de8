//! The engine wants no more of a step run: its open attempt is withdrawn, its pending approval taken back.
//!
//! A step run without an open ask, or one that was never asked for, is no fault: a Join may close what has just ended.

use super::state::{Ask, AttemptState, CHILD_OPEN, PENDING, WITHDRAWN};
use super::step_ready::approval_sort;
use super::{Authority, Record, outcome_word};
use crate::engine::{Closing, OutcomeKind};
use crate::kinds::methods::index::PENDING_APPROVALS;
use grain_contract::{Effect, IndexChange, Timestamp};
use granary_proto::v1::JournalEntry;
use granary_proto::wire;
use uuid::Uuid;

impl Authority {
    pub fn record_close(&mut self, record: &mut Record, step_run: Uuid, closing: Closing) {
        self.close_open_ask(record, step_run, closing);
    }

    pub(super) fn close_open_ask(&mut self, record: &mut Record, step_run: Uuid, closing: Closing) {
        if !self.open.contains(&step_run) {
            return;
        }
        let Some(step) = self.steps.get(&step_run) else { return };
        match &step.ask {
            Ask::Attempt(_) => self.close_attempt(record, step_run, closing),
            Ask::Approval(_) => self.withdraw_approval(record, step_run, closing),
            // The child is told by the engine's own order, or by the end of the run; here it only stops to count as open.
            Ask::Child(_) => self.close_child(step_run),
        }
    }

    fn close_attempt(&mut self, record: &mut Record, step_run: Uuid, closing: Closing) {
        let Some(step) = self.steps.get(&step_run) else { return };
        let (number, id, step_id) = (step.number, step.ask.id(), step.step_id.clone());
        let (outcome, reason) = match closing {
            Closing::TimedOut => (OutcomeKind::TimedOut, "the attempt's time is over"),
            Closing::Cancelled => (OutcomeKind::Cancelled, "the step is not wanted any more"),
        };
        let now = record.now;
        self.change(step_run, number, |ask| {
            if let Ask::Attempt(attempt) = ask {
                attempt.state = AttemptState::Ended(outcome);
                attempt.ended = Some(now);
            }
        });
        // Not a fact: the engine said it itself. So it has no sequence.
        let entry = JournalEntry {
            r#type: "AttemptOutcomeRecorded".into(),
            step_id,
            step_run_id: step_run.to_string(),
            attempt_id: id.to_string(),
            attempt: number,
            outcome: outcome_word(outcome).into(),
            by: "engine".into(),
            text: reason.into(),
            ..JournalEntry::default()
        };
        self.journal(record, entry);
        if !record.unoffer(id) {
            record.effects.push(Effect::Withdraw { attempt: id, interrupt: true, reason: reason.into() });
        }
    }

    fn withdraw_approval(&mut self, record: &mut Record, step_run: Uuid, closing: Closing) {
        let Some(step) = self.steps.get(&step_run) else { return };
        let (number, id, step_id) = (step.number, step.ask.id(), step.step_id.clone());
        let reason = match closing {
            Closing::TimedOut => "nobody decided in time",
            Closing::Cancelled => "the step is not wanted any more",
        };
        let now = record.now;
        let mut requested = now;
        self.change(step_run, number, |ask| {
            if let Ask::Approval(approval) = ask
                && approval.view.state == PENDING
            {
                approval.view.state = WITHDRAWN.into();
                approval.view.decided_at = Some(wire::Timestamp::from_millis(now.0));
                requested = approval.view.requested_at.map_or(now, |at| Timestamp(at.millis()));
            }
        });
        record.index.push(IndexChange::Delete { index: PENDING_APPROVALS, sort: approval_sort(requested, id) });
        let entry = JournalEntry {
            r#type: "ApprovalWithdrawn".into(),
            step_id,
            step_run_id: step_run.to_string(),
            attempt: number,
            approval_id: id.to_string(),
            proposal_version: number,
            by: "engine".into(),
            text: reason.into(),
            ..JournalEntry::default()
        };
        self.journal(record, entry);
    }

    fn close_child(&mut self, step_run: Uuid) {
        let Some(step) = self.steps.get(&step_run) else { return };
        let number = step.number;
        self.change(step_run, number, |ask| {
            if let Ask::Child(child) = ask
                && child.state == CHILD_OPEN
            {
                child.state = "Cancelled".into();
            }
        });
    }
}
