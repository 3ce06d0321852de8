//! Places at workers, and the pairing of waiting work with them.

use super::{Action, Claiming, Pool, Seat, Waiting, Worker};
use grain_contract::{Lease, QueueName};
use shard::NodeId;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Waiting>,
    /// Workers of this node that may have room; checked when one is taken.
    near: Ring,
    /// Those of other nodes: a hop away, so they come second.
    far: Ring,
    /// How much waits at other owners and was not promised a place yet.
    pub(super) wants: BTreeMap<NodeId, u32>,
    /// Whose turn it is to get the next place.
    turn: usize,
}

/// Workers in the order of their turn, each at most once.
#[derive(Default)]
struct Ring {
    order: VecDeque<Arc<str>>,
    inside: HashSet<Arc<str>>,
}

impl Ring {
    fn push(&mut self, id: &Arc<str>) {
        if self.inside.insert(id.clone()) {
            self.order.push_back(id.clone());
        }
    }

    /// The next one that has room and sits where it should; those before it are dropped.
    fn next(&mut self, workers: &HashMap<Arc<str>, Worker>, sits: fn(&Seat) -> bool) -> Option<Arc<str>> {
        while let Some(id) = self.order.pop_front() {
            self.inside.remove(&id);
            if workers.get(&id).is_some_and(|worker| sits(&worker.seat) && worker.room() > 0) {
                return Some(id);
            }
        }
        None
    }
}

/// Who may get a place next.
enum Next {
    Ours,
    OfOwner(NodeId),
}

impl Queue {
    fn next_in_turn(&self) -> Option<Next> {
        let ours = usize::from(!self.waiting.is_empty());
        let among = ours + self.wants.len();
        if among == 0 {
            return None;
        }
        let at = self.turn % among;
        if at < ours {
            return Some(Next::Ours);
        }
        self.wants.keys().nth(at - ours).map(|node| Next::OfOwner(*node))
    }

    fn next_near(&mut self, workers: &HashMap<Arc<str>, Worker>) -> Option<Arc<str>> {
        self.near.next(workers, |seat| matches!(seat, Seat::Here(_)))
    }

    fn next_far(&mut self, workers: &HashMap<Arc<str>, Worker>) -> Option<Arc<str>> {
        self.far.next(workers, |seat| matches!(seat, Seat::Far(_)))
    }

    pub(super) fn serves_near(&self) -> bool {
        !self.near.order.is_empty()
    }

    fn put(&mut self, id: &Arc<str>, seat: &Seat) {
        match seat {
            Seat::Here(_) => self.near.push(id),
            Seat::Far(_) => self.far.push(id),
            Seat::Away => {}
        }
    }
}

impl Worker {
    /// Free places, as far as is known here, without those promised to other owners.
    pub(super) fn room(&self) -> u32 {
        match &self.seat {
            Seat::Here(here) if here.sender.is_some() && !here.draining => {
                let promised: u32 = here.promises.values().map(|(places, _)| *places).sum();
                here.capacity.saturating_sub(self.taken + here.placed + promised)
            }
            Seat::Far(far) if far.refusals.is_pausing() => 0,
            Seat::Far(far) => far.room.saturating_sub(self.taken + far.sent),
            Seat::Here(_) | Seat::Away => 0,
        }
    }
}

impl Pool {
    /// A place at a worker of this queue, unless older work waits for one.
    pub(crate) fn take(&mut self, queue: &QueueName, token: [u8; 16]) -> Option<Lease> {
        let queue = self.queues.get_mut(queue)?;
        if !queue.waiting.is_empty() {
            return None;
        }
        let lease = take_place(queue, &mut self.workers, token)?;
        self.note_room(&lease.worker);
        Some(lease)
    }

    /// The turn did not use it.
    pub(crate) fn give_back(&mut self, worker: &str) -> Vec<Action> {
        if let Some(found) = self.workers.get_mut(worker) {
            found.taken = found.taken.saturating_sub(1);
        }
        self.has_room_again(worker)
    }

    /// Gives each that waits for a place of this queue its turn: work of ours, and owners elsewhere.
    pub(super) fn pair(&mut self, name: &QueueName) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(queue) = self.queues.get_mut(name) {
            let Some(next) = queue.next_in_turn() else { break };
            if let Next::OfOwner(node) = next {
                if let Some(id) = queue.next_near(&self.workers) {
                    queue.turn = queue.turn.wrapping_add(1);
                    self.promise(name, &id, node);
                    continue;
                }
                // No place of ours to give: then only work of ours can find one, at another node.
                if queue.waiting.is_empty() {
                    break;
                }
            }
            let Some(lease) = take_place(queue, &mut self.workers, rand::random()) else { break };
            queue.turn = queue.turn.wrapping_add(1);
            let Some(waiting) = queue.waiting.pop_front() else { break };
            let attempt = waiting.item.attempt;
            self.waiting.remove(&attempt);
            let epoch = self.led.get(&waiting.shard).copied().unwrap_or_default();
            let claiming = Claiming { shard: waiting.shard, epoch, token: lease.token, withdrawn: None };
            self.claiming.insert(attempt, claiming);
            self.note_room(&lease.worker);
            actions.push(Action::Claim { waiting, lease });
        }
        actions
    }

    /// Offers the worker's room to its queues.
    pub(super) fn has_room_again(&mut self, id: &str) -> Vec<Action> {
        let Some(id) = self.workers.get_key_value(id).map(|(id, _)| id.clone()) else { return Vec::new() };
        self.note_room(&id);
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.room() > 0) else { return Vec::new() };
        // Another queue first each time, so that one full queue does not keep the worker from its others.
        worker.turn = worker.turn.wrapping_add(1);
        let first = worker.turn % worker.queues.len().max(1);
        let names: Vec<QueueName> = worker.queues[first..].iter().chain(&worker.queues[..first]).cloned().collect();
        let mut actions = Vec::new();
        for name in &names {
            let queue = self.queues.entry(name.clone()).or_default();
            if let Some(worker) = self.workers.get(&id) {
                queue.put(&id, &worker.seat);
            }
            if queue.next_in_turn().is_some() {
                actions.extend(self.pair(name));
            }
        }
        actions
    }

    /// A place of a worker is free that no lease or guest takes any more.
    pub(super) fn place_freed(&mut self, id: &str) -> Vec<Action> {
        if let Some(here) = self.workers.get_mut(id).and_then(Worker::here_mut) {
            here.placed = here.placed.saturating_sub(1);
        }
        self.has_room_again(id)
    }

    /// Other nodes hear soon that there is room where they believe none, or none where they believe some.
    pub(super) fn note_room(&mut self, id: &str) {
        let Some(worker) = self.workers.get(id) else { return };
        if let Seat::Here(here) = &worker.seat {
            self.news |= (here.told == 0) != (worker.room() == 0);
        }
    }

    /// Puts a worker that still has room back into the ring it was taken from.
    pub(super) fn back_into_ring(&mut self, queue: &QueueName, id: &Arc<str>) {
        if let (Some(queue), Some(worker)) = (self.queues.get_mut(queue), self.workers.get(id))
            && worker.room() > 0
        {
            queue.put(id, &worker.seat);
        }
    }
}

fn take_place(queue: &mut Queue, workers: &mut HashMap<Arc<str>, Worker>, token: [u8; 16]) -> Option<Lease> {
    let id = queue.next_near(workers).or_else(|| queue.next_far(workers))?;
    let worker = workers.get_mut(&id)?;
    worker.taken += 1;
    if worker.room() > 0 {
        queue.put(&id, &worker.seat);
    }
    Some(Lease { worker: id.to_string(), token: token_in(worker.session, token) })
}

/// A token says in which session of the worker its lease was made; the other half is random. An attempt is handed out in that
/// session or never.
///
/// That is how an owner that takes over can tell whether what it knows of a worker is new enough: a stream that broke without
/// its node noticing looks like a session in force, and knows nothing of what the worker was given elsewhere since.
pub(super) fn token_in(session: u64, mut token: [u8; 16]) -> [u8; 16] {
    token[8..].copy_from_slice(&session.to_be_bytes());
    token
}

pub(super) fn session_of(token: &[u8; 16]) -> u64 {
    let mut session = [0; 8];
    session.copy_from_slice(&token[8..]);
    u64::from_be_bytes(session)
}
