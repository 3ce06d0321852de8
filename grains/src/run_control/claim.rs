//! A free worker claims an attempt that waits in a queue. Whoever comes first; the same worker with the same token again has
//! the same answer.

use super::state::{Ask, AttemptState};
use super::{Authority, Record, Verdict};
use crate::engine::Input;
use grain_contract::Lease;
use granary_proto::v1::JournalEntry;
use uuid::Uuid;

impl Authority {
    /// `None`: not wanted any more, or another's: the queue drops it.
    pub fn check_claim(&self, attempt: Uuid, lease: &Lease) -> Option<Verdict<()>> {
        match self.find(attempt) {
            Some((step, number, Ask::Attempt(found))) if step.number == number => match found.state {
                AttemptState::Queued => Some(Verdict::New(())),
                AttemptState::Claimed if found.lease.as_ref() == Some(lease) => Some(Verdict::Repeated),
                AttemptState::Claimed | AttemptState::Ended(_) => None,
            },
            _ => None,
        }
    }

    pub fn record_claim(&mut self, record: &mut Record, attempt: Uuid, lease: Lease) {
        let Some((step_run, number)) = self.asked.get(&attempt).copied() else { return };
        let by = lease.worker.clone();
        self.change(step_run, number, |ask| {
            if let Ask::Attempt(found) = ask {
                found.state = AttemptState::Claimed;
                found.lease = Some(lease);
            }
        });
        record.taken.push(Input::AttemptClaimed { step_run_id: step_run, attempt: number });
        self.journal_lease(record, "AttemptClaimed", (step_run, attempt, number), by);
    }

    /// Where the lease of an attempt went: `by` got it, or gave it back.
    pub(super) fn journal_lease(
        &mut self,
        record: &mut Record,
        what: &str,
        (step_run, attempt, number): (Uuid, Uuid, u32),
        by: String,
    ) {
        let entry = JournalEntry {
            r#type: what.into(),
            step_id: self.step_id(step_run),
            step_run_id: step_run.to_string(),
            attempt_id: attempt.to_string(),
            attempt: number,
            by,
            ..JournalEntry::default()
        };
        self.journal(record, entry);
    }
}
