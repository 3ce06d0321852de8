//! The workers, the waiting work and the leases of one tenant, as one node sees them. Pure: time is handed in, what must be
//! asked of grains or told to other nodes comes out as [`Action`]s.
//!
//! A node is two things at once. As the *owner* of shards it has their waiting work and the lease clock of their attempts,
//! wherever the worker is. As the *edge* of the workers connected to it, it has their sessions and counts their places,
//! whoever owns what they do. On one node both meet in the same call; between nodes `relay` carries what passes.
//!
//! An attempt is in at most one of three places at its owner: it waits in its queue, it is being claimed for a worker, or it is
//! leased. A worker has `capacity` places; one is taken before the turn that leases commits, and given back if that turn does
//! not commit, so "created" and "leased" are one commit. A turn finds no place while older work waits in the same queue. Of a
//! worker at another node the owner knows the room that it was told, less what is on its way there. That may be wrong: then
//! the edge refuses, and the attempt goes back as never started.
//!
//! Leases live in memory only. What the grain committed (worker and token) is the truth; the clock here decides when the grain
//! is told that a lease ended, and the grain decides what that means. What only this side can know is whether a worker can
//! have begun. It cannot if the assignment never left this process, if the edge refused it, or if the worker's session in
//! force does not list it; the grain is told so, and offers the same attempt again. The last of these needs care: an owner
//! says it of a worker at another node only after that node has told all that its workers hold of the shard, has promised to
//! take no assignment of an earlier epoch, and nothing is on its way (see [`Pool::completed`]).

mod claims;
mod far;
mod guests;
mod leases;
mod places;
mod refused;
mod sessions;
mod sharing;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use far::FarSession;
pub(crate) use guests::{GuestHeld, Placement};
pub(crate) use leases::Delivered;
pub(crate) use sessions::Listed;
pub(crate) use sharing::RoomTold;

use super::ToWorker;
use crate::Moment;
use claims::{Claims, Key};
use grain_contract::{Epoch, GrainId, Lease, QueueName, TenantId, WorkItem};
use places::Queue;
use refused::Refusals;
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use uuid::Uuid;

/// What must happen outside the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Ask the grain whether this worker may have the waiting item.
    Claim { waiting: Waiting, lease: Lease },
    /// Ask the grain whether the worker that says it holds this attempt does.
    Verify { grain: GrainId, attempt: Uuid, lease: Lease },
    /// Tell the grain that the lease is over.
    Expired { grain: GrainId, attempt: Uuid, lease: Lease, never_started: bool },
    /// Bring this to the node that the worker is connected to.
    Send { edge: NodeId, parcel: Parcel },
}

/// From an owner to an edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Parcel {
    Work(Work),
    Stop(Stop),
}

/// An attempt that was leased in a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) grain: GrainId,
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) item: WorkItem,
    pub(crate) lease: Lease,
    /// Of the worker: in another one it is not to be handed out.
    pub(crate) session: u64,
}

/// The worker is to leave an attempt alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    pub(crate) tenant: TenantId,
    pub(crate) attempt: Uuid,
    pub(crate) token: [u8; 16],
    pub(crate) reason: String,
    /// It is the worker's no more, so its place is free.
    pub(crate) lost: bool,
}

/// How a lease was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    /// A place was taken for it here, before its commit.
    pub(crate) place: bool,
    /// Before its commit too.
    pub(crate) since: Moment,
    /// That is so long ago that it may be over elsewhere.
    pub(crate) is_late: bool,
}

/// Work without a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) grain: GrainId,
    pub(crate) shard: ShardId,
    pub(crate) item: WorkItem,
}

impl Waiting {
    pub(crate) fn bytes(&self) -> usize {
        self.item.body.len()
    }
}

/// What a grain said to a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimed {
    Yes,
    No,
    /// The shard is not led here any more; whoever leads it knows what came of the claim.
    Gone,
}

struct Claiming {
    shard: ShardId,
    epoch: Epoch,
    token: [u8; 16],
    /// `Some(interrupt)`: withdrawn while the grain was asked.
    withdrawn: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Held,
    /// A worker says that it holds it; the grain was asked.
    Verifying,
    /// Not wanted any more; the worker was told to stop. It keeps its place until it says it did, or the lease time is over.
    Interrupted,
    /// The grain is being told that it is over.
    Expiring,
}

/// A lease of a shard that is led here.
struct Leased {
    grain: GrainId,
    shard: ShardId,
    lease: Lease,
    deadline_ms: u64,
    standing: Standing,
    /// Whether it takes a place of a worker connected here.
    has_place: bool,
    /// The session of its worker that has it; 0 = none that is known.
    session: u64,
    delivery: Delivery,
}

/// What is known of an attempt that was sent to the worker's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delivery {
    /// Nothing is on the way: `session` says where it is.
    Over,
    /// No answer yet.
    UnderWay,
    /// There will be no answer. As long as the session in force is the one it was sent to, the worker may have it.
    Doubtful,
}

/// An attempt of a shard that is led elsewhere, at a worker that is connected here.
struct Guest {
    grain: GrainId,
    shard: ShardId,
    lease: Lease,
    renewed_ms: u64,
    has_place: bool,
    session: u64,
}

struct Worker {
    seat: Seat,
    /// The greatest session of this worker that was heard of: the one in force.
    session: u64,
    queues: Vec<QueueName>,
    /// Places taken by turns that have not committed yet.
    taken: u32,
    /// Which of its queues the next free place is offered to first.
    turn: usize,
}

enum Seat {
    Away,
    Here(Here),
    Far(Far),
}

/// Connected to this node.
struct Here {
    /// `None`: told to go elsewhere. Not bounded by itself: at most `capacity` assignments and as many interrupts are under way.
    sender: Option<mpsc::UnboundedSender<ToWorker>>,
    capacity: u32,
    /// Held by leases and by guests.
    placed: u32,
    /// Places kept for one owner elsewhere: how many, until when.
    promises: BTreeMap<NodeId, (u32, u64)>,
    draining: bool,
    /// The room that was told last to anybody.
    told: u32,
}

/// Connected to another node.
struct Far {
    edge: NodeId,
    /// As told last, and how late that was.
    room: u32,
    stamp: u64,
    /// Assignments that the room does not count yet.
    sent: u32,
    refusals: Refusals,
}

pub(crate) struct Pool {
    lease_ms: u64,
    now_ms: u64,
    led: HashMap<ShardId, Epoch>,
    /// Nodes that have told all that their workers hold of a shard led here, and keep to it.
    complete: HashSet<(ShardId, NodeId)>,
    queues: HashMap<QueueName, Queue>,
    workers: HashMap<Arc<str>, Worker>,
    waiting: HashMap<Uuid, QueueName>,
    claiming: HashMap<Uuid, Claiming>,
    leases: Claims<Leased>,
    guests: Claims<Guest>,
    /// Guests that their owner has yet to hear of, or to hear that they were renewed.
    untold: HashSet<Key>,
    /// Counts looks at room.
    stamp: u64,
    /// Something happened that other nodes should hear at once.
    news: bool,
}

impl Pool {
    pub(crate) fn new(lease_ms: u64, led: &HashMap<ShardId, Epoch>, complete: &HashSet<(ShardId, NodeId)>) -> Self {
        Self {
            lease_ms,
            now_ms: 0,
            led: led.clone(),
            complete: complete.clone(),
            queues: HashMap::new(),
            workers: HashMap::new(),
            waiting: HashMap::new(),
            claiming: HashMap::new(),
            leases: Claims::default(),
            guests: Claims::default(),
            untold: HashSet::new(),
            stamp: 0,
            news: false,
        }
    }

    /// The time of what is asked next; monotonic.
    pub(crate) fn at(&mut self, now_ms: u64) -> &mut Self {
        self.now_ms = now_ms;
        self
    }

    /// Whether something happened since this was asked last that other nodes should hear at once.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Leases of attempts owned here.
    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Workers connected to this node.
    pub(crate) fn connected(&self) -> usize {
        self.workers.values().filter(|worker| worker.here().is_some()).count()
    }

    pub(crate) fn leads(&self, (shard, epoch): (ShardId, Epoch)) -> bool {
        self.led.get(&shard) == Some(&epoch)
    }

    /// The shard is led here from now on. What workers of this node hold of it becomes ours to watch over.
    pub(crate) fn opened(&mut self, shard: ShardId, epoch: Epoch) -> Vec<Action> {
        self.complete.retain(|(of, _)| *of != shard);
        self.led.insert(shard, epoch);
        self.take_in(shard)
    }

    /// The shard is not led here any more: what is ours of it goes to whoever leads it, by rows and by what workers hold.
    /// Gives back what waited, for the caller's count.
    pub(crate) fn left(&mut self, shard: ShardId) -> (Vec<Action>, Vec<Waiting>) {
        self.led.remove(&shard);
        self.complete.retain(|(of, _)| *of != shard);
        self.claiming.retain(|_, claiming| claiming.shard != shard);
        let mut waited = Vec::new();
        for queue in self.queues.values_mut() {
            let (left, stays): (VecDeque<Waiting>, VecDeque<Waiting>) =
                std::mem::take(&mut queue.waiting).into_iter().partition(|waiting| waiting.shard == shard);
            queue.waiting = stays;
            waited.extend(left);
        }
        for waiting in &waited {
            self.waiting.remove(&waiting.item.attempt);
        }
        (self.hand_over(shard), waited)
    }
}

impl Worker {
    fn here(&self) -> Option<&Here> {
        match &self.seat {
            Seat::Here(here) if here.sender.is_some() => Some(here),
            _ => None,
        }
    }

    fn here_mut(&mut self) -> Option<&mut Here> {
        match &mut self.seat {
            Seat::Here(here) => Some(here),
            _ => None,
        }
    }

    fn edge(&self) -> Option<NodeId> {
        match &self.seat {
            Seat::Far(far) => Some(far.edge),
            _ => None,
        }
    }
}
