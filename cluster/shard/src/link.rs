//! How replicas of one shard on different nodes reach each other: the seam between Raft here and whatever carries its bytes.
//!
//! This crate makes and reads the bodies; who implements [`RaftLink`] only moves them, to [`crate::Host::raft_request`] of the
//! node they are for. Loss, delay, repetition and reordering are all allowed.

use crate::ShardId;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::path::PathBuf;
use std::time::Duration;

/// A node as Raft knows it: drawn at random when its data folder was made, so that a folder that was lost never votes again
/// under the name it had.
pub type NodeId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RaftKind {
    Append,
    Vote,
    PreVote,
    Transfer,
}

#[derive(Clone, Debug)]
pub struct RaftFrame {
    pub shard: ShardId,
    pub kind: RaftKind,
    pub body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Never arrived.
    #[error("the node cannot be reached: {0}")]
    Unreachable(String),
    /// May have arrived.
    #[error("no answer in time")]
    TimedOut,
    /// The node hosts no such replica now, or is of another cluster.
    #[error("refused: {0}")]
    Refused(String),
}

/// Carries Raft's messages. Implemented over streams between nodes, and by the simulator's network.
pub trait RaftLink: Send + Sync + 'static {
    /// One request and its answer, or an error after `within` at the latest.
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>>;

    /// Sends a whole snapshot file behind `head`; the answer comes when the peer has installed it. Dropping the future ends it.
    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>>;
}

/// For a node that is alone: reaches nobody.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoLink;

impl RaftLink for NoLink {
    fn request(&self, _: NodeId, _: RaftFrame, _: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        Box::pin(std::future::ready(Err(LinkError::Unreachable("this node is alone".into()))))
    }

    fn snapshot(
        &self,
        _: NodeId,
        _: ShardId,
        _: Bytes,
        _: PathBuf,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        Box::pin(std::future::ready(Err(LinkError::Unreachable("this node is alone".into()))))
    }
}
