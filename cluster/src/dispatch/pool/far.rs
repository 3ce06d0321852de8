//! Workers that are connected to other nodes, as their owners hear of them.

use super::{Action, Delivery, Far, GuestHeld, Leased, Parcel, Pool, Refusals, Seat, Standing, Stop, Worker};
use grain_contract::QueueName;
use shard::{NodeId, ShardId};
use std::sync::Arc;

/// What an edge tells of one of its workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FarSession {
    pub(crate) worker: String,
    pub(crate) session: u64,
    pub(crate) gone: bool,
    /// `None`: as told before.
    pub(crate) queues: Option<Vec<QueueName>>,
    pub(crate) room: u32,
    pub(crate) stamp: u64,
}

impl Pool {
    /// As told last; what is on its way to them is not taken off.
    pub(crate) fn far_places(&self) -> u64 {
        let room = |worker: &Worker| if let Seat::Far(far) = &worker.seat { u64::from(far.room) } else { 0 };
        self.workers.values().map(room).sum()
    }

    /// An edge tells of a worker. All that this session listed of complete shards was told before.
    pub(crate) fn hear_worker(&mut self, edge: NodeId, told: FarSession) -> Vec<Action> {
        let id: Arc<str> = Arc::from(told.worker.as_str());
        let worker = self.workers.entry(id.clone()).or_insert_with(Worker::unknown);
        // An older session than the one in force: its node will hear of the newer one and end it.
        if told.session < worker.session {
            return Vec::new();
        }
        if told.session == worker.session {
            match &mut worker.seat {
                Seat::Far(far) if far.edge == edge => {
                    if told.stamp > far.stamp {
                        (far.room, far.stamp) = (told.room, told.stamp);
                        far.refusals.heard();
                    }
                    if let Some(queues) = told.queues {
                        worker.queues = queues;
                    }
                    if told.gone {
                        worker.seat = Seat::Away;
                    }
                    return self.has_room_again(&id);
                }
                // Forgotten while the edge was not to be reached, and told again.
                Seat::Away => {}
                Seat::Here(_) | Seat::Far(_) => return Vec::new(),
            }
        }
        self.supersede(&id, told.session);
        if let Some(worker) = self.workers.get_mut(&id).filter(|_| !told.gone) {
            worker.queues = told.queues.unwrap_or_default();
            let (room, stamp, refusals) = (told.room, told.stamp, Refusals::default());
            worker.seat = Seat::Far(Far { edge, room, stamp, sent: 0, refusals });
        }
        let mut actions = self.settle(&id);
        actions.extend(self.has_room_again(&id));
        self.news = true;
        actions
    }

    /// A session of this worker elsewhere was heard of; where, will be told. One here ends with its sender.
    fn supersede(&mut self, id: &Arc<str>, session: u64) {
        let worker = self.workers.entry(id.clone()).or_insert_with(Worker::unknown);
        worker.session = session;
        worker.seat = Seat::Away;
        self.guests_left(id);
        for leased in self.leases.values_mut().filter(|leased| leased.lease.worker == **id) {
            leased.has_place = false;
        }
    }

    /// An edge tells that a worker holds an attempt of ours. `true`: it does not, the lease is lost.
    pub(crate) fn hear_held(&mut self, edge: NodeId, shard: ShardId, told: GuestHeld) -> (Vec<Action>, bool) {
        if !self.led.contains_key(&shard) {
            return (Vec::new(), false);
        }
        let GuestHeld { grain, attempt, lease, session, age_ms } = told;
        let id: Arc<str> = Arc::from(lease.worker.as_str());
        if self.workers.get(&id).is_none_or(|worker| worker.session < session) {
            self.supersede(&id, session);
        }
        let deadline_ms = self.now_ms + self.lease_ms.saturating_sub(age_ms);
        let key = (attempt, lease.token);
        if let Some(leased) = self.leases.get_mut(key).filter(|leased| leased.standing != Standing::Expiring) {
            leased.session = leased.session.max(session);
            if leased.standing == Standing::Interrupted {
                let reason = "it is not wanted any more".to_owned();
                let stop = Stop { tenant: grain.tenant, attempt, token: lease.token, reason, lost: false };
                return (vec![Action::Send { edge, parcel: Parcel::Stop(stop) }], false);
            }
            leased.deadline_ms = leased.deadline_ms.max(deadline_ms);
            return (Vec::new(), false);
        }
        if self.is_lost(key) {
            return (Vec::new(), true);
        }
        let (worker, verify) = (lease.worker.clone(), (grain.clone(), lease.clone()));
        let (standing, has_place, delivery) = (Standing::Verifying, false, Delivery::Over);
        let leased = Leased { grain, shard, lease, deadline_ms, standing, has_place, session, delivery };
        self.leases.put(attempt, leased);
        // A later session of the worker may be known, which does not hold it.
        let mut actions = self.settle(&worker);
        if actions.is_empty() {
            actions.push(Action::Verify { grain: verify.0, attempt, lease: verify.1 });
        }
        (actions, false)
    }

    /// The node has told all that its workers hold of a shard led here, takes no assignment of an earlier epoch any more, and
    /// tells of each new session what it holds before or with the session itself. So from now on: what one of its workers does
    /// not say it holds, and what is not on its way to it, it never got.
    pub(crate) fn completed(&mut self, shard: ShardId, edge: NodeId) -> Vec<Action> {
        if !self.led.contains_key(&shard) || !self.complete.insert((shard, edge)) {
            return Vec::new();
        }
        let there = self.workers.iter().filter(|(_, worker)| worker.edge() == Some(edge)).map(|(id, _)| id.clone());
        let there: Vec<Arc<str>> = there.collect();
        there.iter().flat_map(|id| self.settle(id)).collect()
    }

    /// The node vouches for no other shards any more: it knows of another owner of those.
    pub(crate) fn only_complete(&mut self, edge: NodeId, shards: &[ShardId]) {
        self.complete.retain(|(shard, node)| *node != edge || shards.contains(shard));
    }

    /// Nothing is known of this node any more. The leases of its workers run on; it, or whoever they turn to, will tell.
    pub(crate) fn edge_lost(&mut self, edge: NodeId) -> Vec<Action> {
        self.complete.retain(|(_, node)| *node != edge);
        for worker in self.workers.values_mut().filter(|worker| worker.edge() == Some(edge)) {
            worker.seat = Seat::Away;
        }
        for queue in self.queues.values_mut() {
            queue.wants.remove(&edge);
        }
        self.end_promises_to(edge)
    }
}
