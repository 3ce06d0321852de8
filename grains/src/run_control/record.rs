//! What the authority recorded in one turn, and what shall follow from it.

use super::Authority;
use crate::engine::Input;
use grain_contract::{Effect, IndexChange, OutboxMessage, Timestamp};
use granary_proto::v1::JournalEntry;
use granary_proto::wire;
use uuid::Uuid;

/// One turn's record. Everything in it follows the commit, in order.
#[derive(Debug)]
pub struct Record {
    pub now: Timestamp,
    /// Numbered without a gap; one row.
    pub entries: Vec<JournalEntry>,
    pub effects: Vec<Effect>,
    pub index: Vec<IndexChange>,
    pub calls: Vec<OutboxMessage>,
    /// For the engine, in the order of the journal: which attempt or approval was made for a step run, and who is at it
    /// ([`Input::StepTaken`], [`Input::AttemptClaimed`], [`Input::AttemptRequeued`]).
    pub taken: Vec<Input>,
}

impl Record {
    pub fn new(now: Timestamp) -> Self {
        Self { now, entries: Vec::new(), effects: Vec::new(), index: Vec::new(), calls: Vec::new(), taken: Vec::new() }
    }

    /// Forgets the offer of an attempt that the same turn withdraws: nobody shall work on what is over. True if there was
    /// one. A lease that was taken for it goes back to the worker's free places when its assignment never comes.
    pub(super) fn unoffer(&mut self, attempt: Uuid) -> bool {
        let before = self.effects.len();
        self.effects
            .retain(|effect| !matches!(effect, Effect::Offer(item) if item.attempt == attempt && item.lease.is_none()));
        self.effects.len() != before
    }
}

impl Authority {
    /// Writes the next journal entry; number and time are filled in here.
    pub(super) fn journal(&mut self, record: &mut Record, entry: JournalEntry) {
        let number = self.counters.next_journal;
        self.counters.next_journal += 1;
        self.changed.counters = true;
        record.entries.push(JournalEntry { number, at: Some(wire::Timestamp::from_millis(record.now.0)), ..entry });
    }
}
