//! The face of this crate: what a silo asks of its shards.

use grain_contract::{CommandId, Epoch, GrainId, IndexEntry, Method, Revision, Row, Table, Timestamp, Turn};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

use crate::Error;

/// Number of a shard, from 0. Placement decides which; this crate only counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateBackend {
    Sled,
    Fjall,
    /// Rebuilt from snapshot and log at each start; for tests.
    Memory,
}

#[derive(Clone, Debug)]
pub struct HostOptions {
    /// One process at a time; a second one gets [`Error::FolderInUse`].
    pub data_dir: PathBuf,
    /// Fixed when the folder is made; a folder with another number is refused.
    pub shards: u32,
    pub node_id: u64,
    pub state: StateBackend,
    /// Bytes that the state store may cache.
    pub cache_bytes: u64,
    /// How long written-behind state may lie in memory only. The log is durable all the while.
    pub checkpoint_every: std::time::Duration,
    /// Log bytes since the last snapshot of a shard that lead to the next.
    pub snapshot_log_bytes: u64,
    /// Size of one log segment. 64 MiB; tests take less.
    pub segment_bytes: u64,
    #[doc(hidden)]
    pub stage: crate::testing::Stage,
}

impl HostOptions {
    pub fn new(data_dir: impl Into<PathBuf>, shards: u32) -> Self {
        Self {
            data_dir: data_dir.into(),
            shards,
            node_id: 1,
            state: StateBackend::Sled,
            cache_bytes: 64 << 20,
            checkpoint_every: std::time::Duration::from_millis(500),
            snapshot_log_bytes: 16 << 20,
            segment_bytes: 64 << 20,
            stage: crate::testing::Stage::default(),
        }
    }
}

/// All shards of one process: the shared log, the state store, one Raft group a shard.
///
/// Only Linux file systems are supported. All methods may be called from any task.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<crate::raft::HostInner>,
}

/// Who leads a shard, as this process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leadership {
    /// `Some` while this process leads and has applied everything committed before its leadership: only then may
    /// activations, reminders and the outbox of the shard run here.
    pub epoch: Option<Epoch>,
    pub leader: Option<u64>,
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

impl Host {
    /// Opens or makes the data folder and starts every shard, with this process as the only voter of a new folder.
    ///
    /// # Errors
    /// [`Error::FolderInUse`], [`Error::NewerFormat`], [`Error::WrongFolder`], [`Error::Damaged`] (names file and offset),
    /// [`Error::Storage`].
    pub async fn open(options: HostOptions) -> Result<Self, Error> {
        crate::raft::HostInner::open(options).await.map(|inner| Self { inner: Arc::new(inner) })
    }

    pub fn shards(&self) -> u32 {
        self.inner.shards()
    }

    /// `None` beyond [`Host::shards`].
    pub fn shard(&self, id: ShardId) -> Option<Shard> {
        self.inner.shard(id).map(|inner| Shard { inner })
    }

    /// Takes a checkpoint of everything and closes. Later calls answer [`Error::Closed`].
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }

    /// `Some(why)` once the store has stopped acknowledging (disk full, failed sync).
    pub fn stopped(&self) -> Option<String> {
        self.inner.stopped()
    }

    /// Stores, or shards of a store, that had to be made again from snapshot and log at this open.
    pub fn rebuilds(&self) -> u64 {
        self.inner.rebuilds()
    }

    /// Log entries met since this open that this build could not read; their grains are quarantined.
    pub fn unreadable(&self) -> u64 {
        self.inner.unreadable()
    }
}

/// One shard, as its owner sees it.
#[derive(Clone)]
pub struct Shard {
    pub(crate) inner: Arc<crate::raft::ShardInner>,
}

impl Shard {
    pub fn id(&self) -> ShardId {
        self.inner.id()
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership()
    }

    /// Commits one turn. On return it is on disk on a majority (one voter: on its disk) and applied here.
    ///
    /// # Errors
    /// [`Error::Fenced`]: the epoch or the revision is not the present one; nothing was changed; reload.
    /// [`Error::NotLeader`]: ask elsewhere; nothing was changed. [`Error::Unknown`]: the outcome is not known; reload.
    /// [`Error::TooLarge`], [`Error::Overloaded`], [`Error::Storage`], [`Error::Closed`].
    pub async fn commit(&self, commit: Commit) -> Result<Committed, Error> {
        self.inner.commit(commit).await
    }

    /// Errors as [`Shard::commit`]. One call trims at most 10,000 events; [`Shard::outbox_bounds`] shows what is left.
    pub async fn housekeeping(&self, work: Housekeeping) -> Result<(), Error> {
        self.inner.housekeeping(work).await
    }

    /// Applied state of one grain, as of one moment. A grain that was never committed has revision 0 and no rows.
    ///
    /// # Errors
    /// [`Error::Quarantined`]; [`Error::Damaged`] or [`Error::Storage`] from the store; [`Error::Closed`].
    pub fn grain(&self, id: &GrainId) -> Result<GrainRows, Error> {
        self.inner.grain(id)
    }

    /// Rows of one table behind `after`, in key order, at most `limit`.
    pub fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        self.inner.rows(id, table, after, limit)
    }

    /// The reply stored for a command of this grain.
    pub fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        self.inner.stored_reply(id, command)
    }

    /// Entries of an index for one tenant in key order (`sort`, then grain key), behind `after` if given, at most `limit`.
    pub fn index(
        &self,
        index: &str,
        tenant: &grain_contract::TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error> {
        self.inner.index(index, tenant, after, limit)
    }

    /// The same over all tenants, ordered by tenant first; `after` names the last one seen.
    pub fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error> {
        self.inner.index_all(index, after, limit)
    }

    /// Reminders in the order of their due time, those due at or before `until`, behind `after` if given.
    pub fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error> {
        self.inner.reminders(until, after, limit)
    }

    /// Outbox rows from `from` on, in order, at most `limit`.
    pub fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.inner.outbox(from, limit)
    }

    /// Outbox rows that are calls not answered yet, from `from` on: kept apart, so that no event is read for them.
    pub fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.inner.open_calls(from, limit)
    }

    /// The number that the next outbox row will get, and the lowest that is still kept.
    pub fn outbox_bounds(&self) -> (u64, u64) {
        self.inner.outbox_bounds()
    }

    pub fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        self.inner.cursors()
    }

    /// Told after each apply that added outbox rows: the next number.
    pub fn outbox_watch(&self) -> watch::Receiver<u64> {
        self.inner.outbox_watch()
    }
}
