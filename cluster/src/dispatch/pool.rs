//! The workers, the waiting work and the leases of one tenant. Pure: time is handed in, what must be asked of grains comes
//! out as [`Action`]s.
//!
//! An attempt is in at most one of three places here: it waits in its queue, it is being claimed for a worker, or it is leased.
//! A worker has `capacity` places; one is taken before the turn that leases commits, and given back if that turn does not
//! commit, so "created" and "leased" are one commit. A turn finds no place while older work waits in the same queue.
//!
//! Leases live in memory only. What the grain committed (worker and token) is the truth; the clock here decides when the grain
//! is told that a lease ended, and the grain decides what that means. The one thing that only this side can know is whether a
//! worker can have begun: an assignment that never left this process, or that a returning worker does not list, was never
//! started, and the grain is told so.

use super::{HeldAttempt, ToWorker};
use grain_contract::{GrainId, Lease, QueueName, WorkItem};
use shard::ShardId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use uuid::Uuid;

/// What must happen outside the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Ask the grain whether this worker may have the waiting item.
    Claim { waiting: Waiting, lease: Lease },
    /// Ask the grain whether the worker that came back with this attempt still holds it.
    Verify { grain: GrainId, attempt: Uuid, lease: Lease },
    /// Tell the grain that the lease is over.
    Expired { grain: GrainId, attempt: Uuid, lease: Lease, never_started: bool },
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
}

/// What became of a claim, for the counters of waiting work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claiming {
    Wanted,
    Withdrawn { interrupt: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Held,
    /// A returning worker says that it holds it; the grain was asked.
    Verifying,
    /// Not wanted any more; the worker was told to stop. It keeps its place until it says it did, or the lease time is over.
    Interrupted,
    /// The grain is being told that it is over.
    Expiring,
}

struct Leased {
    grain: GrainId,
    lease: Lease,
    deadline_ms: u64,
    standing: Standing,
    /// Whether it takes one of the worker's places.
    has_place: bool,
}

#[derive(Default)]
struct Worker {
    session: u64,
    /// `Some` while connected. Not bounded by itself: at most `capacity` assignments and as many interrupts are under way.
    sender: Option<mpsc::UnboundedSender<ToWorker>>,
    queues: Vec<QueueName>,
    capacity: u32,
    /// Taken by turns that have not committed yet.
    taken: u32,
    /// Held by leases.
    placed: u32,
    draining: bool,
    /// Which of its queues the next free place is offered to first.
    turn: usize,
}

impl Worker {
    fn has_room(&self) -> bool {
        self.sender.is_some() && !self.draining && self.taken + self.placed < self.capacity
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Workers that may have room, each at most once, in the order of their turn; checked when one is taken.
    ready: VecDeque<Arc<str>>,
    in_ready: HashSet<Arc<str>>,
}

pub(crate) struct Pool {
    lease_ms: u64,
    queues: HashMap<QueueName, Queue>,
    workers: HashMap<Arc<str>, Worker>,
    waiting: HashMap<Uuid, QueueName>,
    claiming: HashMap<Uuid, Claiming>,
    leases: HashMap<Uuid, Leased>,
    sessions: u64,
}

impl Pool {
    pub(crate) fn new(lease_ms: u64) -> Self {
        Self {
            lease_ms,
            queues: HashMap::new(),
            workers: HashMap::new(),
            waiting: HashMap::new(),
            claiming: HashMap::new(),
            leases: HashMap::new(),
            sessions: 0,
        }
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn connected(&self) -> usize {
        self.workers.values().filter(|worker| worker.sender.is_some()).count()
    }

    // ---- places ----

    /// A place at a worker of this queue, unless older work waits for one.
    pub(crate) fn take(&mut self, queue: &QueueName, token: [u8; 16]) -> Option<Lease> {
        let queue = self.queues.get_mut(queue)?;
        if !queue.waiting.is_empty() {
            return None;
        }
        take_place(queue, &mut self.workers, token)
    }

    /// The turn did not use it.
    pub(crate) fn give_back(&mut self, worker: &str) -> Vec<Action> {
        if let Some(found) = self.workers.get_mut(worker) {
            found.taken = found.taken.saturating_sub(1);
        }
        self.has_room_again(worker)
    }

    // ---- work ----

    /// Leased in a commit. `place`: it was taken here before that commit.
    pub(crate) fn assign(
        &mut self,
        grain: &GrainId,
        item: WorkItem,
        lease: Lease,
        place: bool,
        now_ms: u64,
    ) -> Vec<Action> {
        let sent_already =
            self.leases.get(&item.attempt).is_some_and(|l| l.lease == lease && l.standing == Standing::Held);
        if sent_already {
            // The turn that answered the claim offered it too.
            return if place { self.give_back(&lease.worker) } else { Vec::new() };
        }
        let mut actions = self.forget(item.attempt);
        let worker = self.workers.get_mut(lease.worker.as_str());
        let sent = worker.is_some_and(|worker| {
            if place {
                worker.taken = worker.taken.saturating_sub(1);
            }
            let assignment = ToWorker::Assign { grain: grain.clone(), item: item.clone(), lease: lease.clone() };
            let sent = worker.sender.as_ref().is_some_and(|sender| sender.send(assignment).is_ok());
            worker.placed += u32::from(sent);
            sent
        });
        let standing = if sent { Standing::Held } else { Standing::Expiring };
        if !sent {
            // The worker went away between the taking and the commit: nothing can have begun.
            let (attempt, lease) = (item.attempt, lease.clone());
            actions.push(Action::Expired { grain: grain.clone(), attempt, lease, never_started: true });
        }
        let deadline_ms = now_ms + self.lease_ms;
        let leased = Leased { grain: grain.clone(), lease, deadline_ms, standing, has_place: sent };
        self.leases.insert(item.attempt, leased);
        actions
    }

    /// Not leased yet: waits its turn. The caller has counted it and made room.
    pub(crate) fn enqueue(&mut self, waiting: Waiting) -> Vec<Action> {
        let mut actions = self.forget(waiting.item.attempt);
        let (attempt, name) = (waiting.item.attempt, waiting.item.queue.clone());
        self.waiting.insert(attempt, name.clone());
        self.queues.entry(name.clone()).or_default().waiting.push_back(waiting);
        actions.extend(self.pair(&name));
        actions
    }

    /// Whether an offer of this attempt says nothing new.
    pub(crate) fn knows(&self, attempt: Uuid) -> bool {
        self.waiting.contains_key(&attempt) || self.claiming.contains_key(&attempt)
    }

    /// The grain does not want it any more. Gives back what waited, for the caller's count.
    pub(crate) fn withdraw(
        &mut self,
        attempt: Uuid,
        interrupt: bool,
        reason: &str,
        now_ms: u64,
    ) -> (Vec<Action>, Option<Waiting>) {
        if let Some(name) = self.waiting.remove(&attempt) {
            let queue = self.queues.get_mut(&name);
            let gone = queue.and_then(|queue| {
                let at = queue.waiting.iter().position(|waiting| waiting.item.attempt == attempt)?;
                queue.waiting.remove(at)
            });
            return (Vec::new(), gone);
        }
        if let Some(claiming) = self.claiming.get_mut(&attempt) {
            *claiming = Claiming::Withdrawn { interrupt };
            return (Vec::new(), None);
        }
        let told = interrupt && self.interrupt(attempt, reason);
        match self.leases.get_mut(&attempt) {
            Some(leased) if told => {
                leased.standing = Standing::Interrupted;
                leased.deadline_ms = now_ms + self.lease_ms;
                (Vec::new(), None)
            }
            Some(_) => (self.forget(attempt), None),
            None => (Vec::new(), None),
        }
    }

    /// The grain says that this worker holds it since before this process led the shard.
    pub(crate) fn expect(&mut self, grain: &GrainId, attempt: Uuid, lease: Lease, now_ms: u64) -> Vec<Action> {
        if self.claiming.contains_key(&attempt) {
            return Vec::new();
        }
        match self.leases.get_mut(&attempt) {
            Some(leased) if leased.lease == lease => {
                if leased.standing == Standing::Verifying {
                    leased.standing = Standing::Held;
                }
                return Vec::new();
            }
            _ => {}
        }
        let mut actions = self.forget(attempt);
        // A connected worker has told all it holds, and what it got since then is known here.
        let never_started = self.workers.get(lease.worker.as_str()).is_some_and(|worker| worker.sender.is_some());
        let standing = if never_started { Standing::Expiring } else { Standing::Held };
        if never_started {
            let lease = lease.clone();
            actions.push(Action::Expired { grain: grain.clone(), attempt, lease, never_started });
        }
        let deadline_ms = now_ms + self.lease_ms;
        self.leases.insert(attempt, Leased { grain: grain.clone(), lease, deadline_ms, standing, has_place: false });
        actions
    }

    /// The grain has answered a claim.
    pub(crate) fn claim_answered(
        &mut self,
        waiting: Waiting,
        lease: Lease,
        answer: Claimed,
        now_ms: u64,
    ) -> Vec<Action> {
        let attempt = waiting.item.attempt;
        let claiming = self.claiming.remove(&attempt);
        match (answer, claiming) {
            (Claimed::Yes, Some(Claiming::Wanted)) => self.assign(&waiting.grain, waiting.item, lease, true, now_ms),
            (Claimed::Yes, Some(Claiming::Withdrawn { interrupt: true })) => {
                // Leased and withdrawn before it was sent: the grain waits for a word of a worker that never got it.
                let mut actions = self.give_back(&lease.worker);
                actions.push(Action::Expired { grain: waiting.grain, attempt, lease, never_started: true });
                actions
            }
            _ => self.give_back(&lease.worker),
        }
    }

    /// The grain has answered whether a returning worker holds what it says.
    pub(crate) fn verified(&mut self, attempt: Uuid, lease: &Lease, answer: Claimed) -> Vec<Action> {
        match self.leases.get_mut(&attempt) {
            Some(leased) if leased.lease == *lease && leased.standing == Standing::Verifying => match answer {
                Claimed::Yes => {
                    leased.standing = Standing::Held;
                    Vec::new()
                }
                Claimed::No => {
                    self.interrupt(attempt, "the lease is lost");
                    self.forget(attempt)
                }
            },
            _ => Vec::new(),
        }
    }

    /// The grain knows that the lease is over.
    pub(crate) fn expiry_told(&mut self, attempt: Uuid, lease: &Lease) -> Vec<Action> {
        match self.leases.get(&attempt) {
            Some(leased) if leased.lease == *lease && leased.standing == Standing::Expiring => self.forget(attempt),
            _ => Vec::new(),
        }
    }

    /// Ends what was not renewed in time.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let over: Vec<Uuid> = self
            .leases
            .iter()
            .filter(|(_, leased)| leased.deadline_ms <= now_ms && leased.standing != Standing::Expiring)
            .map(|(attempt, _)| *attempt)
            .collect();
        let mut actions = Vec::new();
        for attempt in over {
            if self.leases.get(&attempt).is_some_and(|leased| leased.standing == Standing::Interrupted) {
                actions.extend(self.forget(attempt));
                continue;
            }
            self.interrupt(attempt, "the lease was not renewed in time");
            actions.extend(self.free_place(attempt));
            if let Some(leased) = self.leases.get_mut(&attempt) {
                leased.standing = Standing::Expiring;
                let (grain, lease) = (leased.grain.clone(), leased.lease.clone());
                actions.push(Action::Expired { grain, attempt, lease, never_started: false });
            }
        }
        let holding: HashSet<&str> = self.leases.values().map(|leased| leased.lease.worker.as_str()).collect();
        self.workers.retain(|id, worker| worker.sender.is_some() || worker.taken > 0 || holding.contains(&**id));
        actions
    }

    // ---- workers ----

    /// A worker came, or came back. Its earlier session, if any, is over.
    pub(crate) fn connect(
        &mut self,
        id: &str,
        queues: Vec<QueueName>,
        capacity: u32,
        held: &[HeldAttempt],
        now_ms: u64,
    ) -> (u64, mpsc::UnboundedReceiver<ToWorker>, Vec<Action>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.sessions += 1;
        let id: Arc<str> = Arc::from(id);
        let worker = self.workers.entry(id.clone()).or_default();
        worker.session = self.sessions;
        worker.sender = Some(sender);
        worker.queues = queues;
        worker.capacity = capacity;
        worker.draining = false;
        let mut actions = self.missing_from(&id, held);
        for attempt in held {
            actions.extend(self.held_again(&id, attempt, now_ms));
        }
        let placed = self.leases.values().filter(|leased| leased.lease.worker == *id && leased.has_place).count();
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.placed = u32::try_from(placed).unwrap_or(u32::MAX);
        }
        actions.extend(self.has_room_again(&id));
        (self.sessions, receiver, actions)
    }

    /// What is leased to this worker, and what it does not list: it never got it.
    fn missing_from(&mut self, id: &str, held: &[HeldAttempt]) -> Vec<Action> {
        let listed: HashSet<Uuid> = held.iter().map(|held| held.attempt).collect();
        let mut actions = Vec::new();
        self.leases.retain(|attempt, leased| {
            if leased.lease.worker != id || listed.contains(attempt) {
                return true;
            }
            leased.has_place = false;
            match leased.standing {
                Standing::Held => {
                    leased.standing = Standing::Expiring;
                    let (grain, lease) = (leased.grain.clone(), leased.lease.clone());
                    actions.push(Action::Expired { grain, attempt: *attempt, lease, never_started: true });
                    true
                }
                Standing::Expiring => true,
                Standing::Verifying | Standing::Interrupted => false,
            }
        });
        actions
    }

    fn held_again(&mut self, id: &str, held: &HeldAttempt, now_ms: u64) -> Vec<Action> {
        let deadline_ms = now_ms + self.lease_ms;
        let lease = Lease { worker: id.to_owned(), token: held.token };
        let worker = self.workers.get(id);
        let tell = |reason: &str| {
            if let Some(sender) = worker.and_then(|worker| worker.sender.as_ref()) {
                let _ = sender.send(ToWorker::Interrupt { attempt: held.attempt, reason: reason.to_owned() });
            }
        };
        match self.leases.get_mut(&held.attempt) {
            Some(leased) if leased.lease == lease => match leased.standing {
                Standing::Held | Standing::Verifying => {
                    leased.deadline_ms = deadline_ms;
                    leased.has_place = true;
                    Vec::new()
                }
                Standing::Interrupted => {
                    leased.has_place = true;
                    tell("it is not wanted any more");
                    Vec::new()
                }
                Standing::Expiring => {
                    tell("the lease is lost");
                    Vec::new()
                }
            },
            Some(_) => {
                tell("the lease is lost");
                Vec::new()
            }
            // Not known here (yet): the grain knows.
            None => {
                let grain = held.grain.clone();
                let (standing, has_place) = (Standing::Verifying, true);
                let leased = Leased { grain: grain.clone(), lease: lease.clone(), deadline_ms, standing, has_place };
                self.leases.insert(held.attempt, leased);
                vec![Action::Verify { grain, attempt: held.attempt, lease }]
            }
        }
    }

    /// The session is over; what it had not read of its assignments never left this process.
    pub(crate) fn disconnect(&mut self, id: &str, session: u64, unread: Vec<ToWorker>) -> Vec<Action> {
        let Some(worker) = self.workers.get_mut(id).filter(|worker| worker.session == session) else {
            return Vec::new();
        };
        worker.sender = None;
        let mut actions = Vec::new();
        for message in unread {
            let ToWorker::Assign { grain, item, lease } = message else { continue };
            let attempt = item.attempt;
            let Some(leased) = self.leases.get_mut(&attempt) else { continue };
            if leased.lease == lease && leased.standing == Standing::Held {
                leased.standing = Standing::Expiring;
                actions.push(Action::Expired { grain, attempt, lease, never_started: true });
                actions.extend(self.free_place(attempt));
            }
        }
        actions
    }

    /// Gives back those that are not this worker's any more.
    pub(crate) fn renew(&mut self, id: &str, attempts: &[Uuid], now_ms: u64) -> Vec<Uuid> {
        let mut lost = Vec::new();
        for attempt in attempts {
            match self.leases.get_mut(attempt) {
                Some(leased) if leased.lease.worker == id && leased.standing != Standing::Expiring => {
                    if leased.standing != Standing::Interrupted {
                        leased.deadline_ms = now_ms + self.lease_ms;
                    }
                }
                _ => lost.push(*attempt),
            }
        }
        lost
    }

    /// The worker is done with it; the lease stays.
    pub(crate) fn finished(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        if self.leases.get(&attempt).is_some_and(|leased| leased.lease.worker == id) {
            return self.free_place(attempt);
        }
        Vec::new()
    }

    /// The lease is over by report.
    pub(crate) fn release(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        if self.leases.get(&attempt).is_some_and(|leased| leased.lease.worker == id) {
            return self.forget(attempt);
        }
        Vec::new()
    }

    pub(crate) fn drain(&mut self, id: &str) {
        if let Some(worker) = self.workers.get_mut(id) {
            worker.draining = true;
        }
    }

    pub(crate) fn drain_all(&mut self) {
        self.workers.values_mut().for_each(|worker| worker.draining = true);
    }

    // ---- inside ----

    /// Pairs waiting work with workers that have room.
    fn pair(&mut self, name: &QueueName) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(queue) = self.queues.get_mut(name) else { return actions };
        while !queue.waiting.is_empty() {
            let Some(lease) = take_place(queue, &mut self.workers, rand::random()) else { break };
            let Some(waiting) = queue.waiting.pop_front() else { break };
            self.waiting.remove(&waiting.item.attempt);
            self.claiming.insert(waiting.item.attempt, Claiming::Wanted);
            actions.push(Action::Claim { waiting, lease });
        }
        actions
    }

    fn has_room_again(&mut self, id: &str) -> Vec<Action> {
        let Some((id, worker)) = self.workers.get_key_value(id).map(|(id, _)| id.clone()).and_then(|id| {
            let worker = self.workers.get_mut(&id)?;
            Some((id, worker))
        }) else {
            return Vec::new();
        };
        if !worker.has_room() {
            return Vec::new();
        }
        // Another queue first each time, so that one full queue does not keep the worker from its others.
        worker.turn = worker.turn.wrapping_add(1);
        let first = worker.turn % worker.queues.len().max(1);
        let names: Vec<QueueName> = worker.queues[first..].iter().chain(&worker.queues[..first]).cloned().collect();
        let mut actions = Vec::new();
        for name in &names {
            let queue = self.queues.entry(name.clone()).or_default();
            if queue.in_ready.insert(id.clone()) {
                queue.ready.push_back(id.clone());
            }
            if !queue.waiting.is_empty() {
                actions.extend(self.pair(name));
            }
        }
        actions
    }

    fn free_place(&mut self, attempt: Uuid) -> Vec<Action> {
        let Some(leased) = self.leases.get_mut(&attempt).filter(|leased| leased.has_place) else { return Vec::new() };
        leased.has_place = false;
        let id = leased.lease.worker.clone();
        if let Some(worker) = self.workers.get_mut(id.as_str()) {
            worker.placed = worker.placed.saturating_sub(1);
        }
        self.has_room_again(&id)
    }

    /// Removes the lease, if there is one.
    fn forget(&mut self, attempt: Uuid) -> Vec<Action> {
        let actions = self.free_place(attempt);
        self.leases.remove(&attempt);
        actions
    }

    /// Tells the worker that holds it; says whether it could be told.
    fn interrupt(&self, attempt: Uuid, reason: &str) -> bool {
        let Some(leased) = self.leases.get(&attempt) else { return false };
        let worker = self.workers.get(leased.lease.worker.as_str());
        worker
            .and_then(|worker| worker.sender.as_ref())
            .is_some_and(|sender| sender.send(ToWorker::Interrupt { attempt, reason: reason.to_owned() }).is_ok())
    }
}

fn take_place(queue: &mut Queue, workers: &mut HashMap<Arc<str>, Worker>, token: [u8; 16]) -> Option<Lease> {
    while let Some(id) = queue.ready.pop_front() {
        queue.in_ready.remove(&id);
        let Some(worker) = workers.get_mut(&id).filter(|worker| worker.has_room()) else { continue };
        worker.taken += 1;
        if worker.has_room() {
            queue.in_ready.insert(id.clone());
            queue.ready.push_back(id.clone());
        }
        return Some(Lease { worker: id.to_string(), token });
    }
    None
}
