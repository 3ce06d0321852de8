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

mod ask;
mod book;
mod director;
mod enter;
mod error;
mod gather;
mod ground;
mod held;
mod options;
mod orders;
mod plan;
mod report;
mod service;
mod status;
mod transfer;
mod upkeep;

pub use error::Error;
pub use ground::Ground;
pub use options::MembershipOptions;
pub use status::{ClusterStatus, NodeStatus, ReplicaStatus, ShardStatus};

use crate::directory::{Member, MemberState};
use grain_contract::{Code, GrainType, Rejection};
use granary_proto::peers::{ChangeBook, change_book::Change};
use ground::Inner;
use parking_lot::Mutex;
use service::Service;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;
use tokio::task::JoinSet;

/// The grain type of the book, for [`crate::Silo::start`].
pub fn grain_types() -> Vec<Arc<dyn GrainType>> {
    vec![Arc::new(book::BookType)]
}

/// Handle of this node's place in its cluster; cheap to clone.
#[derive(Clone)]
pub struct Membership {
    inner: Arc<Inner>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    alone: bool,
}

impl Membership {
    /// Founds, joins or takes up again; returns when this node belongs to a cluster and its directory has a first view, however
    /// long that takes. Safe to drop at any time, and to repeat after a crash at any point.
    ///
    /// # Errors
    /// The node must not go on: see [`Error`].
    pub async fn enter(ground: Ground, options: MembershipOptions) -> Result<Self, Error> {
        let inner = Inner::new(ground, options);
        let service = Arc::new(Service(Arc::downgrade(&inner)));
        inner.ground.services.mount("book", service.clone());
        inner.ground.services.mount("node", service);
        enter::enter(&inner).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(upkeep::run(inner.clone()));
        tasks.spawn(director::run(inner.clone()));
        Ok(Self { inner, tasks: Arc::new(Mutex::new(tasks)), alone: false })
    }

    /// For a node that is its own cluster: there is no book, the status shows one node, everything else is refused.
    pub fn alone(ground: Ground, options: MembershipOptions) -> Self {
        let inner = Inner::new(ground, options);
        let me = Member {
            node: inner.me(),
            name: inner.options.name.clone(),
            boot: inner.ground.boot,
            generation: 1,
            state: MemberState::Up,
            zone: inner.options.zone.clone(),
            client_address: inner.options.client_address.clone(),
            build: inner.options.build.clone(),
            since: inner.ground.clock.now(),
        };
        let view = crate::directory::View {
            cluster: inner.cluster(),
            version: 1,
            places: vec![vec![me.node]; inner.ground.host.shards() as usize],
            members: std::iter::once((me.node, me)).collect(),
        };
        inner.ground.directory.learn(view);
        Self { inner, tasks: Arc::default(), alone: true }
    }

    /// Gathered from all nodes in parallel; what does not answer in time is shown as not reachable.
    ///
    /// # Errors
    /// None today; `Unavailable` is reserved.
    pub async fn status(&self) -> Result<ClusterStatus, Rejection> {
        Ok(gather::gather(&self.inner).await)
    }

    /// Moves everything off a node, in the background; it stays a member. `undo` takes it back.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `WrongState` if it is on its way out, or nobody else could take over; `Unavailable`.
    pub async fn drain_node(&self, name: &str, undo: bool) -> Result<(), Rejection> {
        self.change(name, if undo { Change::Undrain } else { Change::Drain }).await
    }

    /// Takes a node out for good, in the background: also one that is dead.
    ///
    /// # Errors
    /// As [`Membership::drain_node`].
    pub async fn remove_node(&self, name: &str) -> Result<(), Rejection> {
        self.change(name, Change::Remove).await
    }

    async fn change(&self, name: &str, change: Change) -> Result<(), Rejection> {
        self.not_alone()?;
        let call = ChangeBook { name: name.to_owned(), change: change.into() };
        let view = self.inner.ask(book::CHANGE, &call).await?;
        if let Some(view) = book::to_view(&view) {
            self.inner.ground.directory.learn(view);
        }
        Ok(())
    }

    fn not_alone(&self) -> Result<(), Rejection> {
        let why = "Expected a cluster of several nodes, but this node is alone.";
        if self.alone { Err(Rejection::new(Code::WrongState, why)) } else { Ok(()) }
    }

    /// Ends when this node was taken out of the cluster for good: it should stop then. Until then it waits.
    pub async fn removed(&self) {
        let mut removed = self.inner.removed.subscribe();
        if removed.wait_for(|removed| *removed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Before a stop in order. Not a leave of the cluster: the replicas stay, as the node may be back in a moment; this node just
    /// directs no more and is given no more leaderships. Leaderships are handed over by the silo's drain, which comes next;
    /// until the mesh stops, this node still answers what others ask about it.
    pub async fn leave(&self, deadline: Duration) {
        self.inner.leaving.store(true, Release);
        self.inner.ground.peers.say_leaving();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let _ = tokio::time::timeout(deadline, tasks.shutdown()).await;
    }
}
