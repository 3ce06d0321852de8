//! Workers that wander from node to node with what they hold.

use super::bag::{Event, QUEUES, SHARDS, TENANTS, World};
use crate::ToWorker;
use crate::dispatch::pool::Listed;
use crate::placement::home_of;
use grain_contract::{GrainId, Lease, TenantId};
use rand::RngExt as _;
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use uuid::Uuid;

pub(super) struct Held {
    pub(super) grain: GrainId,
    pub(super) shard: ShardId,
    pub(super) lease: Lease,
    pub(super) is_finished: bool,
    /// In this session; the answer is not here yet.
    pub(super) is_reported: bool,
}

pub(super) struct Worker {
    pub(super) id: String,
    pub(super) capacity: u32,
    pub(super) sessions: u64,
    pub(super) at: Option<Session>,
    pub(super) held: BTreeMap<Uuid, Held>,
}

pub(super) struct Session {
    pub(super) node: NodeId,
    pub(super) number: u64,
    pub(super) receiver: mpsc::UnboundedReceiver<ToWorker>,
}

impl Worker {
    pub(super) fn new(n: usize, capacity: u32) -> Self {
        Self { id: format!("w{n}"), capacity, sessions: 0, at: None, held: BTreeMap::new() }
    }

    pub(super) fn list(&self) -> Vec<Listed> {
        let listed = |(attempt, held): (&Uuid, &Held)| Listed {
            attempt: *attempt,
            grain: held.grain.clone(),
            shard: held.shard,
            token: held.lease.token,
        };
        self.held.iter().map(listed).collect()
    }
}

impl World {
    pub(super) fn wander(&mut self) {
        let n = self.rng.random_range(0..self.workers.len());
        if self.chance(30) {
            self.disconnect(n);
        } else {
            self.connect(n);
        }
    }

    pub(super) fn disconnect(&mut self, n: usize) {
        let Some(mut session) = self.workers[n].at.take() else { return };
        let mut unread = Vec::new();
        session.receiver.close();
        while let Ok(message) = session.receiver.try_recv() {
            // Some had left already, and broke with the stream.
            if !self.chance(30) {
                unread.push(message);
            }
        }
        // The node may notice late: then the next session, wherever, comes before that.
        let worker = self.workers[n].id.clone();
        for tenant in TENANTS {
            if self.tenant_of(n).as_str() == tenant {
                let unread = std::mem::take(&mut unread);
                self.with(session.node, &tenant.into(), |pool| pool.disconnect(&worker, session.number, unread));
            }
        }
    }

    pub(super) fn tenant_of(&self, n: usize) -> TenantId {
        TenantId::new(TENANTS[n % TENANTS.len()])
    }

    pub(super) fn connect(&mut self, n: usize) {
        if self.chance(50) || self.is_calm {
            self.disconnect(n);
        } else {
            // A half-open stream: its node believes in it until it hears of the next.
            self.ghosts.extend(self.workers[n].at.take());
        }
        let node = self.any_node();
        let tenant = self.tenant_of(n);
        let worker = &mut self.workers[n];
        worker.sessions += 1;
        for held in worker.held.values_mut() {
            held.is_reported = false;
        }
        let (id, capacity, stated, list) = (worker.id.clone(), worker.capacity, worker.sessions, worker.list());
        let pool = self.nodes[&node].tenants.pool(&tenant);
        let (number, receiver, actions) = {
            let mut pool = pool.lock();
            let number = pool.at(self.now_ms).next_session(&id, stated, 0);
            let number = number.unwrap_or_else(|| panic!("seed {}: session {stated} is not the latest", self.seed));
            let (receiver, actions) = pool.connect(&id, number, QUEUES.map(Into::into).to_vec(), capacity, &list);
            (number, receiver, actions)
        };
        self.workers[n].at = Some(Session { node, number, receiver });
        self.follow(node, actions.into_iter().map(|action| (tenant.clone(), action)).collect());
    }

    /// Reads what came, and ends something it holds.
    pub(super) fn work(&mut self) {
        let n = self.rng.random_range(0..self.workers.len());
        let worker = &mut self.workers[n];
        let Some(session) = &mut worker.at else { return };
        while let Ok(message) = session.receiver.try_recv() {
            match message {
                ToWorker::Assign { grain, item, lease, .. } => {
                    let seed = self.seed;
                    assert!(!self.rows.unstarted.contains(&lease.token), "seed {seed}: handed out after all");
                    self.rows.started.insert(lease.token);
                    let shard = home_of(&grain, SHARDS);
                    // Its own bound: what it reported it does not do any more.
                    worker
                        .held
                        .insert(item.attempt, Held { grain, shard, lease, is_finished: false, is_reported: false });
                }
                ToWorker::Interrupt { attempt, .. } => {
                    worker.held.remove(&attempt);
                }
            }
        }
        let open: Vec<Uuid> =
            worker.held.iter().filter(|(_, held)| !held.is_reported).map(|(attempt, _)| *attempt).collect();
        if open.is_empty() {
            return;
        }
        let attempt = open[self.rng.random_range(0..open.len())];
        let worker = &mut self.workers[n];
        let (Some(held), Some(session)) = (worker.held.get_mut(&attempt), &worker.at) else { return };
        (held.is_finished, held.is_reported) = (true, true);
        let (node, session, lease) = (session.node, session.number, held.lease.clone());
        let (id, tenant) = (worker.id.clone(), self.tenant_of(n));
        self.with(node, &tenant, |pool| pool.finished(&id, attempt));
        self.put(Event::Report { worker: n, node, session, attempt, lease });
    }

    pub(super) fn reported(&mut self, n: usize, node: NodeId, session: u64, attempt: Uuid, lease: Lease) {
        let shard = self.rows.attempts[&attempt].shard;
        let (owner, epoch) = self.rows.owners[shard.0 as usize];
        if self.nodes[&owner].tenants.epoch(shard) != Some(epoch) {
            return self.put(Event::Report { worker: n, node, session, attempt, lease });
        }
        let accepted = self.rows.report(attempt, &lease);
        let tenant = self.tenant_of(n);
        if accepted {
            self.with(owner, &tenant, |pool| pool.withdraw(attempt, false, "reported").0);
        }
        // The answer finds the session that reported, or nobody.
        let is_there = self.workers[n].at.as_ref().is_some_and(|at| at.node == node && at.number == session);
        if is_there {
            let id = self.workers[n].id.clone();
            self.workers[n].held.remove(&attempt);
            self.with(node, &tenant, |pool| pool.release(&id, attempt));
        }
    }

    pub(super) fn renew(&mut self) {
        for n in 0..self.workers.len() {
            let tenant = self.tenant_of(n);
            let worker = &self.workers[n];
            let Some(session) = &worker.at else { continue };
            let attempts: Vec<Uuid> = worker.held.keys().copied().collect();
            let (node, id) = (session.node, worker.id.clone());
            let mut lost = Vec::new();
            self.with(node, &tenant, |pool| {
                lost = pool.renew(&id, &attempts);
                Vec::new()
            });
            for attempt in lost {
                self.workers[n].held.remove(&attempt);
            }
        }
    }
}
