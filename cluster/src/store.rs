//! What the silo asks of a shard, as a trait: the seam at which tests put a shard that fails on command.

use futures::future::BoxFuture;
use grain_contract::{CommandId, Epoch, GrainId, IndexEntry, Row, Table, TenantId, Timestamp};
use shard::NodeId;
use shard::{Commit, Committed, Cursor, Error, GrainRows, Housekeeping, Leadership, OutboxRecord, ReminderRecord};
use tokio::sync::watch;

/// See [`shard::Shard`] for what each method promises.
pub(crate) trait Store: Send + Sync {
    fn leadership(&self) -> watch::Receiver<Leadership>;
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Committed, Error>>;
    fn housekeeping(&self, work: Housekeeping) -> BoxFuture<'_, Result<(), Error>>;
    fn grain(&self, id: &GrainId) -> Result<GrainRows, Error>;
    fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error>;
    fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error>;
    fn index(
        &self,
        index: &str,
        tenant: &TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error>;
    fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error>;
    fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error>;
    fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error>;
    fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error>;
    fn outbox_bounds(&self) -> (u64, u64);
    fn cursors(&self) -> Result<Vec<Cursor>, Error>;
    fn outbox_watch(&self) -> watch::Receiver<u64>;
    /// This silo has a replica of the shard.
    fn hosted(&self) -> bool;
    /// Why there is no replica although there should be one: its files are damaged.
    fn aside(&self) -> Option<String>;
    /// Still the owner, in this epoch: what was read before the question is what was committed last.
    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), Error>>;
    /// Who may lead the shard, the most up-to-date first, without this silo; empty unless this silo leads it.
    fn heirs(&self) -> Vec<NodeId>;
    /// Hands the leadership over, within a time limit of the shard's own.
    fn hand_over(&self, to: NodeId) -> BoxFuture<'_, Result<(), Error>>;
    /// `Some(why)` once the store has stopped acknowledging.
    fn stopped(&self) -> Option<String>;
}

/// A shard of a [`shard::Host`].
pub(crate) struct HostedShard {
    pub(crate) host: shard::Host,
    pub(crate) shard: shard::Shard,
}

impl Store for HostedShard {
    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shard.leadership()
    }
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Committed, Error>> {
        Box::pin(self.shard.commit(commit))
    }
    fn housekeeping(&self, work: Housekeeping) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.shard.housekeeping(work))
    }
    fn grain(&self, id: &GrainId) -> Result<GrainRows, Error> {
        self.shard.grain(id)
    }
    fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        self.shard.rows(id, table, after, limit)
    }
    fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        self.shard.stored_reply(id, command)
    }
    fn index(
        &self,
        index: &str,
        tenant: &TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error> {
        self.shard.index(index, tenant, after, limit)
    }
    fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error> {
        self.shard.index_all(index, after, limit)
    }
    fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error> {
        self.shard.reminders(until, after, limit)
    }
    fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.shard.outbox(from, limit)
    }
    fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.shard.open_calls(from, limit)
    }
    fn outbox_bounds(&self) -> (u64, u64) {
        self.shard.outbox_bounds()
    }
    fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        self.shard.cursors()
    }
    fn outbox_watch(&self) -> watch::Receiver<u64> {
        self.shard.outbox_watch()
    }
    fn hosted(&self) -> bool {
        self.shard.hosted()
    }
    fn aside(&self) -> Option<String> {
        self.shard.aside()
    }
    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.shard.confirm(epoch))
    }
    fn heirs(&self) -> Vec<NodeId> {
        let group = self.shard.group();
        let me = self.host.node_id();
        // Only the leader knows how far each of them is.
        let known = |node: &NodeId| Some((group.lag(*node)?, *node));
        let mut heirs: Vec<(u64, NodeId)> = group.voters.iter().filter(|node| **node != me).filter_map(known).collect();
        heirs.sort_unstable();
        heirs.into_iter().map(|(_, node)| node).collect()
    }
    fn hand_over(&self, to: NodeId) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.shard.transfer_leadership(to))
    }
    fn stopped(&self) -> Option<String> {
        self.host.stopped()
    }
}
