//! The end of an attempt or of a child run, whoever tells it: one fact for the engine, one entry in the journal.

use super::state::{Ask, AttemptState};
use super::{Authority, Record};
use crate::engine::{Input, Outcome, OutcomeKind};
use grain_contract::Effect;
use granary_proto::v1::{Failure, JournalEntry};
use granary_proto::wire::Json;
use uuid::Uuid;

/// An end that was checked and waits to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnd {
    pub(super) step_run_id: Uuid,
    pub(super) number: u32,
    /// Attempt id, or the child's run id.
    pub(super) id: Uuid,
    pub(super) outcome: OutcomeKind,
    pub(super) output: Vec<u8>,
    pub(super) failure: Option<Failure>,
    pub(super) told_by: ToldBy,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToldBy {
    /// The worker; with the digest of its report.
    Worker { name: String, hash: [u8; 32] },
    /// The lease ran out: the worker may still be at it and must be stopped.
    Lease { name: String },
    /// The child run; with its own word for its end.
    Child { state: String },
}

impl AttemptEnd {
    /// The fact for the engine.
    pub fn fact(&self, sequence: u64) -> Input {
        Input::AttemptOutcomeRecorded {
            sequence,
            outcome: Outcome {
                step_run_id: self.step_run_id,
                // For a child run its own id: it names the attempt better than any number.
                attempt_id: Some(self.id),
                attempt: self.number,
                kind: self.outcome,
                output: self.output.clone(),
                output_ref: String::new(),
                failure: self.failure.clone(),
            },
        }
    }
}

impl Authority {
    /// Number that the next fact will have.
    pub fn next_sequence(&self) -> u64 {
        self.counters.next_sequence
    }

    pub fn record_end(&mut self, record: &mut Record, end: AttemptEnd) {
        let sequence = self.take_sequence();
        let now = record.now;
        let mut entry = JournalEntry {
            r#type: "AttemptOutcomeRecorded".into(),
            sequence,
            step_id: self.step_id(end.step_run_id),
            step_run_id: end.step_run_id.to_string(),
            attempt_id: end.id.to_string(),
            attempt: end.number,
            outcome: outcome_word(end.outcome).into(),
            data: (!end.output.is_empty()).then(|| Json::new(end.output)),
            failure: end.failure,
            ..JournalEntry::default()
        };
        let (hash, child_state) = match end.told_by {
            ToldBy::Worker { name, hash } => {
                // The worker's session may be at another node than this run's owner, which watches over the lease.
                let reason = "the worker has reported".to_owned();
                record.effects.push(Effect::Withdraw { attempt: end.id, interrupt: false, reason });
                entry.by = name;
                (Some(hash), String::new())
            }
            ToldBy::Lease { name } => {
                let reason = "the lease expired".to_owned();
                record.effects.push(Effect::Withdraw { attempt: end.id, interrupt: true, reason });
                entry.text = format!("The lease of worker {name} expired.");
                (None, String::new())
            }
            ToldBy::Child { state } => {
                entry.r#type = "ChildRunEnded".into();
                entry.text.clone_from(&state);
                (None, state)
            }
        };
        self.change(end.step_run_id, end.number, |ask| match ask {
            Ask::Attempt(attempt) => {
                attempt.state = AttemptState::Ended(end.outcome);
                attempt.ended = Some(now);
                attempt.outcome_hash = hash;
            }
            Ask::Child(child) => child.state = child_state,
            Ask::Approval(_) => {}
        });
        self.journal(record, entry);
    }

    pub(super) fn step_id(&self, step_run: Uuid) -> String {
        self.steps.get(&step_run).map_or_else(String::new, |step| step.step_id.clone())
    }
}

const OUTCOMES: [(OutcomeKind, &str); 5] = [
    (OutcomeKind::Succeeded, "Succeeded"),
    (OutcomeKind::Failed, "Failed"),
    (OutcomeKind::TimedOut, "TimedOut"),
    (OutcomeKind::Cancelled, "Cancelled"),
    (OutcomeKind::Uncertain, "Uncertain"),
];

/// S3's word.
pub fn outcome_word(kind: OutcomeKind) -> &'static str {
    OUTCOMES.iter().find(|(known, _)| *known == kind).map_or("", |(_, word)| word)
}

pub fn outcome_of(word: &str) -> Option<OutcomeKind> {
    OUTCOMES.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
}
