//! A connected worker's side of the dispatcher.

use super::Dispatch;
use crate::Moment;
use grain_contract::{GrainId, Lease, TenantId, WorkItem};
use std::sync::Arc;
use tokio::sync::mpsc;
use uuid::Uuid;

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToWorker {
    /// `item.body` holds no token; the lease does.
    Assign {
        grain: GrainId,
        item: WorkItem,
        lease: Lease,
        /// Before the lease was committed.
        since: Moment,
    },
    Interrupt {
        attempt: Uuid,
        reason: String,
    },
}

/// One connected worker. Dropping it = disconnected: its leases run on until they expire or it comes back.
pub struct WorkerSession {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) tenant: TenantId,
    pub(super) worker: String,
    pub(super) session: u64,
    pub(super) receiver: mpsc::UnboundedReceiver<ToWorker>,
}

impl WorkerSession {
    /// The next thing to tell the worker; `None` once a later session of the same worker took over, at this silo or another,
    /// or this silo is about to stop and there are others to go to.
    pub async fn recv(&mut self) -> Option<ToWorker> {
        loop {
            let message = self.receiver.recv().await?;
            if self.is_in_time(&message, self.dispatch.moment()) {
                return Some(message);
            }
        }
    }

    /// The same, as many as there are, up to `limit`; 0 = over.
    pub async fn recv_many(&mut self, into: &mut Vec<ToWorker>, limit: usize) -> usize {
        let before = into.len();
        // None of them may be in time; that is not the end of the session.
        while into.len() == before {
            if self.receiver.recv_many(into, limit).await == 0 {
                break;
            }
            let now = self.dispatch.moment();
            let mut at = 0;
            into.retain(|message| {
                at += 1;
                at <= before || self.is_in_time(message, now)
            });
        }
        into.len() - before
    }

    /// The last look before it leaves this process. What is late goes back as never started.
    fn is_in_time(&self, message: &ToWorker, now: Moment) -> bool {
        let ToWorker::Assign { grain, item, lease, since } = message else { return true };
        if !self.dispatch.is_late(*since, now) {
            return true;
        }
        tracing::warn!(%grain, attempt = %item.attempt, "claimed too long ago to be handed out; it is given back");
        self.dispatch.with(&self.tenant, |pool| pool.not_handed_out(grain.clone(), item.attempt, lease.clone()));
        false
    }

    /// Renews these leases; gives back those that are not the worker's any more.
    pub fn renew(&self, attempts: &[Uuid]) -> Vec<Uuid> {
        self.dispatch.renew(&self.tenant, &self.worker, attempts)
    }

    /// The worker has done with this attempt, its report is on the way: its place is free from now on, so that the turn that
    /// takes the report can use it. The lease stays until [`WorkerSession::release`].
    pub fn finished(&self, attempt: Uuid) {
        self.dispatch.with(&self.tenant, |pool| pool.finished(&self.worker, attempt));
    }

    /// The report was accepted, or refused because the attempt is over: forget the lease. Not for a refusal that asks to
    /// report again, nor for a stale token: the attempt may be leased anew.
    pub fn release(&self, attempt: Uuid) {
        self.dispatch.with(&self.tenant, |pool| pool.release(&self.worker, attempt));
    }

    /// No new attempts from now on; those held go on.
    pub fn drain(&self) {
        self.dispatch.with(&self.tenant, |pool| {
            pool.drain(&self.worker);
            Vec::new()
        });
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        // Under the pool's lock nothing can be sent between closing and reading what is left.
        let (receiver, worker, session) = (&mut self.receiver, &self.worker, self.session);
        self.dispatch.with(&self.tenant, |pool| {
            receiver.close();
            let mut unread = Vec::new();
            while let Ok(message) = receiver.try_recv() {
                unread.push(message);
            }
            pool.disconnect(worker, session, unread)
        });
    }
}
