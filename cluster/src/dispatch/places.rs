//! The places that one turn took at workers.

use super::Dispatch;
use crate::Moment;
use grain_contract::{Lease, Offers, QueueName, TenantId};
use std::sync::Arc;

/// Takes places for a turn; what the turn has not used when this is dropped is given back.
pub(crate) struct Places {
    dispatch: Arc<Dispatch>,
    tenant: TenantId,
    taken: Vec<Lease>,
    pub(super) since: Moment,
}

impl Places {
    pub(crate) fn of(dispatch: &Arc<Dispatch>, tenant: &TenantId) -> Self {
        Self { dispatch: dispatch.clone(), tenant: tenant.clone(), taken: Vec::new(), since: dispatch.moment() }
    }

    /// Whether this lease is one of the places taken here; it counts as used from now on.
    pub(super) fn used(&mut self, lease: &Lease) -> bool {
        let at = self.taken.iter().position(|taken| taken == lease);
        at.map(|at| self.taken.swap_remove(at)).is_some()
    }
}

impl Offers for Places {
    fn take(&mut self, queue: &QueueName) -> Option<Lease> {
        let lease = self.dispatch.take(&self.tenant, queue)?;
        self.taken.push(lease.clone());
        Some(lease)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for lease in self.taken.drain(..) {
            self.dispatch.give_back(&self.tenant, &lease.worker);
        }
    }
}
