//! The face of this crate: what a silo asks of its shards.

use crate::group::GroupView;
use crate::link::{LinkError, NoLink, NodeId, RaftFrame, RaftLink};
use crate::raft::SnapshotReceiver;
use crate::{Error, Timing};
use bytes::Bytes;
use grain_contract::{CommandId, Epoch, GrainId, IndexEntry, Row, Table, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

pub use crate::records::*;

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

#[derive(Clone)]
pub struct HostOptions {
    /// One process at a time; a second one gets [`Error::FolderInUse`].
    pub data_dir: PathBuf,
    /// Fixed when the folder is made; a folder with another number is refused.
    pub shards: u32,
    /// `None`: drawn at random when the folder is made, and kept there. For tests: the number of a new folder; a folder with
    /// another one is refused.
    pub node_id: Option<NodeId>,
    /// This process is the whole cluster: it founds every shard with itself as the only voter. Fixed when the folder is
    /// made. Otherwise a new folder hosts nothing and belongs to no cluster until it is told.
    pub alone: bool,
    /// How the other replicas are reached.
    pub link: Arc<dyn RaftLink>,
    pub timing: Timing,
    /// Log entries of a shard that are kept behind its snapshot, so that a follower that was away for a moment need not take
    /// the whole snapshot. None are kept for a shard with one replica.
    pub keep_log: u64,
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
            node_id: None,
            alone: true,
            link: Arc::new(NoLink),
            timing: Timing::default(),
            keep_log: 5_000,
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

impl Host {
    /// Opens or makes the data folder and starts the replicas that it hosts: every shard if the node is alone, else those
    /// that it was told to. A shard whose files are damaged beyond what the others of its files can make good is set aside.
    ///
    /// # Errors
    /// [`Error::FolderInUse`], [`Error::NewerFormat`], [`Error::WrongFolder`], [`Error::Damaged`] (names file and offset),
    /// [`Error::Storage`].
    pub async fn open(options: HostOptions) -> Result<Self, Error> {
        crate::raft::HostInner::open(options).await.map(|inner| Self { inner: Arc::new(inner) })
    }

    /// Number of this node in every Raft group: as long as its folder lives.
    pub fn node_id(&self) -> NodeId {
        self.inner.node_id()
    }

    /// The cluster that the folder belongs to. A node that is alone has one from the start.
    pub fn cluster_id(&self) -> Option<Uuid> {
        self.inner.cluster_id()
    }

    /// Makes the folder one of this cluster, durably. Idempotent.
    ///
    /// # Errors
    /// [`Error::WrongFolder`] if it belongs to another one; [`Error::Storage`]; [`Error::Closed`].
    pub async fn adopt(&self, cluster: Uuid) -> Result<(), Error> {
        self.inner.adopt(cluster).await
    }

    /// Starts a replica of the shard, and again at every open from now on. It knows nothing and votes for nobody until the
    /// shard is founded with it or its leader adds it. Idempotent.
    ///
    /// # Errors
    /// [`Error::SetAside`]: what is here is damaged and has to be stopped first. [`Error::Storage`], [`Error::Closed`];
    /// [`Error::NotHosted`] for a number that there is not.
    pub async fn start_replica(&self, shard: ShardId) -> Result<(), Error> {
        self.inner.start_replica(shard).await
    }

    /// Stops the replica and removes everything of it but its vote. Only for a replica that is no voter of its group any
    /// more: the change that removed it must be committed. Idempotent; when the process ends in the middle the next open
    /// finishes it.
    ///
    /// # Errors
    /// [`Error::Storage`], [`Error::Closed`]; [`Error::NotHosted`] for a number that there is not.
    pub async fn stop_replica(&self, shard: ShardId) -> Result<(), Error> {
        self.inner.stop_replica(shard).await
    }

    /// Shards with a replica here, in order.
    pub fn hosted(&self) -> Vec<ShardId> {
        self.inner.hosted()
    }

    /// Shards that should have a replica here and have none, because their files are damaged, and how. They count as not
    /// hosted; [`Host::stop_replica`] wipes what there is.
    pub fn set_aside(&self) -> BTreeMap<ShardId, String> {
        self.inner.set_aside()
    }

    /// Makes the replica here the first of its group, with these voters. A group that exists already is left as it is.
    ///
    /// # Errors
    /// [`Error::NotHosted`], [`Error::Change`] (this node is not among the voters), [`Error::Storage`], [`Error::Closed`].
    pub async fn found(&self, shard: ShardId, voters: BTreeSet<NodeId>) -> Result<(), Error> {
        self.inner.found(shard, voters).await
    }

    /// Takes a request of another node's replica and answers it. `from` is who the link knows it to be.
    ///
    /// # Errors
    /// [`LinkError::Refused`]: no such replica here, or bytes that are no such request.
    pub async fn raft_request(&self, from: NodeId, frame: RaftFrame) -> Result<Bytes, LinkError> {
        self.inner.raft_request(from, frame).await
    }

    /// Begins to take a snapshot that another node sends: `head` is what its [`RaftLink::snapshot`] was given. The content
    /// of the file follows by [`SnapshotReceiver::write`], then [`SnapshotReceiver::finish`].
    ///
    /// # Errors
    /// [`LinkError::Refused`]: no such replica here, too many at once, or a head that is none.
    pub async fn receive_snapshot(
        &self,
        from: NodeId,
        shard: ShardId,
        head: Bytes,
    ) -> Result<SnapshotReceiver, LinkError> {
        self.inner.receive_snapshot(from, shard, head).await
    }

    pub fn shards(&self) -> u32 {
        self.inner.shards()
    }

    /// `None` beyond [`Host::shards`]. A shard without a replica here answers [`Error::NotHosted`] to every read and
    /// [`Error::NotLeader`] to every commit.
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

    /// Replicas that ended by themselves since this open and were started again.
    pub fn restarts(&self) -> u64 {
        self.inner.restarts()
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

    /// Whether there is a replica here.
    pub fn hosted(&self) -> bool {
        self.inner.hosted()
    }

    /// Why there is no replica here although there should be one: see [`Host::set_aside`].
    pub fn aside(&self) -> Option<String> {
        self.inner.aside()
    }

    /// The Raft group as the replica here sees it now; empty without one. Does not wait, but is not for every commit.
    pub fn group(&self) -> GroupView {
        self.inner.group()
    }

    /// The same, told when role, term, leader or members change. Positions in the log are as of that moment.
    pub fn group_watch(&self) -> watch::Receiver<GroupView> {
        self.inner.group_watch()
    }

    /// Adds a node to the group, to whom everything is sent but who does not count. Does not wait until it has caught up:
    /// see [`GroupView::replicas`]. Fine if it is a member already.
    ///
    /// # Errors
    /// [`Error::NotLeader`]; [`Error::Change`]: look at the group and decide again; [`Error::Unknown`] after a time limit.
    pub async fn add_learner(&self, node: NodeId) -> Result<(), Error> {
        self.inner.add_learner(node).await
    }

    /// Makes these the voters, in one joint change; each must be a member already. Nodes that were voters and are no more
    /// are no members afterwards; learners that are not named stay. Repeat it to finish a change that was left in the middle.
    ///
    /// # Errors
    /// As [`Shard::add_learner`].
    pub async fn change_voters(&self, voters: BTreeSet<NodeId>) -> Result<(), Error> {
        self.inner.change_voters(voters).await
    }

    /// Removes a learner.
    ///
    /// # Errors
    /// As [`Shard::add_learner`].
    pub async fn remove_learner(&self, node: NodeId) -> Result<(), Error> {
        self.inner.remove_learner(node).await
    }

    /// Hands the leadership to another voter. Returns when it leads, as far as this node hears.
    ///
    /// # Errors
    /// [`Error::NotLeader`]; [`Error::Change`]: it is no voter, or did not take over within two seconds.
    pub async fn transfer_leadership(&self, to: NodeId) -> Result<(), Error> {
        self.inner.transfer_leadership(to).await
    }

    /// Says whether this process still leads in this epoch, as far as the lease given by a majority of the voters tells:
    /// to be asked before the answer of a read leaves. A process that was frozen for longer than its lease fails here.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Fenced`] (another epoch), [`Error::Closed`].
    pub async fn confirm(&self, epoch: Epoch) -> Result<(), Error> {
        self.inner.confirm(epoch).await
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
