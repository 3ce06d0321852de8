//! What this node knows of the cluster's book: who is in it and where each shard belongs.
//!
//! A copy, maybe an old one. Good for finding somebody to ask; who owns a shard only its Raft group knows.

use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    Up,
    /// Keeps its data until it is elsewhere, gets nothing new.
    Draining,
    /// On its way out for good.
    Removing,
    /// Out. Its id never comes back.
    Gone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub node: NodeId,
    /// Unique among those that are not `Gone`; the name of its certificate.
    pub name: String,
    pub boot: u64,
    pub generation: u64,
    pub state: MemberState,
    pub zone: String,
    pub client_address: String,
    pub build: String,
    pub since: grain_contract::Timestamp,
}

/// The book as of one version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    pub cluster: Option<uuid::Uuid>,
    pub version: u64,
    pub members: BTreeMap<NodeId, Member>,
    /// Where each shard belongs, by shard; empty until the first book was read.
    pub places: Vec<Vec<NodeId>>,
}

/// Shared by everything on this node that needs to find somebody.
#[derive(Clone)]
pub struct Directory {
    view: Arc<watch::Sender<Arc<View>>>,
}

impl Default for Directory {
    fn default() -> Self {
        Self { view: Arc::new(watch::Sender::new(Arc::default())) }
    }
}

impl Directory {
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// Takes over a book unless a newer one is known.
    pub fn learn(&self, view: View) {
        self.view.send_if_modified(|known| {
            let is_newer = view.version > known.version;
            if is_newer {
                *known = Arc::new(view);
            }
            is_newer
        });
    }

    /// Those that should have a replica of the shard.
    pub fn replicas(&self, shard: ShardId) -> Vec<NodeId> {
        self.view.borrow().places.get(shard.0 as usize).cloned().unwrap_or_default()
    }

    pub fn name_of(&self, node: NodeId) -> Option<String> {
        self.view.borrow().members.get(&node).map(|member| member.name.clone())
    }
}
