//! One shard's commit path, and its reads.

use super::entry;
use super::notices::Notices;
use super::replica::{Parts, Replica};
use super::snapshot::SnapshotFolder;
use super::types::{Applied, Proposal, TypeConfig};
use crate::Error;
use crate::api::*;
use crate::group::GroupView;
use crate::link::NodeId;
use crate::log::Wal;
use crate::state::overlay::{Mark, Overlay};
use crate::state::store::wipe_shard;
use crate::state::{Stop, read};
use crate::testing::{Sabotage, Stage};
use grain_contract::limits::COMMITS_IN_FLIGHT_MAX;
use grain_contract::{CommandId, Epoch, GrainId, IndexEntry, Revision, Row, Table, TenantId, Timestamp};
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::ClientWriteResponse;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>;

pub struct ShardInner {
    pub id: ShardId,
    pub(super) node: NodeId,
    pub overlay: Arc<Overlay>,
    pub folder: SnapshotFolder,
    pub notices: Notices,
    /// Counts snapshots that could not be written.
    pub snapshots: watch::Sender<u64>,
    replica: RwLock<Option<Arc<Replica>>>,
    /// Why there is no replica though there should be one: its files are damaged.
    aside: RwLock<Option<String>>,
    /// Held while a replica is started or stopped.
    pub(super) changing: tokio::sync::Mutex<()>,
    in_flight: Semaphore,
    /// How long a commit waits before it asks whether there is still a majority to wait for. A node that is alone is one.
    pub(super) patience: Option<Duration>,
    pub wal: Arc<Wal>,
    pub stop: Stop,
    closed: Arc<AtomicBool>,
    pub(super) stage: Stage,
}

impl ShardInner {
    pub fn new(
        node: NodeId,
        options: &HostOptions,
        overlay: Arc<Overlay>,
        folder: SnapshotFolder,
        wal: &Arc<Wal>,
        stop: &Stop,
        closed: &Arc<AtomicBool>,
    ) -> Self {
        let notices = Notices::new(overlay.mark().outbox_next);
        Self {
            id: ShardId(overlay.shard),
            node,
            overlay,
            folder,
            notices,
            snapshots: watch::channel(0).0,
            replica: RwLock::default(),
            aside: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            in_flight: Semaphore::new(COMMITS_IN_FLIGHT_MAX),
            patience: (!options.alone).then_some(2 * options.timing.election_max),
            wal: wal.clone(),
            stop: stop.clone(),
            closed: closed.clone(),
            stage: options.stage.clone(),
        }
    }

    pub fn id(&self) -> ShardId {
        self.id
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.notices.leadership.subscribe()
    }

    pub fn group_watch(&self) -> watch::Receiver<GroupView> {
        self.notices.group.subscribe()
    }

    pub fn hosted(&self) -> bool {
        self.replica.read().is_some()
    }

    pub(super) fn replica(&self) -> Option<Arc<Replica>> {
        self.replica.read().clone()
    }

    pub fn aside(&self) -> Option<String> {
        self.aside.read().clone()
    }

    /// Before anything of it was started.
    pub(super) fn set_aside(&self, why: String) {
        *self.aside.write() = Some(why);
    }

    pub(super) fn take(&self) -> Option<Arc<Replica>> {
        self.replica.write().take()
    }

    /// Under `changing`.
    pub(super) async fn start(&self, parts: &Parts) -> Result<(), Error> {
        self.serving()?;
        if let Some(why) = self.aside() {
            return Err(Error::SetAside { shard: self.id.0, why });
        }
        if self.hosted() {
            return Ok(());
        }
        let replica = Replica::start(parts, self).await?;
        *self.replica.write() = Some(replica);
        Ok(())
    }

    /// Starts a replica that has ended by itself again. Tells whether there was one.
    pub(super) async fn mend(&self, parts: &Parts) -> Result<bool, Error> {
        let _changing = self.changing.lock().await;
        self.serving()?;
        self.stop.check()?;
        let Some(replica) = self.replica().filter(|replica| replica.has_ended()) else { return Ok(false) };
        // It stays in its slot until there is another, so that the next look finds it if this one fails.
        replica.end().await;
        let next = Replica::start(parts, self).await?;
        *self.replica.write() = Some(next);
        Ok(true)
    }

    /// Ends the replica and removes what there is of it. Under `changing`, and only when the stamp names it no more.
    pub(super) async fn stop(&self, parts: &Parts) -> Result<(), Error> {
        self.serving()?;
        if let Some(replica) = self.take() {
            replica.end().await;
        }
        self.wal.group(self.id.0).forget().await.map_err(super::storage)?;
        // Nothing is applied any more; whoever reads or writes the rows as a whole has to end first.
        let (hold, _) = self.overlay.hold().await?;
        hold.written().await?;
        let (folder, checkpoints) = (self.folder.clone(), parts.checkpoints.clone());
        super::blocking(&self.stage, move || {
            let shard = hold.overlay().shard;
            checkpoints.keep(vec![(shard, None)])?;
            wipe_shard(&*hold.overlay().store, shard)?;
            folder.remove()?;
            hold.replaced(Mark::origin());
            Ok(())
        })
        .await?;
        *self.aside.write() = None;
        self.notices.outbox.send_replace(Mark::origin().outbox_next);
        Ok(())
    }

    pub async fn commit(&self, commit: Commit) -> Result<Committed, Error> {
        self.owned(commit.epoch)?;
        match self.propose(entry::turn(commit)?).await? {
            Applied::Committed { revision, outbox } => Ok(Committed { revision: Revision(revision), outbox }),
            Applied::Fenced { expected, found } => Err(Error::Fenced { expected, found }),
            Applied::Nothing => Err(Error::Unknown("a turn was applied as something else".into())),
        }
    }

    pub async fn housekeeping(&self, work: Housekeeping) -> Result<(), Error> {
        self.owned(work.epoch)?;
        match self.propose(entry::housekeeping(work)?).await? {
            Applied::Fenced { expected, found } => Err(Error::Fenced { expected, found }),
            Applied::Nothing | Applied::Committed { .. } => Ok(()),
        }
    }

    /// Refuses what apply would fence anyway, before it costs an entry.
    pub(super) fn owned(&self, epoch: Epoch) -> Result<(), Error> {
        self.serving()?;
        self.stop.check()?;
        let now = *self.notices.leadership.borrow();
        match now.epoch {
            None => Err(Error::NotLeader { shard: self.id.0, leader: now.leader }),
            Some(present) if present == epoch || self.stage.is_sabotaged(Sabotage::EpochUnchecked) => Ok(()),
            Some(present) => {
                Err(Error::Fenced { expected: format!("epoch {}", epoch.0), found: format!("epoch {}", present.0) })
            }
        }
    }

    /// A leader that is cut off from the others keeps its name, and an entry that it has taken may wait for ever: whoever
    /// waits is told when no majority answers any more.
    async fn written(&self, replica: &Replica, proposal: Proposal) -> Result<Written, Error> {
        let Some(patience) = self.patience else { return Ok(replica.raft.client_write(proposal).await) };
        let mut write = std::pin::pin!(replica.raft.client_write(proposal));
        loop {
            match tokio::time::timeout(patience, &mut write).await {
                Ok(written) => return Ok(written),
                Err(_) if replica.has_majority(patience) => {}
                Err(_) => return Err(Error::Unknown(format!("no majority answered within {patience:?}"))),
            }
        }
    }

    async fn propose(&self, proposal: Proposal) -> Result<Applied, Error> {
        let limit = COMMITS_IN_FLIGHT_MAX;
        let _place = self.in_flight.try_acquire().map_err(|_| Error::Overloaded { shard: self.id.0, limit })?;
        let Some(replica) = self.replica() else { return Err(Error::NotLeader { shard: self.id.0, leader: None }) };
        match self.written(&replica, proposal).await? {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                Err(Error::NotLeader { shard: self.id.0, leader: to.leader_id })
            }
            Err(RaftError::Fatal(fatal)) => {
                // The entry may be on disk all the same. A replica that has ended by itself is started again, see `mend`;
                // only the disk's no is the whole node's.
                let stopped = self.wal.stopped();
                if let Some(why) = stopped.as_ref().filter(|_| !self.closed.load(Acquire)) {
                    self.stop.because(why.clone());
                }
                Err(Error::Unknown(stopped.unwrap_or_else(|| fatal.to_string())))
            }
            Err(other) => Err(Error::Unknown(other.to_string())),
        }
    }

    pub(super) fn serving(&self) -> Result<(), Error> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Reads need a replica: without one there are no rows, which is not the same as empty ones.
    fn readable(&self) -> Result<(), Error> {
        self.serving()?;
        if self.hosted() { Ok(()) } else { Err(Error::NotHosted { shard: self.id.0 }) }
    }

    pub fn grain(&self, id: &GrainId) -> Result<GrainRows, Error> {
        self.readable()?;
        read::grain(&self.overlay, id)
    }

    pub fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        self.readable()?;
        read::rows(&self.overlay, id, table, after, limit)
    }

    pub fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        self.readable()?;
        read::stored_reply(&self.overlay, id, command)
    }

    pub fn index(
        &self,
        index: &str,
        tenant: &TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error> {
        self.readable()?;
        read::index(&self.overlay, index, Some(tenant), after, limit)
    }

    pub fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error> {
        self.readable()?;
        read::index(&self.overlay, index, None, after, limit)
    }

    pub fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error> {
        self.readable()?;
        read::reminders(&self.overlay, until, after, limit)
    }

    pub fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.readable()?;
        read::outbox(&self.overlay, from, limit)
    }

    pub fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.readable()?;
        read::open_calls(&self.overlay, from, limit)
    }

    pub fn outbox_bounds(&self) -> (u64, u64) {
        self.overlay.outbox_bounds()
    }

    pub fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        self.readable()?;
        read::cursors(&self.overlay)
    }

    pub fn outbox_watch(&self) -> watch::Receiver<u64> {
        self.notices.outbox.subscribe()
    }
}
