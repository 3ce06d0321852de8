//! What goes into a shard and what comes out of it.

use crate::link::NodeId;
use grain_contract::{CommandId, Epoch, GrainId, Method, Revision, Row, Timestamp, Turn};

/// Who leads a shard, as this process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leadership {
    /// `Some` while this process leads and has applied everything committed before its leadership: only then may
    /// activations, reminders and the outbox of the shard run here.
    pub epoch: Option<Epoch>,
    pub leader: Option<NodeId>,
}

/// One grain's turn, ready to be committed.
#[derive(Clone, Debug)]
pub struct Commit {
    pub grain: GrainId,
    pub epoch: Epoch,
    /// The revision that the turn was decided on. The commit makes it one more.
    pub expected: Revision,
    pub turn: Turn,
    /// Keep `turn.reply` under this key, for callers that repeat themselves.
    pub command: Option<CommandId>,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub revision: Revision,
    /// Outbox numbers of this turn's messages, in their order; empty if it sent none.
    pub outbox: Vec<u64>,
}

/// What a grain has in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrainRows {
    pub revision: Revision,
    /// Rows of the loaded tables, in key order.
    pub rows: Vec<Row>,
    /// Reminders set, by name, in name order.
    pub reminders: Vec<(String, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReminderRecord {
    pub due: Timestamp,
    pub grain: GrainId,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Rising in the order of the log; given at apply, so a reader that has seen n has seen all below n.
    pub sequence: u64,
    pub grain: GrainId,
    pub at: Timestamp,
    pub item: OutboxItem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxItem {
    Event(Vec<u8>),
    Call { target: GrainId, method: Method, body: Vec<u8>, on_rejected: Option<Method> },
}

/// Named cursor of an event reader in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub name: String,
    pub sequence: u64,
}

/// Upkeep of a shard's outbox: not a grain's turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Housekeeping {
    pub epoch: Epoch,
    pub calls_done: Vec<u64>,
    pub cursors: Vec<Cursor>,
    pub cursors_dropped: Vec<String>,
    pub trim_events_below: Option<u64>,
}
