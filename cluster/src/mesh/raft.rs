//! Where Raft's messages from other nodes go: the replicas of this node, or a test's.

use bytes::Bytes;
use futures::future::BoxFuture;
use shard::{LinkError, NodeId, RaftFrame, ShardId};

pub(super) trait RaftTarget: Send + Sync + 'static {
    fn request(&self, from: NodeId, frame: RaftFrame) -> BoxFuture<'static, Result<Bytes, LinkError>>;

    fn receive(
        &self,
        from: NodeId,
        shard: ShardId,
        head: Bytes,
    ) -> BoxFuture<'static, Result<Box<dyn Receiver>, LinkError>>;
}

/// A snapshot that arrives. Dropped before its end, it leaves nothing behind.
pub(super) trait Receiver: Send {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), LinkError>>;

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Bytes, LinkError>>;
}

impl RaftTarget for shard::Host {
    fn request(&self, _: NodeId, _: RaftFrame) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        Box::pin(std::future::ready(Err(LinkError::Refused("no replicas yet".into()))))
    }

    fn receive(&self, _: NodeId, _: ShardId, _: Bytes) -> BoxFuture<'static, Result<Box<dyn Receiver>, LinkError>> {
        Box::pin(std::future::ready(Err(LinkError::Refused("no replicas yet".into()))))
    }
}
