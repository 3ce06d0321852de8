//! The payload of a log entry: written here on the owner, read in `machine` on every replica.

use crate::Error;
use crate::api::{Commit, Housekeeping};
use crate::raft::types::Proposal;
use bytes::Bytes;
use grain_contract::limits::ENTRY_BYTES_MAX;
use grain_contract::{IndexChange, OutboxMessage, ReminderChange};
use granary_proto::storage::{
    CursorPut, Entry, HousekeepingEntry, IndexPut, OutboxPut, ReminderPut, RowDelete, RowPut, TurnEntry, entry::Body,
};
use prost::Message;

/// The newest format of an entry that this build writes and reads.
pub const FORMAT: u32 = 1;

pub fn turn(commit: Commit) -> Result<Proposal, Error> {
    let turn = commit.turn;
    let (command_id, reply) = match commit.command {
        Some(command) => (command.as_str().as_bytes().to_vec(), turn.reply),
        None => (Vec::new(), Vec::new()),
    };
    let entry = TurnEntry {
        grain: commit.grain.storage_bytes(),
        epoch: commit.epoch.0,
        expected_revision: commit.expected.0,
        puts: turn
            .puts
            .into_iter()
            .map(|row| RowPut { table: row.key.table.0.into(), key: row.key.key, value: row.value })
            .collect(),
        deletes: turn.deletes.into_iter().map(|key| RowDelete { table: key.table.0.into(), key: key.key }).collect(),
        reminders: turn.reminders.into_iter().map(reminder).collect(),
        index: turn.index.into_iter().map(index).collect(),
        outbox: turn.outbox.into_iter().map(outbox).collect(),
        command_id,
        reply,
        at_ms: commit.at.0,
    };
    encode(Body::Turn(entry))
}

pub fn housekeeping(work: Housekeeping) -> Result<Proposal, Error> {
    let moved = work.cursors.into_iter().map(|c| CursorPut { name: c.name, sequence: c.sequence, delete: false });
    let dropped = work.cursors_dropped.into_iter().map(|name| CursorPut { name, sequence: 0, delete: true });
    encode(Body::Housekeeping(HousekeepingEntry {
        epoch: work.epoch.0,
        calls_done: work.calls_done,
        cursors: moved.chain(dropped).collect(),
        trim_events_below: work.trim_events_below.unwrap_or(0),
    }))
}

fn encode(body: Body) -> Result<Proposal, Error> {
    let entry = Entry { format: FORMAT, body: Some(body) };
    let found = entry.encoded_len();
    if found > ENTRY_BYTES_MAX {
        return Err(Error::TooLarge { limit: ENTRY_BYTES_MAX, found });
    }
    Ok(Proposal(Bytes::from(entry.encode_to_vec())))
}

fn reminder(change: ReminderChange) -> ReminderPut {
    match change {
        ReminderChange::Set { name, due } => ReminderPut { name, due_ms: due.0, clear: false },
        ReminderChange::Clear { name } => ReminderPut { name, due_ms: 0, clear: true },
    }
}

fn index(change: IndexChange) -> IndexPut {
    match change {
        IndexChange::Put { index, sort, value } => IndexPut { index: index.into(), sort, value, delete: false },
        IndexChange::Delete { index, sort } => IndexPut { index: index.into(), sort, value: vec![], delete: true },
    }
}

fn outbox(message: OutboxMessage) -> OutboxPut {
    match message {
        OutboxMessage::Event { body } => OutboxPut { event: body, ..OutboxPut::default() },
        OutboxMessage::Call { target, method, body, on_rejected } => OutboxPut {
            event: Vec::new(),
            call_target: target.storage_bytes(),
            call_method: method.0.into(),
            call_body: body,
            on_rejected: on_rejected.map_or(0, |method| u32::from(method.0) + 1),
        },
    }
}
