//! One shard's commit path, and its reads.

use super::entry;
use super::machine::Machine;
use super::snapshot::SnapshotFolder;
use super::types::{Applied, Proposal, TypeConfig};
use crate::Error;
use crate::api::*;
use crate::log::Wal;
use crate::state::overlay::Overlay;
use crate::state::{Stop, read};
use crate::testing::{Sabotage, Stage};
use grain_contract::limits::COMMITS_IN_FLIGHT_MAX;
use grain_contract::{CommandId, Epoch, GrainId, IndexEntry, Revision, Row, Table, TenantId, Timestamp};
use openraft::Raft;
use openraft::errors::{ClientWriteError, RaftError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use tokio::sync::{Semaphore, watch};

pub struct ShardInner {
    pub id: ShardId,
    pub raft: Raft<TypeConfig, Machine>,
    pub overlay: Arc<Overlay>,
    pub folder: SnapshotFolder,
    pub leadership: watch::Receiver<Leadership>,
    pub outbox: watch::Receiver<u64>,
    pub in_flight: Semaphore,
    pub wal: Arc<Wal>,
    pub stop: Stop,
    pub closed: Arc<AtomicBool>,
    pub stage: Stage,
}

impl ShardInner {
    pub fn id(&self) -> ShardId {
        self.id
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
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
    fn owned(&self, epoch: Epoch) -> Result<(), Error> {
        self.serving()?;
        self.stop.check()?;
        let now = *self.leadership.borrow();
        match now.epoch {
            None => Err(Error::NotLeader { shard: self.id.0, leader: now.leader }),
            Some(present) if present == epoch || self.stage.is_sabotaged(Sabotage::EpochUnchecked) => Ok(()),
            Some(present) => {
                Err(Error::Fenced { expected: format!("epoch {}", epoch.0), found: format!("epoch {}", present.0) })
            }
        }
    }

    async fn propose(&self, proposal: Proposal) -> Result<Applied, Error> {
        let limit = COMMITS_IN_FLIGHT_MAX;
        let _place = self.in_flight.try_acquire().map_err(|_| Error::Overloaded { shard: self.id.0, limit })?;
        match self.raft.client_write(proposal).await {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                Err(Error::NotLeader { shard: self.id.0, leader: to.leader_id })
            }
            Err(RaftError::Fatal(fatal)) => {
                // The entry may be on disk all the same.
                let why = self.wal.stopped().unwrap_or_else(|| fatal.to_string());
                if !self.closed.load(Acquire) {
                    self.stop.because(why.clone());
                }
                Err(Error::Unknown(why))
            }
            Err(other) => Err(Error::Unknown(other.to_string())),
        }
    }

    fn serving(&self) -> Result<(), Error> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub fn grain(&self, id: &GrainId) -> Result<GrainRows, Error> {
        self.serving()?;
        read::grain(&self.overlay, id)
    }

    pub fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        self.serving()?;
        read::rows(&self.overlay, id, table, after, limit)
    }

    pub fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        self.serving()?;
        read::stored_reply(&self.overlay, id, command)
    }

    pub fn index(
        &self,
        index: &str,
        tenant: &TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error> {
        self.serving()?;
        read::index(&self.overlay, index, Some(tenant), after, limit)
    }

    pub fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error> {
        self.serving()?;
        read::index(&self.overlay, index, None, after, limit)
    }

    pub fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error> {
        self.serving()?;
        read::reminders(&self.overlay, until, after, limit)
    }

    pub fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.serving()?;
        read::outbox(&self.overlay, from, limit)
    }

    pub fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        self.serving()?;
        read::open_calls(&self.overlay, from, limit)
    }

    pub fn outbox_bounds(&self) -> (u64, u64) {
        self.overlay.outbox_bounds()
    }

    pub fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        self.serving()?;
        read::cursors(&self.overlay)
    }

    pub fn outbox_watch(&self) -> watch::Receiver<u64> {
        self.outbox.clone()
    }
}
