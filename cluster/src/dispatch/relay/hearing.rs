//! What a peer tells, taken in its order and once.

use super::State;
use super::wire::{far_session, guest_held, led};
use crate::dispatch::tenants::{Acts, Tenants};
use grain_contract::{QueueName, TenantId};
use granary_proto::peers::{Holding, Lost, Tell, TellAnswer};
use shard::{NodeId, ShardId};

/// How far a peer was heard.
#[derive(Default)]
pub(super) struct Heard {
    /// What we call this hearing; 0 = nothing is known of the peer.
    hearing: u64,
    /// Of its latest process that was heard of, and its name.
    life: u64,
    pub(super) process: u64,
    version: u64,
    /// The latest of its clock that it told.
    pub(super) now_ms: u64,
}

impl Heard {
    pub(super) fn forget(&mut self) {
        *self = Self { life: self.life, process: self.process, now_ms: self.now_ms, ..Self::default() };
    }
}

impl State {
    /// `fresh`: a random name for a new hearing.
    pub(crate) fn hear(
        &mut self,
        from: NodeId,
        tell: Tell,
        tenants: &Tenants,
        fresh: u64,
        now_ms: u64,
    ) -> (TellAnswer, Acts) {
        let heard = &mut self.peers.entry(from).or_default().heard;
        let mut acts = Acts::new();
        if tell.life > heard.life {
            *heard = Heard { life: tell.life, process: tell.process, ..Heard::default() };
            acts.extend(tenants.edge_lost(from, now_ms));
        }
        let is_latest = tell.life == heard.life && tell.process == heard.process;
        if is_latest {
            heard.now_ms = heard.now_ms.max(tell.now_ms);
        }
        // It begins again, and may not remember what it told before: so that is forgotten here too.
        let begins_again = is_latest && tell.hearing == 0 && tell.version > heard.version;
        if begins_again {
            heard.version = tell.version;
            acts.extend(tenants.edge_lost(from, now_ms));
        }
        if begins_again || heard.hearing == 0 {
            heard.hearing = fresh.max(1);
        }
        // A process whose life is no later than a former one's is to take a later one.
        let outlive = if tell.process == heard.process { 0 } else { heard.life };
        let mut answer = TellAnswer { hearing: heard.hearing, outlive, lost: Vec::new() };
        if !is_latest || tell.hearing != heard.hearing || tell.version <= heard.version {
            return (answer, acts);
        }
        heard.version = tell.version;
        self.hear_leads(from, &tell, tenants, now_ms);
        let complete = tell.complete.iter().map(led).filter(|(shard, epoch)| tenants.epoch(*shard) == Some(*epoch));
        let complete: Vec<ShardId> = complete.map(|(shard, _)| shard).collect();
        tenants.only_complete(from, &complete, now_ms);
        for holding in tell.holdings {
            self.hear_holding(from, holding, tenants, now_ms, &mut answer, &mut acts);
        }
        for worker in tell.workers {
            let tenant = TenantId::new(&worker.tenant);
            let actions = tenants.pool(&tenant).lock().at(now_ms).hear_worker(from, far_session(worker));
            acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
        }
        for shard in complete {
            acts.extend(tenants.completed(shard, from, now_ms));
        }
        for want in &tell.wants {
            let tenant = TenantId::new(&want.tenant);
            let Some(pool) = tenants.get(&tenant) else { continue };
            let actions = pool.lock().at(now_ms).hear_want(from, &QueueName::new(&want.queue), want.waiting);
            acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
        }
        (answer, acts)
    }

    /// Whoever leads a shard anew is told all that our workers hold of it.
    fn hear_leads(&mut self, from: NodeId, tell: &Tell, tenants: &Tenants, now_ms: u64) {
        let mut changed: Vec<ShardId> = Vec::new();
        for told in &tell.leads {
            let (shard, epoch) = led(told);
            if self.leads.get(&shard).is_none_or(|(_, known)| *known < epoch) {
                self.leads.insert(shard, (from, epoch));
                changed.push(shard);
            }
        }
        if !changed.is_empty() {
            tenants.each(now_ms, |pool| {
                pool.tell_all_again(&|shard| changed.contains(&shard));
                Vec::new()
            });
        }
    }

    fn hear_holding(
        &self,
        from: NodeId,
        told: Holding,
        tenants: &Tenants,
        now_ms: u64,
        answer: &mut TellAnswer,
        acts: &mut Acts,
    ) {
        let Some(held) = guest_held(&told) else {
            tracing::warn!(from, "a holding that cannot be read");
            return;
        };
        let tenant = held.grain.tenant.clone();
        let shard = crate::placement::home_of(&held.grain, self.shards);
        let (actions, is_lost) = tenants.pool(&tenant).lock().at(now_ms).hear_held(from, shard, held);
        acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
        if is_lost {
            answer.lost.push(Lost { tenant: told.tenant, attempt: told.attempt, token: told.token });
        }
    }
}
