//! Work and workers.

use grain_contract::{GrainId, Lease, QueueName, TenantId, WorkItem};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct WorkerHello {
    /// Stable for the worker's process life.
    pub worker_id: String,
    pub tenant: TenantId,
    pub queues: Vec<QueueName>,
    /// Attempts held at once, at most.
    pub capacity: u32,
    /// What the worker holds from an earlier session, finished but unreported ones too.
    pub held: Vec<HeldAttempt>,
}

#[derive(Clone, Debug)]
pub struct HeldAttempt {
    pub attempt: Uuid,
    pub grain: GrainId,
    pub token: [u8; 16],
}

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToWorker {
    /// `item.body` holds no token; the lease does.
    Assign {
        grain: GrainId,
        item: WorkItem,
        lease: Lease,
    },
    Interrupt {
        attempt: Uuid,
        reason: String,
    },
}

/// One connected worker. Dropping it = disconnected: its leases run on until they expire or it comes back.
pub struct WorkerSession {}

impl WorkerSession {
    /// The next thing to tell the worker; `None` once a later session of the same worker took over, or the silo drains.
    pub async fn recv(&mut self) -> Option<ToWorker> {
        std::future::pending().await
    }

    /// The same, as many as there are, up to `limit`; 0 = over.
    pub async fn recv_many(&mut self, _into: &mut Vec<ToWorker>, _limit: usize) -> usize {
        std::future::pending().await
    }

    /// Renews these leases; gives back those that are not the worker's any more.
    pub fn renew(&self, attempts: &[Uuid]) -> Vec<Uuid> {
        attempts.to_vec()
    }

    /// The worker has done with this attempt, its report is on the way: its place is free from now on, so that the turn that
    /// takes the report can use it. The lease stays until [`WorkerSession::release`].
    pub fn finished(&self, _attempt: Uuid) {}

    /// The report was answered for good (accepted, or refused without `retry`): forget the lease.
    pub fn release(&self, _attempt: Uuid) {}

    /// No new attempts from now on; those held go on.
    pub fn drain(&self) {}
}
