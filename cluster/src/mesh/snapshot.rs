//! Snapshots: each over a connection of its own, so that Raft's heartbeats never wait behind one.

use super::hello::{Failed, Met, say};
use super::link::reach;
use super::raft::RaftTarget;
use super::shared::Shared;
use super::wire::raft;
use bytes::{Bytes, BytesMut};
use granary_proto::peers::snapshot_part::Part;
use granary_proto::peers::{SnapshotAnswer, SnapshotBegin, SnapshotPart};
use shard::{LinkError, NodeId, ShardId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// One message of the stream. Bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Read ahead of the connection.
const CHUNKS_AHEAD: usize = 2;
/// Snapshots that are sent and received at once; further ones wait, or are told to come later.
const SENDING_MAX: usize = 4;
const RECEIVING_MAX: usize = 8;
/// A sender that says nothing for this long has gone.
const STALL_MAX: Duration = Duration::from_secs(30);

pub(super) struct Snapshots {
    sending: Semaphore,
    receiving: Semaphore,
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            sending: Semaphore::new(SENDING_MAX),
            receiving: Semaphore::new(RECEIVING_MAX),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }
}

pub(super) struct Outgoing {
    pub to: NodeId,
    pub shard: ShardId,
    pub head: Bytes,
    pub file: PathBuf,
}

impl Snapshots {
    pub(super) async fn send(&self, shared: &Arc<Shared>, out: Outgoing) -> Result<Bytes, LinkError> {
        let _permit = self.sending.acquire().await.map_err(|_| unreachable("the mesh has ended"))?;
        let Some(identity) = shared.roster.identity(out.to) else {
            return Err(unreachable("the node is not known here"));
        };
        let (channel, remote) = reach(shared, &identity.peer_address).await.map_err(link_error)?;
        match say(shared, channel.clone(), &remote).await.map_err(link_error)? {
            Met::Peer { node, .. } if node == out.to => {}
            _ => return Err(unreachable("another node is at its address")),
        }
        let (parts, sent) = mpsc::channel(CHUNKS_AHEAD);
        let mut client = raft(channel);
        let (read_through, answered) = tokio::join!(read(out, parts), client.snapshot(ReceiverStream::new(sent)));
        match (answered, read_through) {
            (Ok(answer), Ok(())) => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                Ok(answer.into_inner().body)
            }
            (_, Err(error)) => Err(LinkError::Unreachable(format!("the snapshot file cannot be read: {error}"))),
            (Err(status), _) => Err(from_status(&status)),
        }
    }

    pub(super) async fn receive(
        &self,
        target: &dyn RaftTarget,
        from: NodeId,
        mut parts: Streaming<SnapshotPart>,
    ) -> Result<SnapshotAnswer, Status> {
        let Ok(_permit) = self.receiving.try_acquire() else {
            return Err(Status::unavailable("Expected a free place for a snapshot, but there is none"));
        };
        let Some(Part::Begin(SnapshotBegin { shard, head })) = next(&mut parts).await? else {
            return Err(Status::invalid_argument("Expected the head of a snapshot first, but it was not"));
        };
        let mut receiver = target.receive(from, ShardId(shard), head).await.map_err(to_status)?;
        let mut bytes = 0;
        loop {
            match next(&mut parts).await? {
                Some(Part::Chunk(chunk)) => {
                    bytes += chunk.len() as u64;
                    receiver.write(chunk).await.map_err(to_status)?;
                }
                Some(Part::End(all)) if all == bytes => break,
                _ => return Err(Status::aborted("Expected the whole snapshot, but its end is missing")),
            }
        }
        let body = receiver.finish().await.map_err(to_status)?;
        self.received.fetch_add(1, Ordering::Relaxed);
        Ok(SnapshotAnswer { body })
    }
}

async fn next(parts: &mut Streaming<SnapshotPart>) -> Result<Option<Part>, Status> {
    match tokio::time::timeout(STALL_MAX, parts.message()).await {
        Ok(Ok(Some(SnapshotPart { part: Some(part) }))) => Ok(Some(part)),
        Ok(Ok(Some(SnapshotPart { part: None }))) => Err(Status::invalid_argument("Expected a part, but it is empty")),
        Ok(Ok(None)) => Ok(None),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::deadline_exceeded("the sender of the snapshot says nothing")),
    }
}

/// The end is said only after the whole file, so that nothing else can look like it: not a file that cannot be read further,
/// and not a sender that was dropped.
async fn read(out: Outgoing, parts: mpsc::Sender<SnapshotPart>) -> std::io::Result<()> {
    let mut file = tokio::fs::File::open(&out.file).await?;
    let send = async |part| parts.send(SnapshotPart { part: Some(part) }).await.is_ok();
    // A stream that has ended before the file says why by its status.
    if !send(Part::Begin(SnapshotBegin { shard: out.shard.0, head: out.head })).await {
        return Ok(());
    }
    let mut bytes = 0;
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        while chunk.len() < CHUNK_BYTES && file.read_buf(&mut chunk).await? > 0 {}
        if chunk.is_empty() {
            send(Part::End(bytes)).await;
            return Ok(());
        }
        bytes += chunk.len() as u64;
        if !send(Part::Chunk(chunk.freeze())).await {
            return Ok(());
        }
    }
}

fn unreachable(why: &str) -> LinkError {
    LinkError::Unreachable(why.to_owned())
}

fn link_error(failed: Failed) -> LinkError {
    match failed {
        Failed::Connection(why) => LinkError::Unreachable(why),
        Failed::Refused(refused) | Failed::Unwelcome(refused) => LinkError::Refused(refused.message),
    }
}

fn to_status(error: LinkError) -> Status {
    match error {
        LinkError::Refused(why) => Status::failed_precondition(why),
        LinkError::Unreachable(why) => Status::unavailable(why),
        LinkError::TimedOut => Status::deadline_exceeded("no answer in time"),
    }
}

fn from_status(status: &Status) -> LinkError {
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument | Code::Unauthenticated => {
            LinkError::Refused(status.message().to_owned())
        }
        Code::Unavailable => LinkError::Unreachable(status.message().to_owned()),
        _ => LinkError::TimedOut,
    }
}
