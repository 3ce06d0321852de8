//! The way of Raft's messages from here to other nodes: made before the replicas, connected once the mesh has started.

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use shard::{LinkError, NodeId, RaftFrame, RaftLink, ShardId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Until the mesh has started it reaches nobody.
#[derive(Default)]
pub struct RaftPipe {
    link: RwLock<Option<Arc<dyn RaftLink>>>,
}

impl RaftPipe {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn connect(&self, link: Arc<dyn RaftLink>) {
        *self.link.write() = Some(link);
    }

    pub(super) fn disconnect(&self) {
        *self.link.write() = None;
    }

    fn link(&self) -> Result<Arc<dyn RaftLink>, LinkError> {
        self.link.read().clone().ok_or_else(|| LinkError::Unreachable("the mesh of this node does not run".into()))
    }
}

impl RaftLink for RaftPipe {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        match self.link() {
            Ok(link) => link.request(to, frame, within),
            Err(error) => Box::pin(std::future::ready(Err(error))),
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
        match self.link() {
            Ok(link) => link.snapshot(to, shard, head, file, within),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
