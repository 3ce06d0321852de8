//! What a membership stands on, and what its parts share.

use super::MembershipOptions;
use super::held::Held;
use crate::directory::Directory;
use crate::peers::{Attached, Peers, Switchboard};
use crate::{Clock, Silo};
use granary_proto::peers::BookMember;
use shard::NodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::watch;
use uuid::Uuid;

/// What a membership stands on.
pub struct Ground {
    pub host: shard::Host,
    pub silo: Silo,
    pub peers: Arc<dyn Peers>,
    pub services: Arc<Switchboard>,
    pub directory: Directory,
    pub clock: Arc<dyn Clock>,
    /// New at every start of this process, the same that the mesh tells.
    pub boot: u64,
    /// Told once, when the node gets its cluster: `Mesh::set_cluster`.
    pub set_cluster: Arc<dyn Fn(Uuid) + Send + Sync>,
}

pub(super) struct Inner {
    pub(super) ground: Ground,
    pub(super) options: MembershipOptions,
    /// This node is about to stop.
    pub(super) leaving: AtomicBool,
    /// The latest director that gave orders here.
    pub(super) director: AtomicU64,
    /// Orders to start a replica that came, by shard: a stop that was thought over before one is void.
    pub(super) starts: Vec<AtomicU64>,
    /// Leaderships that people have put here.
    pub(super) held: Held,
    /// This node is out of the cluster for good.
    pub(super) removed: watch::Sender<bool>,
}

impl Inner {
    pub(super) fn new(ground: Ground, options: MembershipOptions) -> Arc<Self> {
        let starts = (0..ground.host.shards()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            ground,
            options,
            leaving: AtomicBool::new(false),
            director: AtomicU64::new(0),
            starts,
            held: Held::default(),
            removed: watch::Sender::new(false),
        })
    }

    pub(super) fn me(&self) -> NodeId {
        self.ground.host.node_id()
    }

    pub(super) fn cluster(&self) -> Option<Uuid> {
        self.ground.host.cluster_id()
    }

    pub(super) fn attached(&self) -> Attached {
        self.ground.peers.attached().borrow().clone()
    }

    /// This node as the book should know it.
    pub(super) fn member(&self) -> BookMember {
        BookMember {
            node_id: self.me(),
            name: self.options.name.clone(),
            boot: self.ground.boot,
            client_address: self.options.client_address.clone(),
            zone: self.options.zone.clone(),
            build: self.options.build.clone(),
            ..BookMember::default()
        }
    }
}
