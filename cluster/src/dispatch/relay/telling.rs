//! What this node tells a peer: what it leads, what its workers hold of the peer's shards, their room, and what waits.
//!
//! State, as far as the peer has not confirmed it. What is in a telling counts as told once it was answered; otherwise it is in
//! the next one again.

use super::wire::{far_worker, holding, led_shard, token_of};
use super::{Acts, State};
use crate::dispatch::pool::{FarSession, RoomTold, Stop};
use crate::dispatch::tenants::Tenants;
use grain_contract::{Epoch, QueueName, TenantId};
use granary_proto::peers::{LedShard, Tell, TellAnswer, Want};
use shard::{NodeId, ShardId};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// Holdings in one telling; it must fit a call's body.
const HOLDINGS_MAX: usize = 2_000;
/// Bytes of workers in one telling, roughly.
const WORKER_BYTES_MAX: usize = 1 << 20;
/// Wants in one telling.
const WANTS_MAX: usize = 2_000;

#[derive(Default)]
pub(super) struct Telling {
    /// As the peer calls its hearing of us; 0 = not known yet.
    hearing: u64,
    version: u64,
    leads: Vec<(ShardId, Epoch)>,
    rooms: HashMap<TenantId, HashMap<Arc<str>, RoomTold>>,
    complete: Vec<LedShard>,
    wants: HashMap<(TenantId, QueueName), u32>,
}

impl Telling {
    /// The answer to an assignment tells of the worker's room too, but may not arrive.
    pub(super) fn told_in_answer(&mut self, tenant: &TenantId, worker: &str, at: u64) {
        if let Some(told) = self.rooms.get_mut(tenant).and_then(|rooms| rooms.get_mut(worker)) {
            (told.room, told.stamp) = (None, at);
        }
    }

    /// Everything is to be told again. The version goes on, since the peer may remember it.
    pub(super) fn begin_again(&mut self, hearing: u64) {
        *self = Self { hearing, version: self.version, ..Self::default() };
    }
}

/// What is in one telling.
#[derive(Default)]
pub(crate) struct Record {
    /// The telling it was made by; after a reset the answer says nothing.
    hearing: u64,
    leads: Option<Vec<(ShardId, Epoch)>>,
    holdings: Vec<(TenantId, (Uuid, [u8; 16]))>,
    rooms: Vec<(TenantId, FarSession)>,
    complete: Option<Vec<LedShard>>,
    wants: Vec<((TenantId, QueueName), u32)>,
    more: bool,
}

impl Record {
    /// Whether it says nothing that the peer does not know.
    pub(crate) fn is_empty(&self) -> bool {
        self.leads.is_none()
            && self.holdings.is_empty()
            && self.rooms.is_empty()
            && self.complete.is_none()
            && self.wants.is_empty()
            && self.hearing != 0
    }

    /// Whether something had no room in it.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }
}

impl State {
    /// The next telling to a peer; `owners` share the room of this node's workers.
    pub(crate) fn tell(&mut self, to: NodeId, tenants: &Tenants, owners: u32, now_ms: u64) -> (Tell, Record) {
        let Self { life, process, leads, peers, .. } = self;
        let telling = &mut peers.entry(to).or_default().telling;
        telling.version += 1;
        let led = tenants.led();
        let mut tell = Tell {
            life: *life,
            process: *process,
            version: telling.version,
            hearing: telling.hearing,
            now_ms,
            leads: led.iter().map(|led| led_shard(*led)).collect(),
            ..Tell::default()
        };
        let mut record = Record { hearing: telling.hearing, ..Record::default() };
        if telling.hearing == 0 {
            // It has to give its hearing a name first; until then it takes nothing.
            return (tell, record);
        }
        record.leads = (telling.leads != led).then_some(led);
        let theirs = |shard: ShardId| leads.get(&shard).is_some_and(|(node, _)| *node == to);
        let pools = tenants.all();
        for (tenant, pool) in &pools {
            let mut pool = pool.lock();
            let left = HOLDINGS_MAX.saturating_sub(record.holdings.len());
            let (held, all) = pool.at(now_ms).guests_to_tell(&theirs, left);
            record.more |= !all;
            for held in held {
                record.holdings.push((tenant.clone(), (held.attempt, held.lease.token)));
                tell.holdings.push(holding(held));
            }
        }
        if record.more {
            // A session must not be told before what it holds, so the rest waits for the next telling. What was complete is so
            // until then, as far as it still can be.
            let still = theirs_and_told(leads, to, tenants).into_iter().map(led_shard);
            tell.complete = still.filter(|led| telling.complete.contains(led)).collect();
            record.complete = Some(tell.complete.clone()).filter(|complete| telling.complete != *complete);
            return (tell, record);
        }
        let mut bytes = 0;
        for (tenant, pool) in &pools {
            let told = telling.rooms.entry(tenant.clone()).or_default();
            for change in pool.lock().rooms_to_tell(to, owners, told) {
                let worker = far_worker(tenant, &change);
                bytes += prost::Message::encoded_len(&worker);
                if bytes > WORKER_BYTES_MAX {
                    record.more = true;
                    break;
                }
                if !change.gone {
                    let before = told.get(change.worker.as_str()).filter(|told| told.session == change.session);
                    let arrived = before.is_some_and(|told| told.arrived);
                    let (session, stamp) = (change.session, change.stamp);
                    told.insert(change.worker.as_str().into(), RoomTold { session, room: None, stamp, arrived });
                }
                tell.workers.push(worker);
                record.rooms.push((tenant.clone(), change));
            }
        }
        tell.complete = theirs_and_told(leads, to, tenants).iter().map(|led| led_shard(*led)).collect();
        record.complete = Some(tell.complete.clone()).filter(|complete| telling.complete != *complete);
        for (key, waiting) in wants_to_tell(&pools, &telling.wants) {
            let (tenant, queue) = (key.0.as_str().to_owned(), key.1.as_str().to_owned());
            tell.wants.push(Want { tenant, queue, waiting });
            record.wants.push((key, waiting));
        }
        (tell, record)
    }

    /// The telling was answered, or not (`None`). `true`: the peer wants to hear everything, at once.
    pub(crate) fn told(
        &mut self,
        to: NodeId,
        record: Record,
        answer: Option<TellAnswer>,
        tenants: &Tenants,
        now_ms: u64,
    ) -> (Acts, bool) {
        let theirs = |shard: ShardId| self.leads.get(&shard).is_some_and(|(node, _)| *node == to);
        let Some(peer) = self.peers.get_mut(&to) else { return (Acts::new(), false) };
        let telling = &mut peer.telling;
        let Some(answer) = answer else {
            tell_again(tenants, &record);
            return (Acts::new(), false);
        };
        if answer.outlive > 0 {
            self.outlive(answer.outlive);
            tell_again(tenants, &record);
            return (Acts::new(), true);
        }
        if answer.hearing != record.hearing || telling.hearing != record.hearing {
            let is_new = telling.hearing == record.hearing;
            if is_new {
                telling.begin_again(answer.hearing);
                tenants.each(now_ms, |pool| {
                    pool.tell_all_again(&theirs);
                    Vec::new()
                });
            }
            tell_again(tenants, &record);
            return (Acts::new(), is_new);
        }
        if let Some(leads) = record.leads {
            telling.leads = leads;
        }
        for (tenant, change) in record.rooms {
            let told = telling.rooms.entry(tenant).or_default();
            let FarSession { worker, session, room, gone, stamp, .. } = change;
            let Some(known) = told.get_mut(worker.as_str()).filter(|known| known.session == session) else { continue };
            known.arrived = true;
            if gone {
                told.remove(worker.as_str());
            } else if known.stamp == stamp {
                known.room = Some(room);
            }
        }
        if let Some(complete) = record.complete {
            telling.complete = complete;
        }
        for (key, waiting) in record.wants {
            if waiting == 0 {
                telling.wants.remove(&key);
            } else {
                telling.wants.insert(key, waiting);
            }
        }
        (lost(&answer, tenants, now_ms), false)
    }
}

/// What this node can vouch for to that owner, once all holdings are told. Not a shard that it believes to lead itself: it may
/// still hand out work of its own epoch.
fn theirs_and_told(
    leads: &HashMap<ShardId, (NodeId, Epoch)>,
    owner: NodeId,
    tenants: &Tenants,
) -> Vec<(ShardId, Epoch)> {
    let theirs = leads.iter().filter(|(shard, (node, _))| *node == owner && tenants.epoch(**shard).is_none());
    let mut theirs: Vec<_> = theirs.map(|(shard, (_, epoch))| (*shard, *epoch)).collect();
    theirs.sort_unstable();
    theirs
}

/// What waits here and was told otherwise, roughly: a number that was told is good until it is off by half.
fn wants_to_tell(
    pools: &[(TenantId, Arc<parking_lot::Mutex<crate::dispatch::pool::Pool>>)],
    told: &HashMap<(TenantId, QueueName), u32>,
) -> Vec<((TenantId, QueueName), u32)> {
    let mut wants = Vec::new();
    let mut still = std::collections::HashSet::new();
    for (tenant, pool) in pools {
        for (queue, waiting) in pool.lock().wants() {
            let key = (tenant.clone(), queue.clone());
            let before = told.get(&key).copied().unwrap_or(0);
            if (before == 0 || waiting > before.saturating_mul(2) || waiting < before / 2) && wants.len() < WANTS_MAX {
                wants.push((key.clone(), waiting));
            }
            still.insert(key);
        }
    }
    wants.extend(told.keys().filter(|key| !still.contains(*key)).map(|key| (key.clone(), 0)));
    wants
}

fn tell_again(tenants: &Tenants, record: &Record) {
    for (tenant, key) in &record.holdings {
        if let Some(pool) = tenants.get(tenant) {
            pool.lock().tell_again(*key);
        }
    }
}

/// What the owner says is not held any more.
fn lost(answer: &TellAnswer, tenants: &Tenants, now_ms: u64) -> Acts {
    let mut acts = Acts::new();
    for lost in &answer.lost {
        let tenant = TenantId::new(&lost.tenant);
        let (Ok(attempt), Some(token)) = (Uuid::from_slice(&lost.attempt), token_of(&lost.token)) else { continue };
        let Some(pool) = tenants.get(&tenant) else { continue };
        let reason = "the lease is lost".to_owned();
        let stop = Stop { tenant: tenant.clone(), attempt, token, reason, lost: true };
        let actions = pool.lock().at(now_ms).stop_guest(&stop);
        acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
    }
    acts
}
