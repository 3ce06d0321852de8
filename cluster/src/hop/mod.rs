//! One silo among many: whom it asks, and what it answers to those who ask it.
//!
//! Any node takes any question; the owner of the shard answers it. If that is not this node, the question makes one hop, and
//! whoever gets it there answers from home or says that it is not the owner: nothing is ever passed on a second time. Who the
//! owner is only its Raft group knows; what is kept here are hints, and a wrong hint costs a hop.

pub(crate) mod call;
pub(crate) mod cursors;
mod gather;
pub(crate) mod index;
pub(crate) mod outbox;
mod parcel;
mod post;
pub(crate) mod rows;
mod service;
mod shards;
pub(crate) mod way;
pub(crate) mod wire;

pub(crate) use call::Hop;
pub(crate) use parcel::Parcels;
pub(crate) use service::{SERVICE, Served};

use crate::directory::Directory;
use crate::peers::{NoPeers, Peers, Switchboard};
use std::sync::Arc;

/// What surrounds a silo.
#[derive(Clone)]
pub struct Around {
    /// Calls to the silos beside this one. The node id 0 is nobody's: who has it is alone.
    pub peers: Arc<dyn Peers>,
    /// Who they are and where each shard belongs.
    pub directory: Directory,
    /// Where this silo mounts what it answers to its peers: `grain`, `relay`.
    pub services: Arc<Switchboard>,
}

impl Around {
    /// Nobody: for a silo that is alone.
    pub fn alone() -> Self {
        Self { peers: Arc::new(NoPeers::default()), directory: Directory::default(), services: Arc::default() }
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.peers.me() == 0
    }
}
