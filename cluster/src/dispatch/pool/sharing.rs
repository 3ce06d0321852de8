//! How the places of this node's workers are shared among the owners of work.
//!
//! As long as nothing waits, every owner is told a share of each worker's room, and of the last place all are told: whoever
//! comes first has it, and another is refused. That costs the other one two commits, so once work waits anywhere, places are
//! promised instead, each to one owner in its turn. A promise that is not used for a while is void.

use super::{Action, FarSession, Pool, Worker};
use grain_contract::QueueName;
use shard::NodeId;
use std::collections::HashMap;
use std::sync::Arc;

/// How long a promised place is kept.
const PROMISE_MS: u64 = 1_000;

/// What was told of one worker's room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoomTold {
    pub(crate) session: u64,
    /// `None`: something was told, and whether that arrived is not known.
    pub(crate) room: Option<u32>,
    pub(crate) stamp: u64,
    /// Whether the session itself is known to have arrived, with its queues. If not, it may have, so its end is told too.
    pub(crate) arrived: bool,
}

impl Pool {
    /// So much of this queue waits at another owner.
    pub(crate) fn hear_want(&mut self, node: NodeId, name: &QueueName, waiting: u32) -> Vec<Action> {
        // A queue that no worker serves here is none of ours; whoever connects later finds the want told again.
        let Some(queue) = self.queues.get_mut(name) else { return Vec::new() };
        if waiting == 0 {
            queue.wants.remove(&node);
            return Vec::new();
        }
        queue.wants.insert(node, waiting);
        if queue.serves_near() { self.pair(name) } else { Vec::new() }
    }

    /// What waits here, by queue.
    pub(crate) fn wants(&self) -> impl Iterator<Item = (&QueueName, u32)> {
        let waits = self.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        waits.map(|(name, queue)| (name, u32::try_from(queue.waiting.len()).unwrap_or(u32::MAX)))
    }

    pub(super) fn promise(&mut self, name: &QueueName, id: &Arc<str>, node: NodeId) {
        let until = self.now_ms + PROMISE_MS;
        if let Some(here) = self.workers.get_mut(id).and_then(Worker::here_mut) {
            let promised = here.promises.entry(node).or_insert((0, until));
            *promised = (promised.0 + 1, until);
        }
        if let Some(queue) = self.queues.get_mut(name)
            && let Some(waiting) = queue.wants.get_mut(&node)
        {
            *waiting -= 1;
            if *waiting == 0 {
                queue.wants.remove(&node);
            }
        }
        self.back_into_ring(name, id);
        self.news = true;
    }

    pub(super) fn end_promises(&mut self) -> Vec<Action> {
        let now_ms = self.now_ms;
        self.end_promises_where(|_, until| until <= now_ms)
    }

    pub(super) fn end_promises_to(&mut self, node: NodeId) -> Vec<Action> {
        self.end_promises_where(|to, _| to == node)
    }

    fn end_promises_where(&mut self, over: impl Fn(NodeId, u64) -> bool) -> Vec<Action> {
        let mut freed = Vec::new();
        for (id, worker) in &mut self.workers {
            let Some(here) = worker.here_mut().filter(|here| !here.promises.is_empty()) else { continue };
            let before = here.promises.len();
            here.promises.retain(|node, (places, until)| *places > 0 && !over(*node, *until));
            if here.promises.len() < before {
                freed.push(id.clone());
            }
        }
        freed.iter().flat_map(|id| self.has_room_again(id)).collect()
    }

    /// How many attempts this owner may assign to the worker, with `owners` sharing the room.
    pub(super) fn room_for(&self, id: &str, owner: NodeId, owners: u32) -> u32 {
        let Some(worker) = self.workers.get(id) else { return 0 };
        let Some(here) = worker.here() else { return 0 };
        if here.draining {
            return 0;
        }
        let promised = here.promises.get(&owner).map_or(0, |(places, _)| *places);
        promised + share(worker.room(), owners)
    }

    /// The workers connected here whose room for this owner is not as it was told, and those told of that are not any more.
    pub(crate) fn rooms_to_tell(
        &mut self,
        owner: NodeId,
        owners: u32,
        told: &HashMap<Arc<str>, RoomTold>,
    ) -> Vec<FarSession> {
        self.stamp += 1;
        let stamp = self.stamp;
        let mut changes = Vec::new();
        for (id, worker) in self.workers.iter().filter(|(_, worker)| worker.here().is_some()) {
            let (session, room) = (worker.session, self.room_for(id, owner, owners));
            let before = told.get(id).filter(|before| before.session == session);
            if before.is_some_and(|before| before.room == Some(room)) {
                continue;
            }
            let queues = before.is_none_or(|before| !before.arrived).then(|| worker.queues.clone());
            changes.push(FarSession { worker: id.to_string(), session, gone: false, queues, room, stamp });
        }
        for change in &changes {
            if let Some(here) = self.workers.get_mut(change.worker.as_str()).and_then(Worker::here_mut) {
                here.told = change.room;
            }
        }
        let is_here = |id: &Arc<str>| self.workers.get(id).is_some_and(|worker| worker.here().is_some());
        for (id, before) in told.iter().filter(|(id, _)| !is_here(id)) {
            let (worker, session) = (id.to_string(), before.session);
            changes.push(FarSession { worker, session, gone: true, queues: None, room: 0, stamp });
        }
        changes
    }
}

/// One owner's part of what is free.
fn share(free: u32, owners: u32) -> u32 {
    (free / owners.max(1)).max(free.min(1))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn room_is_shared_and_the_last_place_is_told_to_all() {
        for (free, owners, part) in [(0, 3, 0), (1, 3, 1), (2, 3, 1), (3, 3, 1), (10, 3, 3), (64, 1, 64), (5, 0, 5)] {
            assert_eq!(share(free, owners), part, "{free} among {owners}");
        }
    }
}
