//! What grains do in the world: turns, and what follows them.

use super::bag::{Event, QUEUES, SHARDS, TENANTS, World};
use super::grains::Attempt;
use crate::Moment;
use crate::dispatch::pool::{Claimed, Taking, Waiting};
use crate::placement::home_of;
use grain_contract::{Epoch, GrainId, Lease, TenantId};
use rand::RngExt as _;
use shard::NodeId;
use uuid::Uuid;

pub(super) const ATTEMPTS_MAX: usize = 60;

impl World {
    /// A turn makes an attempt, and commits it with or without a lease.
    pub(super) fn submit(&mut self) {
        if self.rows.attempts.len() >= ATTEMPTS_MAX {
            return;
        }
        let id = Uuid::from_u128(self.rows.attempts.len() as u128 + 1);
        let tenant = TenantId::new(TENANTS[self.rng.random_range(0..TENANTS.len())]);
        let grain = GrainId::new(&tenant, &"toy".into(), &id.to_string());
        let shard = home_of(&grain, SHARDS);
        let queue = QUEUES[self.rng.random_range(0..QUEUES.len())].into();
        self.rows.attempts.insert(id, Attempt { grain, shard, queue, lease: None, is_done: false });
        self.turn_that_offers(id);
    }

    /// At the owner, if it knows that it is; otherwise its first look at the rows will offer it.
    pub(super) fn turn_that_offers(&mut self, id: Uuid) {
        let attempt = &self.rows.attempts[&id];
        let (node, epoch) = self.rows.owners[attempt.shard.0 as usize];
        let (tenants, process) = (self.nodes[&node].tenants.clone(), self.nodes[&node].process);
        if tenants.epoch(attempt.shard) != Some(epoch) {
            return;
        }
        let pool = tenants.pool(&attempt.grain.tenant);
        let took = pool.lock().at(self.now_ms).take(&attempt.queue, self.rng.random());
        if let Some(attempt) = self.rows.attempts.get_mut(&id) {
            attempt.lease.clone_from(&took);
        }
        self.put(Event::Offer { node, process, epoch, attempt: id, took });
    }

    pub(super) fn offer(&mut self, node: NodeId, process: u64, epoch: Epoch, id: Uuid, took: Option<Lease>) {
        if !self.is_of(node, process) {
            return;
        }
        let attempt = &self.rows.attempts[&id];
        let (led, grain) = ((attempt.shard, epoch), attempt.grain.clone());
        let (lease, is_done) = (attempt.lease.clone(), attempt.is_done);
        let item = attempt.item(id);
        let is_owner = self.rows.is_owner(led.0, node, epoch);
        if let Some(lease) = took {
            let taking = Taking { place: true, since: Moment::at(self.now_ms), is_late: self.is_late() };
            return self.with(node, &grain.tenant, |pool| pool.assign(led, &grain, item, lease, taking));
        }
        // Turns of a grain never overlap: what follows the one before comes first.
        let follows = |event: &Event| {
            matches!(event, Event::Offer { node: n, process: p, epoch: e, attempt, took: Some(_) }
                if (*n, *p, *e, *attempt) == (node, process, epoch, id))
        };
        if self.bag.iter().any(follows) {
            return self.put(Event::Offer { node, process, epoch, attempt: id, took });
        }
        // Looks at the rows, so only an owner can.
        if !is_owner || is_done {
            return;
        }
        self.with(node, &grain.tenant.clone(), |pool| match lease {
            _ if !pool.leads(led) => Vec::new(),
            Some(lease) => pool.expect(led.0, &grain, id, lease),
            None if pool.knows(id) => Vec::new(),
            None => pool.enqueue(Waiting { grain, shard: led.0, item }),
        });
    }

    /// The node stood still between the commit and what follows it.
    fn is_late(&mut self) -> bool {
        !self.is_calm && self.chance(5)
    }

    pub(super) fn claim(&mut self, node: NodeId, process: u64, epoch: Option<Epoch>, waiting: Waiting, lease: Lease) {
        if !self.is_of(node, process) {
            return;
        }
        let Some(answer) = self.ask(node, epoch, waiting.item.attempt, &lease, false) else {
            return self.put(Event::Claim { node, process, epoch, waiting, lease });
        };
        let tenant = waiting.grain.tenant.clone();
        let taking = Taking { place: true, since: Moment::at(self.now_ms), is_late: self.is_late() };
        self.with(node, &tenant, |pool| pool.claim_answered(waiting, lease, answer, taking));
    }

    pub(super) fn verify(&mut self, node: NodeId, process: u64, epoch: Option<Epoch>, attempt: Uuid, lease: Lease) {
        if !self.is_of(node, process) {
            return;
        }
        let tenant = self.rows.attempts[&attempt].grain.tenant.clone();
        let Some(answer) = self.ask(node, epoch, attempt, &lease, true) else {
            return self.put(Event::Verify { node, process, epoch, attempt, lease });
        };
        self.with(node, &tenant, |pool| pool.verified(attempt, &lease, answer));
    }

    /// `None`: no answer yet.
    pub(super) fn ask(
        &mut self,
        node: NodeId,
        epoch: Option<Epoch>,
        id: Uuid,
        lease: &Lease,
        held: bool,
    ) -> Option<Claimed> {
        let shard = self.rows.attempts[&id].shard;
        let Some(epoch) = epoch.filter(|epoch| self.nodes[&node].tenants.epoch(shard) == Some(*epoch)) else {
            return Some(Claimed::Gone);
        };
        if !self.rows.is_owner(shard, node, epoch) {
            // Fenced: it will hear in its time that it does not lead.
            return None;
        }
        let claimed = self.rows.claim(id, lease, held);
        if !self.is_calm && self.chance(10) {
            // Committed, and the outcome not known.
            return None;
        }
        Some(if claimed { Claimed::Yes } else { Claimed::No })
    }

    pub(super) fn never_started(&mut self, node: NodeId, process: u64, id: Uuid, lease: Lease) {
        let shard = self.rows.attempts[&id].shard;
        let (owner, epoch) = self.rows.owners[shard.0 as usize];
        if !self.is_of(node, process) {
            return;
        }
        if self.nodes[&owner].tenants.epoch(shard) != Some(epoch) {
            return self.put(Event::NeverStarted { node, process, attempt: id, lease });
        }
        if self.rows.never_started(id, &lease) {
            self.turn_that_offers(id);
        }
        let tenant = self.rows.attempts[&id].grain.tenant.clone();
        self.with(node, &tenant, |pool| pool.expiry_told(id, &lease));
    }
}
