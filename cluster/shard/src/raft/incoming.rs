//! What other nodes' replicas ask of the ones here.
//!
//! The link knows who sends; a vote or an append in somebody else's name is refused. Nothing that can be sent ends more
//! than its own request: a snapshot is read as a whole and checked before anything here is touched.

use super::host::HostInner;
use super::replica::Replica;
use super::shard::ShardInner;
use super::snapshot::{self, SnapshotFile, Unwanted};
use super::types::{Snapshot, Vote};
use super::wire::{self, SnapshotHead};
use crate::link::{LinkError, NodeId, RaftFrame, RaftKind};
use crate::{Error, ShardId};
use bytes::Bytes;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::OwnedSemaphorePermit;

/// Snapshots that a node takes at once; whoever comes later tries again.
pub const RECEIVE_AT_ONCE_MAX: usize = 4;
/// Bytes that one write of a snapshot may bring.
const CHUNK_BYTES_MAX: usize = 8 << 20;
/// Bytes of a snapshot file that this build believes in.
const FILE_BYTES_MAX: u64 = 1 << 42;

/// Incoming files of one process have different names.
static INCOMING: AtomicU64 = AtomicU64::new(0);

impl HostInner {
    pub async fn raft_request(&self, from: NodeId, frame: RaftFrame) -> Result<Bytes, LinkError> {
        let (_, replica) = self.replica_of(frame.shard)?;
        let raft = &replica.raft;
        match frame.kind {
            RaftKind::Append => {
                let request = wire::read_append(frame.shard.0, &frame.body).map_err(LinkError::Refused)?;
                sent_by(&request.vote, from)?;
                raft.append_entries(request).await.map(|answer| wire::append_answer(&answer)).map_err(stopped)
            }
            RaftKind::Vote => {
                let request = wire::read_vote(&frame.body).map_err(LinkError::Refused)?;
                sent_by(&request.vote, from)?;
                raft.vote(request).await.map(|answer| wire::vote_answer(&answer)).map_err(stopped)
            }
            RaftKind::PreVote => {
                let request = wire::read_vote(&frame.body).map_err(LinkError::Refused)?;
                sent_by(&request.vote, from)?;
                raft.pre_vote(request).await.map(|answer| wire::vote_answer(&answer)).map_err(stopped)
            }
            RaftKind::Transfer => {
                let request = wire::read_transfer(&frame.body).map_err(LinkError::Refused)?;
                sent_by(request.from_leader(), from)?;
                let answer = raft.handle_transfer_leader(request).await;
                answer.map(|answer| wire::transfer_answer(&answer)).map_err(stopped)
            }
        }
    }

    pub async fn receive_snapshot(
        &self,
        from: NodeId,
        shard: ShardId,
        head: Bytes,
    ) -> Result<SnapshotReceiver, LinkError> {
        let (slot, replica) = self.replica_of(shard)?;
        let head = SnapshotHead::read(&head).map_err(LinkError::Refused)?;
        sent_by(&head.vote, from)?;
        if head.file_bytes > FILE_BYTES_MAX {
            let what = format!("Expected a snapshot of at most {FILE_BYTES_MAX} bytes, but found {}", head.file_bytes);
            return Err(LinkError::Refused(what));
        }
        let busy = |_| LinkError::Refused(format!("{RECEIVE_AT_ONCE_MAX} snapshots are coming in already"));
        let place = self.receiving.clone().try_acquire_owned().map_err(busy)?;
        let path = slot.folder.incoming(INCOMING.fetch_add(1, Ordering::Relaxed));
        let file = File::create(&path).map_err(|error| LinkError::Refused(format!("{}: {error}", path.display())))?;
        let unwanted = Arc::new(Unwanted(path));
        Ok(SnapshotReceiver { slot, replica, head, file: Some(file), written: 0, unwanted, _place: place })
    }

    fn replica_of(&self, shard: ShardId) -> Result<(Arc<ShardInner>, Arc<Replica>), LinkError> {
        let refused = |error: Error| LinkError::Refused(error.to_string());
        let slot = self.slot(shard).map_err(refused)?;
        slot.serving().map_err(refused)?;
        let replica = slot.replica().ok_or(Error::NotHosted { shard: shard.0 }).map_err(refused)?;
        Ok((slot.clone(), replica))
    }
}

fn sent_by(vote: &Vote, from: NodeId) -> Result<(), LinkError> {
    let named = vote.leader_id.voted_for;
    if named == from {
        return Ok(());
    }
    Err(LinkError::Refused(format!("Expected a request of node {from}, but found one in the name of {named}")))
}

fn stopped(error: impl std::fmt::Display) -> LinkError {
    LinkError::Refused(error.to_string())
}

/// Takes the bytes of a snapshot file. Dropped before its end it leaves nothing behind.
pub struct SnapshotReceiver {
    slot: Arc<ShardInner>,
    replica: Arc<Replica>,
    head: SnapshotHead,
    /// Away while it is written to.
    file: Option<File>,
    written: u64,
    unwanted: Arc<Unwanted>,
    _place: OwnedSemaphorePermit,
}

impl SnapshotReceiver {
    /// The next bytes of the file, in order; at most 8 MiB at a time.
    ///
    /// # Errors
    /// [`LinkError::Refused`]: more than was announced, or the disk takes no more. The transfer is over then.
    pub async fn write(&mut self, chunk: Bytes) -> Result<(), LinkError> {
        let all = self.written + chunk.len() as u64;
        if chunk.len() > CHUNK_BYTES_MAX || all > self.head.file_bytes {
            let (most, found) = (self.head.file_bytes, chunk.len());
            return Err(LinkError::Refused(format!("Expected a part of {most} bytes in all, but found {found} more")));
        }
        let Some(mut file) = self.file.take() else {
            return Err(LinkError::Refused("a write before has failed".into()));
        };
        let written =
            super::blocking(&self.slot.stage, move || file.write_all(&chunk).map(|()| file).map_err(super::storage))
                .await;
        self.file = Some(written.map_err(|error| LinkError::Refused(error.to_string()))?);
        self.written = all;
        Ok(())
    }

    /// Checks the whole file and gives it to the replica. The answer is for the sender.
    ///
    /// # Errors
    /// [`LinkError::Refused`]: it is not whole, or the replica has ended meanwhile. Nothing was changed.
    pub async fn finish(mut self) -> Result<Bytes, LinkError> {
        let (most, found) = (self.head.file_bytes, self.written);
        if found != most {
            return Err(LinkError::Refused(format!("Expected a snapshot of {most} bytes, but found {found}")));
        }
        let Some(file) = self.file.take() else {
            return Err(LinkError::Refused("a write before has failed".into()));
        };
        let (path, shard) = (self.unwanted.0.clone(), self.slot.id.0);
        let checked = super::blocking(&self.slot.stage, move || {
            file.sync_all().map_err(super::storage)?;
            snapshot::verify(&path, shard)?;
            snapshot::meta(&path, shard)
        });
        let meta = checked.await.map_err(|error| LinkError::Refused(error.to_string()))?;
        let snapshot = SnapshotFile { path: self.unwanted.0.clone(), _incoming: Some(self.unwanted.clone()) };
        let snapshot = Snapshot { meta, snapshot };
        let answer = self.replica.raft.install_full_snapshot(self.head.vote, snapshot).await.map_err(stopped)?;
        Ok(wire::snapshot_answer(&answer.vote))
    }
}
