//! The workers that are connected to this node.

use super::claims::Key;
use super::{Action, Delivery, Here, Leased, Pool, Seat, Standing, Worker};
use crate::ToWorker;
use grain_contract::{GrainId, Lease, QueueName};
use shard::ShardId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use uuid::Uuid;

/// An attempt that a worker says it holds.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) attempt: Uuid,
    pub(crate) grain: GrainId,
    pub(crate) shard: ShardId,
    pub(crate) token: [u8; 16],
}

impl Worker {
    pub(super) fn unknown() -> Self {
        Self { seat: Seat::Away, session: 0, queues: Vec::new(), taken: 0, turn: 0 }
    }
}

impl Pool {
    /// The number of a session that begins now; `None` if a later one of this worker is known. `stated`: by the worker, 0 =
    /// nothing. `wall_ms`: at least greater than those of long ago, if the worker states none.
    pub(crate) fn next_session(&self, id: &str, stated: u64, wall_ms: u64) -> Option<u64> {
        let known = self.workers.get(id).map_or(0, |worker| worker.session);
        match stated {
            0 => Some(wall_ms.max(known + 1)),
            stated => (stated > known).then_some(stated),
        }
    }

    /// A worker came, or came back. Its earlier session, if any, is over.
    pub(crate) fn connect(
        &mut self,
        id: &str,
        session: u64,
        queues: Vec<QueueName>,
        capacity: u32,
        held: &[Listed],
    ) -> (mpsc::UnboundedReceiver<ToWorker>, Vec<Action>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let id: Arc<str> = Arc::from(id);
        let worker = self.workers.entry(id.clone()).or_insert_with(Worker::unknown);
        worker.session = session;
        worker.queues = queues;
        worker.seat = Seat::Here(Here {
            sender: Some(sender),
            capacity,
            placed: 0,
            promises: BTreeMap::new(),
            draining: false,
            told: 0,
        });
        self.guests_left(&id);
        let mut actions = Vec::new();
        for listed in held {
            if self.led.contains_key(&listed.shard) {
                actions.extend(self.held_again(&id, session, listed));
            } else {
                self.guest_again(&id, session, listed);
            }
        }
        let leases = self.leases.values().filter(|leased| leased.lease.worker == *id && leased.session == session);
        let placed = leases.filter(|leased| leased.has_place).count() + self.guest_places(&id);
        if let Some(here) = self.workers.get_mut(&id).and_then(Worker::here_mut) {
            here.placed = u32::try_from(placed).unwrap_or(u32::MAX);
        }
        // Those of an earlier session take no place of this one.
        for leased in self.leases.values_mut().filter(|l| l.lease.worker == *id && l.session != session) {
            leased.has_place = false;
        }
        actions.extend(self.settle(&id));
        actions.extend(self.has_room_again(&id));
        self.news = true;
        (receiver, actions)
    }

    fn held_again(&mut self, id: &str, session: u64, listed: &Listed) -> Vec<Action> {
        let deadline_ms = self.now_ms + self.lease_ms;
        let lease = Lease { worker: id.to_owned(), token: listed.token };
        let key = (listed.attempt, listed.token);
        if let Some(leased) = self.leases.get_mut(key).filter(|leased| leased.standing != Standing::Expiring) {
            leased.session = session;
            leased.has_place = true;
            if leased.standing == Standing::Interrupted {
                self.tell(id, listed.attempt, "it is not wanted any more");
            } else {
                leased.deadline_ms = deadline_ms;
            }
            return Vec::new();
        }
        if self.is_lost(key) {
            self.tell(id, listed.attempt, "the lease is lost");
            return Vec::new();
        }
        // Not known here (yet): the grain knows.
        let grain = listed.grain.clone();
        let leased = Leased {
            grain: grain.clone(),
            shard: listed.shard,
            lease: lease.clone(),
            deadline_ms,
            standing: Standing::Verifying,
            has_place: true,
            session,
            delivery: Delivery::Over,
        };
        self.leases.put(listed.attempt, leased);
        vec![Action::Verify { grain, attempt: listed.attempt, lease }]
    }

    /// Whether the attempt is known to be leased otherwise, or not any more, so that the grain need not be asked.
    pub(super) fn is_lost(&self, (attempt, token): Key) -> bool {
        let known = self.leases.all_of(attempt);
        known.iter().any(|leased| match leased.standing {
            Standing::Expiring => leased.lease.token == token,
            Standing::Held | Standing::Interrupted => leased.lease.token != token,
            Standing::Verifying => false,
        })
    }

    /// The session is over; what it had not read of its assignments never left this process.
    pub(crate) fn disconnect(&mut self, id: &str, session: u64, unread: Vec<ToWorker>) -> Vec<Action> {
        let Some(worker) = self.workers.get_mut(id).filter(|worker| worker.session == session) else {
            return Vec::new();
        };
        if !matches!(worker.seat, Seat::Here(_)) {
            return Vec::new();
        }
        worker.seat = Seat::Away;
        self.news = true;
        let mut actions = Vec::new();
        for message in unread {
            if let ToWorker::Assign { grain, item, lease, .. } = message {
                actions.extend(self.not_handed_out(grain, item.attempt, lease));
            }
        }
        actions
    }

    /// It was on its way to a worker that is, or was, connected here, and will not leave this process.
    pub(crate) fn not_handed_out(&mut self, grain: GrainId, attempt: Uuid, lease: Lease) -> Vec<Action> {
        let key = (attempt, lease.token);
        match self.leases.get(key).map(|leased| leased.standing) {
            Some(Standing::Held | Standing::Verifying) => self.end(key, true),
            Some(Standing::Interrupted) => self.forget(key),
            Some(Standing::Expiring) => self.free_place(key),
            None => {
                let Some(worker) = self.forget_guest(key) else { return Vec::new() };
                let mut actions = vec![Action::Expired { grain, attempt, lease, never_started: true }];
                actions.extend(self.has_room_again(&worker));
                actions
            }
        }
    }

    /// Gives back those that are not this worker's any more.
    pub(crate) fn renew(&mut self, id: &str, attempts: &[Uuid]) -> Vec<Uuid> {
        let mut lost = Vec::new();
        for attempt in attempts {
            let is_its_own = match self.leases.of_worker(*attempt, id) {
                Some(leased) if leased.standing != Standing::Expiring => {
                    if leased.standing != Standing::Interrupted {
                        leased.deadline_ms = self.now_ms + self.lease_ms;
                    }
                    true
                }
                Some(_) => false,
                None => self.renew_guest(id, *attempt),
            };
            if !is_its_own {
                lost.push(*attempt);
            }
        }
        lost
    }

    /// The worker is done with it; the lease stays.
    pub(crate) fn finished(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        match self.leases.of_worker(attempt, id) {
            Some(leased) => {
                let key = (attempt, leased.lease.token);
                self.free_place(key)
            }
            None => self.free_guest_place(id, attempt),
        }
    }

    /// The lease is over by report.
    pub(crate) fn release(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        match self.leases.of_worker(attempt, id) {
            Some(leased) => {
                let key = (attempt, leased.lease.token);
                self.forget(key)
            }
            None => self.release_guest(id, attempt),
        }
    }

    pub(crate) fn drain(&mut self, id: &str) {
        if let Some(here) = self.workers.get_mut(id).and_then(Worker::here_mut) {
            here.draining = true;
            here.promises.clear();
            self.news = true;
        }
    }

    /// No new attempts for anybody; `elsewhere`: the sessions end, so that workers look for another node.
    pub(crate) fn drain_all(&mut self, elsewhere: bool) {
        for here in self.workers.values_mut().filter_map(Worker::here_mut) {
            here.draining = true;
            here.promises.clear();
            if elsewhere {
                here.sender = None;
            }
        }
        self.news = true;
    }

    /// Says something to a worker that is connected here.
    pub(super) fn tell(&self, id: &str, attempt: Uuid, reason: &str) {
        if let Some(sender) = self.workers.get(id).and_then(Worker::here).and_then(|here| here.sender.as_ref()) {
            // A session that is just ending hears it when it comes back.
            let _ = sender.send(ToWorker::Interrupt { attempt, reason: reason.to_owned() });
        }
    }
}
