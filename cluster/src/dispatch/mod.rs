//! Work and workers: which attempt goes to which worker, and for how long.
//!
//! Knows nothing of workflows. Queues, workers and leases belong to one tenant each and share nothing with another's, so one
//! tenant's flood waits in its own queues. The rules are in `pool`; here are the locks, the bounds and the calls to grains.

mod places;
mod pool;
mod session;

pub(crate) use places::Places;
pub use session::{ToWorker, WorkerSession};

use crate::hub::Hub;
use crate::metrics::count;
use crate::outbox::until_answered;
use crate::service::BEAT_EVERY;
use grain_contract::{Code, Epoch, GrainId, Lease, QueueName, Rejection, TenantId, WorkItem, limits};
use granary_proto::calls::{Claim, ClaimReply, LeaseExpired};
use parking_lot::{Mutex, RwLock};
use pool::{Action, Claimed, Pool, Waiting};
use prost::Message;
use shard::ShardId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// Places that one worker may offer.
pub const WORKER_CAPACITY_MAX: u32 = 10_000;
/// Queues that one worker may serve.
pub const WORKER_QUEUES_MAX: usize = 1_000;
/// Bytes of waiting work held in memory, a shard.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Grains told at once that leases are over.
const EXPIRIES_AT_ONCE: usize = 64;

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
    /// Rises with each session of this worker, at whatever silo; 0 = numbered by this silo's clock.
    pub session: u64,
}

#[derive(Clone, Debug)]
pub struct HeldAttempt {
    pub attempt: Uuid,
    pub grain: GrainId,
    pub token: [u8; 16],
}

/// Waiting work of one shard, counted.
#[derive(Default)]
struct Queued {
    items: AtomicUsize,
    bytes: AtomicUsize,
    /// Some was dropped for want of room: its rows must be offered again.
    overflowed: AtomicBool,
}

pub(crate) struct Dispatch {
    hub: Weak<Hub>,
    lease_ms: u64,
    clock: Arc<dyn crate::Clock>,
    pools: RwLock<HashMap<TenantId, Arc<Mutex<Pool>>>>,
    queued: Vec<Queued>,
    expiries: Semaphore,
    draining: AtomicBool,
}

impl Dispatch {
    pub(crate) fn new(hub: Weak<Hub>, shards: usize, lease: Duration, clock: Arc<dyn crate::Clock>) -> Self {
        Self {
            hub,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            clock,
            pools: RwLock::default(),
            queued: (0..shards).map(|_| Queued::default()).collect(),
            expiries: Semaphore::new(EXPIRIES_AT_ONCE),
            draining: AtomicBool::new(false),
        }
    }

    // ---- for turns ----

    fn take(&self, tenant: &TenantId, queue: &QueueName) -> Option<Lease> {
        // No pool means no worker; reading must not make one.
        let pool = self.pools.read().get(tenant)?.clone();
        pool.lock().take(queue, rand::random())
    }

    fn give_back(self: &Arc<Self>, tenant: &TenantId, worker: &str) {
        self.with(tenant, |pool, _| pool.give_back(worker));
    }

    /// The shard is led here from now on, in this epoch.
    pub(crate) fn opened(self: &Arc<Self>, _shard: ShardId, _epoch: Epoch) {}

    /// It is not any more.
    pub(crate) fn closed(self: &Arc<Self>, _shard: ShardId) {}

    pub(crate) fn offer(
        self: &Arc<Self>,
        (shard, _): (ShardId, Epoch),
        grain: &GrainId,
        item: WorkItem,
        places: &mut Places,
    ) {
        let Some(lease) = item.lease.clone() else { return self.enqueue(shard, grain, item) };
        let place = places.used(&lease);
        self.with(&grain.tenant, |pool, now| pool.assign(grain, item, lease, place, now));
    }

    pub(crate) fn withdraw(self: &Arc<Self>, tenant: &TenantId, attempt: Uuid, interrupt: bool, reason: &str) {
        let mut gone = None;
        self.with(tenant, |pool, now| {
            let (actions, waited) = pool.withdraw(attempt, interrupt, reason, now);
            gone = waited;
            actions
        });
        if let Some(waiting) = gone {
            self.left_queue(&waiting);
        }
    }

    pub(crate) fn expect(
        self: &Arc<Self>,
        _led: (ShardId, Epoch),
        grain: &GrainId,
        attempt: Uuid,
        _queue: QueueName,
        lease: Lease,
    ) {
        self.with(&grain.tenant, |pool, now| pool.expect(grain, attempt, lease, now));
    }

    fn enqueue(self: &Arc<Self>, shard: ShardId, grain: &GrainId, item: WorkItem) {
        let waiting = Waiting { grain: grain.clone(), shard, item };
        self.with(&grain.tenant, |pool, _| {
            if pool.knows(waiting.item.attempt) || !self.has_room(&waiting) {
                return Vec::new();
            }
            pool.enqueue(waiting)
        });
    }

    // ---- for workers ----

    pub(crate) fn connect(self: &Arc<Self>, hello: WorkerHello) -> Result<WorkerSession, Rejection> {
        check(&hello)?;
        if self.draining.load(Acquire) {
            return Err(crate::refusal::unavailable("this silo is shutting down"));
        }
        let WorkerHello { worker_id, tenant, queues, capacity, held, session: _ } = hello;
        let mut made = None;
        self.with(&tenant, |pool, now| {
            let (session, receiver, actions) = pool.connect(&worker_id, queues, capacity, &held, now);
            made = Some((session, receiver));
            actions
        });
        let (session, receiver) = made.ok_or_else(|| crate::refusal::unavailable("the dispatcher is gone"))?;
        Ok(WorkerSession { dispatch: self.clone(), tenant, worker: worker_id, session, receiver })
    }

    fn renew(&self, tenant: &TenantId, worker: &str, attempts: &[Uuid]) -> Vec<Uuid> {
        self.pool(tenant).lock().renew(worker, attempts, self.clock.monotonic_ms())
    }

    /// No new attempts for anybody from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Release);
        for pool in self.pools.read().values() {
            pool.lock().drain_all();
        }
    }

    // ---- figures ----

    pub(crate) fn work_queued(&self) -> usize {
        self.queued.iter().map(|queued| queued.items.load(Acquire)).sum()
    }

    /// Leases in force, workers connected.
    pub(crate) fn leases_and_workers(&self) -> (usize, usize) {
        let pools = self.pools.read();
        pools
            .values()
            .map(|pool| pool.lock())
            .fold((0, 0), |(leases, workers), pool| (leases + pool.leases(), workers + pool.connected()))
    }

    // ---- inside ----

    fn pool(&self, tenant: &TenantId) -> Arc<Mutex<Pool>> {
        if let Some(pool) = self.pools.read().get(tenant) {
            return pool.clone();
        }
        self.pools
            .write()
            .entry(tenant.clone())
            .or_insert_with(|| Arc::new(Mutex::new(Pool::new(self.lease_ms))))
            .clone()
    }

    /// Works on one tenant's pool and then does what follows, outside the lock.
    fn with(self: &Arc<Self>, tenant: &TenantId, work: impl FnOnce(&mut Pool, u64) -> Vec<Action>) {
        let pool = self.pool(tenant);
        let actions = {
            let mut pool = pool.lock();
            work(&mut pool, self.clock.monotonic_ms())
        };
        for action in actions {
            self.perform(tenant, action);
        }
    }

    /// Counts it in, or notes that there was no room for it.
    fn has_room(&self, waiting: &Waiting) -> bool {
        let queued = &self.queued[waiting.shard.0 as usize];
        let full = queued.items.load(Acquire) >= limits::QUEUED_WORK_MAX
            || queued.bytes.load(Acquire) + waiting.bytes() > QUEUED_BYTES_MAX;
        if full {
            queued.overflowed.store(true, Release);
            return false;
        }
        queued.items.fetch_add(1, AcqRel);
        queued.bytes.fetch_add(waiting.bytes(), AcqRel);
        true
    }

    fn left_queue(&self, waiting: &Waiting) {
        let queued = &self.queued[waiting.shard.0 as usize];
        let left = queued.items.fetch_sub(1, AcqRel) - 1;
        let bytes = queued.bytes.fetch_sub(waiting.bytes(), AcqRel) - waiting.bytes();
        let has_room = left <= limits::QUEUED_WORK_MAX / 2 && bytes <= QUEUED_BYTES_MAX / 2;
        if has_room
            && queued.overflowed.swap(false, AcqRel)
            && let Some(hub) = self.hub.upgrade()
        {
            hub.rooms[waiting.shard.0 as usize].rewake.notify_one();
        }
    }

    fn perform(self: &Arc<Self>, tenant: &TenantId, action: Action) {
        let (dispatch, tenant) = (self.clone(), tenant.clone());
        match action {
            Action::Claim { waiting, lease } => {
                self.left_queue(&waiting);
                tokio::spawn(async move {
                    let answer = dispatch.ask_claim(&waiting.grain, waiting.item.attempt, &lease).await;
                    let Some(answer) = answer else { return };
                    dispatch.with(&tenant, |pool, now| pool.claim_answered(waiting, lease, answer, now));
                });
            }
            Action::Verify { grain, attempt, lease } => {
                tokio::spawn(async move {
                    let Some(answer) = dispatch.ask_claim(&grain, attempt, &lease).await else { return };
                    dispatch.with(&tenant, |pool, _| pool.verified(attempt, &lease, answer));
                });
            }
            Action::Expired { grain, attempt, lease, never_started } => {
                tokio::spawn(async move {
                    dispatch.tell_expired(&grain, attempt, &lease, never_started).await;
                    dispatch.with(&tenant, |pool, _| pool.expiry_told(attempt, &lease));
                });
            }
        }
    }

    /// `None` if the silo stops. The same claim is repeated until it is answered: its outcome must be known before the place
    /// can be given to something else.
    async fn ask_claim(&self, grain: &GrainId, attempt: Uuid, lease: &Lease) -> Option<Claimed> {
        let hub = self.hub.upgrade()?;
        let call = Claim { attempt_id: attempt.to_string(), worker: lease.worker.clone(), token: lease.token.to_vec() };
        let answer = until_answered(&hub, grain, hub.options.claim, call.encode_to_vec().into()).await;
        match answer.map(|body| ClaimReply::decode(&*body)) {
            Ok(Ok(reply)) if reply.claimed => Some(Claimed::Yes),
            Ok(Ok(_)) => Some(Claimed::No),
            Ok(Err(error)) => {
                tracing::error!(%grain, %error, "a claim was answered with something else");
                Some(Claimed::No)
            }
            Err(rejection) if rejection.code.is_retryable() => None,
            Err(rejection) => {
                tracing::debug!(%grain, %attempt, %rejection, "a claim was refused");
                Some(Claimed::No)
            }
        }
    }

    async fn tell_expired(&self, grain: &GrainId, attempt: Uuid, lease: &Lease, never_started: bool) {
        let Some(hub) = self.hub.upgrade() else { return };
        let Ok(_permit) = self.expiries.acquire().await else { return };
        if !never_started {
            count(&hub.metrics.leases_expired);
        }
        let call = LeaseExpired {
            attempt_id: attempt.to_string(),
            worker: lease.worker.clone(),
            never_started,
            token: lease.token.to_vec(),
        };
        let answer = until_answered(&hub, grain, hub.options.lease_expired, call.encode_to_vec().into()).await;
        if let Err(rejection) = answer {
            tracing::debug!(%grain, %attempt, %rejection, "the end of a lease was refused");
        }
    }
}

fn check(hello: &WorkerHello) -> Result<(), Rejection> {
    let invalid = |field: &str, message: String| Err(Rejection::new(Code::Invalid, message).at(field));
    if hello.worker_id.is_empty() || hello.worker_id.len() > limits::NAME_BYTES_MAX {
        let max = limits::NAME_BYTES_MAX;
        return invalid(
            "workerId",
            format!("Expected a name of 1 to {max} bytes, but found {} bytes.", hello.worker_id.len()),
        );
    }
    if hello.capacity == 0 || hello.capacity > WORKER_CAPACITY_MAX {
        return invalid(
            "capacity",
            format!("Expected 1 to {WORKER_CAPACITY_MAX} places, but found {}.", hello.capacity),
        );
    }
    if hello.queues.is_empty() || hello.queues.len() > WORKER_QUEUES_MAX {
        return invalid(
            "queues",
            format!("Expected 1 to {WORKER_QUEUES_MAX} queues, but found {}.", hello.queues.len()),
        );
    }
    let long = hello.queues.iter().position(|q| q.as_str().is_empty() || q.as_str().len() > 2 * limits::NAME_BYTES_MAX);
    if let Some(at) = long {
        return invalid(
            &format!("queues[{at}]"),
            "Expected a queue's name, but found an empty or too long one.".into(),
        );
    }
    // What was finished but not reported is held too, so more than the capacity is no mistake.
    let held_max = 4 * WORKER_CAPACITY_MAX as usize;
    if hello.held.len() > held_max {
        return invalid("held", format!("Expected at most {held_max} attempts, but found {}.", hello.held.len()));
    }
    if let Some(at) = hello.held.iter().position(|held| held.grain.tenant != hello.tenant) {
        return invalid(
            &format!("held[{at}]"),
            "Expected an attempt of the worker's tenant, but found another's.".into(),
        );
    }
    Ok(())
}

/// The lease clock of all tenants; ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<crate::service::Pulse>) {
    // A lease is seen to be over by at most this fraction of it late, never early.
    let every = (hub.options.lease / 45).clamp(Duration::from_millis(10), Duration::from_secs(1));
    loop {
        pulse.beat();
        let tenants: Vec<TenantId> = hub.dispatch.pools.read().keys().cloned().collect();
        for tenant in &tenants {
            hub.dispatch.with(tenant, |pool, now| pool.tick(now));
        }
        tokio::select! {
            () = hub.clock.sleep(every) => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
}
