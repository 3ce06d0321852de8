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
    fn request(&self, from: NodeId, frame: RaftFrame) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let host = self.clone();
        Box::pin(async move { host.raft_request(from, frame).await })
    }

    fn receive(
        &self,
        from: NodeId,
        shard: ShardId,
        head: Bytes,
    ) -> BoxFuture<'static, Result<Box<dyn Receiver>, LinkError>> {
        let host = self.clone();
        Box::pin(async move {
            let receiver = host.receive_snapshot(from, shard, head).await?;
            Ok(Box::new(receiver) as Box<dyn Receiver>)
        })
    }
}

impl Receiver for shard::SnapshotReceiver {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(shard::SnapshotReceiver::write(self, chunk))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        Box::pin(shard::SnapshotReceiver::finish(*self))
    }
}
