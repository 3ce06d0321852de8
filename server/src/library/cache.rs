//! Compiled releases in memory, and for a while those that were refused.

use super::Compiled;
use grain_contract::{Rejection, TenantId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compiled releases held at once; the one not used longest goes.
const PLANS_MAX: usize = 512;
/// Refusals remembered at once.
const REFUSALS_MAX: usize = 1_024;
/// After this time a refused release is tried again: policy may have changed.
const REFUSED_FOR: Duration = Duration::from_secs(60);

type Key = (TenantId, Arc<str>);

#[derive(Default)]
pub struct Cache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    plans: HashMap<Key, (Arc<Compiled>, u64)>,
    refusals: HashMap<Key, (Rejection, Instant)>,
    uses: u64,
}

impl Cache {
    pub fn get(&self, tenant: &TenantId, release_id: &str) -> Option<Arc<Compiled>> {
        let mut inner = self.inner.lock();
        inner.uses += 1;
        let uses = inner.uses;
        let (found, used) = inner.plans.get_mut(&(tenant.clone(), Arc::from(release_id)))?;
        *used = uses;
        Some(Arc::clone(found))
    }

    pub fn put(&self, tenant: &TenantId, release_id: &str, compiled: Arc<Compiled>) {
        let key = (tenant.clone(), Arc::from(release_id));
        let mut inner = self.inner.lock();
        inner.refusals.remove(&key);
        inner.uses += 1;
        let uses = inner.uses;
        inner.plans.insert(key, (compiled, uses));
        if inner.plans.len() > PLANS_MAX
            && let Some(oldest) = inner.plans.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())
        {
            inner.plans.remove(&oldest);
        }
    }

    /// Drafts may be put again with other schemas.
    pub fn forget(&self, tenant: &TenantId, release_id: &str) {
        self.inner.lock().plans.remove(&(tenant.clone(), Arc::from(release_id)));
    }

    pub fn clear(&self) {
        self.inner.lock().plans.clear();
    }

    pub fn refused(&self, tenant: &TenantId, release_id: &str) -> Option<Rejection> {
        let inner = self.inner.lock();
        let (refusal, at) = inner.refusals.get(&(tenant.clone(), Arc::from(release_id)))?;
        (at.elapsed() < REFUSED_FOR).then(|| refusal.clone())
    }

    pub fn refuse(&self, tenant: &TenantId, release_id: &str, refusal: Rejection) {
        let mut inner = self.inner.lock();
        if inner.refusals.len() >= REFUSALS_MAX {
            inner.refusals.retain(|_, (_, at)| at.elapsed() < REFUSED_FOR);
        }
        if inner.refusals.len() < REFUSALS_MAX {
            inner.refusals.insert((tenant.clone(), Arc::from(release_id)), (refusal, Instant::now()));
        }
    }
}
