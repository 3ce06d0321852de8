//! What a turn decides: one value that is committed as a whole, and the effects that follow the commit.

use crate::grain::{Lease, Need};
use crate::ids::{GrainId, QueueName, Timestamp};
use crate::rejection::Rejection;

/// Which call of a grain; each grain kind has its own table of numbers, which only grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Method(pub u16);

/// A table inside a grain. Part of the row's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(pub u8);

impl Table {
    /// Tables below this are read whole when the grain is activated; those from here on (journals) are read by page.
    pub const LOADED_BELOW: u8 = 128;

    pub fn is_loaded(self) -> bool {
        self.0 < Self::LOADED_BELOW
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowKey {
    pub table: Table,
    /// Ordered bytes; at most [`crate::limits::ROW_KEY_BYTES_MAX`].
    pub key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub key: RowKey,
    /// A protobuf message of `granary.storage.v1`, so that it changes only by adding.
    pub value: Vec<u8>,
}

/// A durable wake-up of the grain, by name. Setting a name again moves it; there is never more than one row a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReminderChange {
    Set { name: String, due: Timestamp },
    Clear { name: String },
}

/// An entry in a shard-wide ordered index, for lists. Key = index name, tenant, `sort`, grain key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexChange {
    Put { index: &'static str, sort: Vec<u8>, value: Vec<u8> },
    Delete { index: &'static str, sort: Vec<u8> },
}

/// Value of an entry in the index of open grains: the grain has no work that lives in memory (see `Message::Wake`), so a new
/// owner need not load it. Any other value: it may have.
pub const NOTHING_TO_TELL: &[u8] = &[0];

/// What a scan of an index gives back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    pub grain: GrainId,
    pub sort: Vec<u8>,
    pub value: Vec<u8>,
}

/// A message that is committed with the state and delivered afterwards, at least once, in order per grain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutboxMessage {
    /// To subscribers: `body` is a protobuf message that the reader of the stream knows. Kept for the retention.
    Event { body: Vec<u8> },
    /// To another grain. Removed once answered. If it is refused for good, the sender gets `on_rejected` called with the
    /// rejection (as `granary.calls.v1.CallRejected`, holding this body).
    Call { target: GrainId, method: Method, body: Vec<u8>, on_rejected: Option<Method> },
}

/// Work for a worker. Follows from committed rows, so it can be made again after a loss (see `Message::Wake`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkItem {
    pub queue: QueueName,
    pub attempt: uuid::Uuid,
    /// `Some`: leased in the commit, push it. `None`: let it wait in the queue; a free worker leads to a claim call.
    pub lease: Option<Lease>,
    /// What the worker is sent: `granary.v1.Assignment`, with an empty lease token that the dispatcher fills in.
    pub body: Vec<u8>,
}

/// Happens after the commit, in memory. Lost with the process; each can be told again from rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Offer work.
    Offer(WorkItem),
    /// The attempt is over or unwanted: forget it, and tell the worker that holds it if `interrupt`.
    Withdraw { attempt: uuid::Uuid, interrupt: bool, reason: String },
    /// The attempt is held by this worker since before the owner took over: expect its renewals.
    Expect { attempt: uuid::Uuid, queue: QueueName, lease: Lease, body: Vec<u8> },
    /// Tell the watchers of this grain that it changed.
    Changed,
    /// The grain will have nothing to do for long: free its memory.
    Deactivate,
}

/// One turn's outcome, committed as one log entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    pub puts: Vec<Row>,
    pub deletes: Vec<RowKey>,
    pub reminders: Vec<ReminderChange>,
    pub index: Vec<IndexChange>,
    pub outbox: Vec<OutboxMessage>,
    pub effects: Vec<Effect>,
    /// The answer, a protobuf message that the method names; it leaves the owner after the commit.
    pub reply: Vec<u8>,
}

impl Turn {
    /// True if there is nothing to commit.
    pub fn changes_nothing(&self) -> bool {
        self.puts.is_empty()
            && self.deletes.is_empty()
            && self.reminders.is_empty()
            && self.index.is_empty()
            && self.outbox.is_empty()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Commit, then act, then answer.
    Commit(Turn),
    /// Answer from what is committed already.
    Read(Vec<u8>),
    /// Refuse. Nothing changed.
    Reject(Rejection),
    /// Fetch this first, then ask again.
    Need(Need),
}
