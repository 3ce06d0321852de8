//! A lease ran out without renewal, or the worker said that it never got the attempt.
//!
//! In the first case nobody knows what happened: the attempt ends Uncertain, and the engine decides (class `read`: a new
//! attempt). In the second case nothing can have happened: the same attempt is offered again, under a new token.

use super::outcome::ToldBy;
use super::state::{Ask, AttemptState};
use super::{AttemptEnd, Authority, Record};
use crate::engine::{Input, OutcomeKind};
use grain_contract::Offers;
use granary_proto::v1::Failure;
use uuid::Uuid;

#[derive(Debug, PartialEq)]
pub enum Expiry {
    /// The attempt ended meanwhile, was never here, or is another worker's now: nothing to do.
    Moot,
    Uncertain(AttemptEnd),
    NeverStarted,
}

impl Authority {
    /// Whether a word about the end of a lease is about the one in force. It is delivered at least once, and between two
    /// deliveries the same worker may have been given the same attempt again, under another token. Empty: any.
    pub fn is_lease_of(&self, attempt: Uuid, token: &[u8]) -> bool {
        match self.find(attempt) {
            Some((_, _, Ask::Attempt(found))) => {
                token.is_empty() || found.lease.as_ref().is_some_and(|lease| lease.token == token)
            }
            _ => true,
        }
    }

    pub fn check_lease_expired(&self, attempt: Uuid, worker: &str, never_started: bool) -> Expiry {
        let Some((step, number, Ask::Attempt(found))) = self.find(attempt) else { return Expiry::Moot };
        // A late word about a former holder must not take the attempt away from the present one.
        let holds = found.state == AttemptState::Claimed && found.lease.as_ref().is_some_and(|l| l.worker == worker);
        if !holds || step.number != number {
            return Expiry::Moot;
        }
        if never_started {
            return Expiry::NeverStarted;
        }
        let message = format!("The lease of worker {worker} expired; whether the attempt had effects is not known.");
        Expiry::Uncertain(AttemptEnd {
            step_run_id: step.step_run_id,
            number,
            id: attempt,
            outcome: OutcomeKind::Uncertain,
            output: Vec::new(),
            failure: Some(Failure { class: "uncertain".into(), message }),
            told_by: ToldBy::Lease { name: worker.to_owned() },
        })
    }

    /// Offers the attempt again, with the token of another lease or of none.
    pub fn record_never_started(
        &mut self,
        record: &mut Record,
        attempt: Uuid,
        offers: &mut dyn Offers,
        run_input: &[u8],
    ) {
        let Some((step_run, number)) = self.asked.get(&attempt).copied() else { return };
        let mut held_by = String::new();
        self.change(step_run, number, |ask| {
            if let Ask::Attempt(found) = ask {
                found.state = AttemptState::Queued;
                held_by = found.lease.take().map(|lease| lease.worker).unwrap_or_default();
            }
        });
        record.taken.push(Input::AttemptRequeued { step_run_id: step_run, attempt: number });
        self.journal_lease(record, "AttemptRequeued", (step_run, attempt, number), held_by);
        self.offer_new(record, step_run, offers, run_input);
    }
}
