//! One silo among many: who it can ask, and what it answers to those who ask it.

use crate::directory::Directory;
use crate::peers::{NoPeers, Peers, Switchboard};
use std::sync::Arc;

/// What surrounds a silo.
#[derive(Clone)]
pub struct Around {
    /// Calls to the silos beside this one.
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
}
