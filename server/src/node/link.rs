//! The way of Raft's messages to other nodes, with a count of the snapshots that go it: each of them is a replica that could
//! not catch up from the log.

use crate::metrics::Groups;
use bytes::Bytes;
use cluster::mesh::RaftPipe;
use futures::future::BoxFuture;
use shard::{LinkError, NodeId, RaftFrame, RaftLink, ShardId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub struct Link {
    pub pipe: Arc<RaftPipe>,
    pub groups: Arc<Groups>,
}

impl RaftLink for Link {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        self.pipe.request(to, frame, within)
    }

    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let sending = self.pipe.snapshot(to, shard, head, file, within);
        let groups = Arc::clone(&self.groups);
        Box::pin(async move {
            let answer = sending.await;
            let counter = if answer.is_ok() { &groups.snapshots_sent } else { &groups.snapshots_failed };
            counter.fetch_add(1, Relaxed);
            answer
        })
    }
}
