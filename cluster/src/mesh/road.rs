//! Raft's way to the other nodes, once the mesh has started.

use super::shared::Shared;
use super::snapshot::{Outgoing, Snapshots};
use bytes::Bytes;
use futures::future::BoxFuture;
use shard::{LinkError, NodeId, RaftFrame, RaftLink, ShardId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Road {
    pub shared: Arc<Shared>,
    pub snapshots: Arc<Snapshots>,
}

impl RaftLink for Road {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        match self.shared.roster.ways(to).and_then(|ways| ways.wire) {
            Some(wire) => Box::pin(wire.lane.clone().request(frame, within)),
            None => Box::pin(std::future::ready(Err(LinkError::Unreachable("not attached".into())))),
        }
    }

    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let (shared, snapshots) = (self.shared.clone(), self.snapshots.clone());
        Box::pin(async move {
            let sent = snapshots.send(&shared, Outgoing { to, shard, head, file });
            tokio::time::timeout(within, sent).await.unwrap_or(Err(LinkError::TimedOut))
        })
    }
}
