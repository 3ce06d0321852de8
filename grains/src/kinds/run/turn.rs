//! A turn while it is made: what both machines said so far, and how it becomes one commit.

use super::{EngineSlot, RunGrain};
use crate::run_control::Record;
use grain_contract::{Decision, Effect, OutboxMessage, Timestamp, Turn};
use granary_proto::v1;
use prost::Message as _;

/// What has been decided in this turn.
pub(super) struct Draft {
    pub record: Record,
    pub events: Vec<v1::Event>,
    pub fired: Fired,
}

/// The reminder whose firing is being handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fired {
    None,
    Wake,
    Stuck,
    /// One that this build does not know; it is cleared.
    Unknown,
}

impl Draft {
    pub fn new(now: Timestamp) -> Self {
        Self { record: Record::new(now), events: Vec::new(), fired: Fired::None }
    }

    /// True if nothing was decided yet.
    pub fn is_empty(&self) -> bool {
        self.record.entries.is_empty() && self.events.is_empty() && self.record.effects.is_empty()
    }
}

impl RunGrain {
    /// Puts everything into one turn. `reply` answers the call.
    pub(super) fn finish(&mut self, mut draft: Draft, reply: Vec<u8>) -> Decision {
        let reminders = self.reminders(&draft);
        let mut turn = Turn { reminders, reply, ..Turn::default() };
        if let EngineSlot::Loaded(projection) = &mut self.engine {
            let changes = projection.take_changes();
            turn.puts = changes.puts;
            turn.deletes = changes.deletes;
        }
        turn.puts.extend(self.authority.take_changes(&mut draft.record));
        self.authority.note_work(&mut draft.record);
        turn.index = draft.record.index;
        if !draft.events.is_empty() {
            // All events of a turn are one row: they were decided together and are read together.
            let batch = v1::EventBatch { events: draft.events };
            turn.outbox.push(OutboxMessage::Event { body: batch.encode_to_vec() });
        }
        turn.outbox.extend(draft.record.calls);
        turn.effects = draft.record.effects;
        if turn.changes_nothing() && turn.effects.is_empty() {
            return Decision::Read(turn.reply);
        }
        if !turn.changes_nothing() {
            turn.effects.push(Effect::Changed);
            if self.is_over() {
                turn.effects.push(Effect::Deactivate);
            }
        }
        Decision::Commit(turn)
    }

    pub(super) fn is_over(&self) -> bool {
        match &self.engine {
            EngineSlot::Loaded(projection) => projection.is_terminal(),
            EngineSlot::Rows(_) => self.authority.is_over(),
        }
    }
}
