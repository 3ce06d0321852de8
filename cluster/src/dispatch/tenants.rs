//! The pools of all tenants, and what every pool knows: which shards are led here, and which nodes have told all of them.

use super::pool::{Action, Pool, Waiting};
use grain_contract::{Epoch, TenantId};
use parking_lot::{Mutex, RwLock};
use shard::{NodeId, ShardId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What follows for one tenant.
pub(crate) type Acts = Vec<(TenantId, Action)>;

pub(crate) struct Tenants {
    lease_ms: u64,
    pools: RwLock<HashMap<TenantId, Arc<Mutex<Pool>>>>,
    /// Locked after `pools`, never before, so that a pool that is just being made misses nothing.
    common: Mutex<Common>,
}

#[derive(Default)]
struct Common {
    led: HashMap<ShardId, Epoch>,
    /// The latest epoch in which each shard was ever led here: what was promised in it outlives the leadership.
    was_led: HashMap<ShardId, Epoch>,
    complete: HashSet<(ShardId, NodeId)>,
}

impl Tenants {
    pub(crate) fn new(lease_ms: u64) -> Self {
        Self { lease_ms, pools: RwLock::default(), common: Mutex::default() }
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// `None` = no worker and no work of this tenant was ever seen here.
    pub(crate) fn get(&self, tenant: &TenantId) -> Option<Arc<Mutex<Pool>>> {
        self.pools.read().get(tenant).cloned()
    }

    pub(crate) fn pool(&self, tenant: &TenantId) -> Arc<Mutex<Pool>> {
        if let Some(pool) = self.get(tenant) {
            return pool;
        }
        let mut pools = self.pools.write();
        let common = self.common.lock();
        let make = || Pool::new(self.lease_ms, &common.led, &common.complete);
        pools.entry(tenant.clone()).or_insert_with(|| Arc::new(Mutex::new(make()))).clone()
    }

    pub(crate) fn all(&self) -> Vec<(TenantId, Arc<Mutex<Pool>>)> {
        self.pools.read().iter().map(|(tenant, pool)| (tenant.clone(), pool.clone())).collect()
    }

    pub(crate) fn led(&self) -> Vec<(ShardId, Epoch)> {
        let mut led: Vec<_> = self.common.lock().led.iter().map(|(shard, epoch)| (*shard, *epoch)).collect();
        led.sort_unstable();
        led
    }

    /// `Some` while the shard is led here.
    pub(crate) fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.common.lock().led.get(&shard).copied()
    }

    /// The latest epoch in which this process led the shard, be it over.
    pub(crate) fn last_epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.common.lock().was_led.get(&shard).copied()
    }

    pub(crate) fn opened(&self, shard: ShardId, epoch: Epoch, now_ms: u64) -> Acts {
        self.change(|common| {
            common.complete.retain(|(of, _)| *of != shard);
            common.led.insert(shard, epoch);
            common.was_led.insert(shard, epoch);
        });
        self.each(now_ms, |pool| pool.opened(shard, epoch))
    }

    pub(crate) fn closed(&self, shard: ShardId, now_ms: u64) -> (Acts, Vec<Waiting>) {
        self.change(|common| {
            common.complete.retain(|(of, _)| *of != shard);
            common.led.remove(&shard);
        });
        let mut waited = Vec::new();
        let acts = self.each(now_ms, |pool| {
            let (actions, left) = pool.left(shard);
            waited.extend(left);
            actions
        });
        (acts, waited)
    }

    /// The node vouches for no other shards any more.
    pub(crate) fn only_complete(&self, edge: NodeId, shards: &[ShardId], now_ms: u64) {
        let stays = |(shard, node): &(ShardId, NodeId)| *node != edge || shards.contains(shard);
        if self.common.lock().complete.iter().all(stays) {
            return;
        }
        self.change(|common| common.complete.retain(stays));
        self.each(now_ms, |pool| {
            pool.only_complete(edge, shards);
            Vec::new()
        });
    }

    pub(crate) fn completed(&self, shard: ShardId, edge: NodeId, now_ms: u64) -> Acts {
        if self.common.lock().complete.contains(&(shard, edge)) {
            return Acts::new();
        }
        self.change(|common| {
            common.complete.insert((shard, edge));
        });
        self.each(now_ms, |pool| pool.completed(shard, edge))
    }

    pub(crate) fn edge_lost(&self, edge: NodeId, now_ms: u64) -> Acts {
        self.change(|common| common.complete.retain(|(_, node)| *node != edge));
        self.each(now_ms, |pool| pool.edge_lost(edge))
    }

    /// Works on each pool, one after another.
    pub(crate) fn each(&self, now_ms: u64, mut work: impl FnMut(&mut Pool) -> Vec<Action>) -> Acts {
        let mut acts = Vec::new();
        for (tenant, pool) in self.all() {
            let actions = work(pool.lock().at(now_ms));
            acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
        }
        acts
    }

    /// Whether something happened in any pool that other nodes should hear at once.
    pub(crate) fn take_news(&self) -> bool {
        self.pools.read().values().fold(false, |news, pool| pool.lock().take_news() | news)
    }

    fn change(&self, work: impl FnOnce(&mut Common)) {
        let _no_pool_is_made_meanwhile = self.pools.write();
        work(&mut self.common.lock());
    }
}
