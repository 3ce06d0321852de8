//! Work and workers: which attempt goes to which worker, and for how long.
//!
//! Knows nothing of workflows. Queues, workers and leases belong to one tenant each and share nothing with another's, so one
//! tenant's flood waits in its own queues. The rules are in `pool`; `relay` carries what passes between nodes; here are the
//! locks, the bounds and the calls to grains.

mod asks;
mod away;
mod check;
mod late;
mod places;
mod pool;
mod relay;
mod session;
mod tenants;

pub(crate) use places::Places;
pub(crate) use relay::{mount as mount_relay, run as run_relay};
pub use session::{ToWorker, WorkerSession};

use crate::hub::Hub;
use crate::placement::home_of;
use crate::service::BEAT_EVERY;
use away::Away;
use grain_contract::{Epoch, GrainId, Lease, QueueName, Rejection, TenantId, WorkItem, limits};
use pool::{Action, Listed, Pool, Waiting};
use relay::Relay;
use shard::ShardId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tenants::{Acts, Tenants};
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
/// The process stood still if the lease clock looks so much later than it meant to; nobody could renew meanwhile.
const STOOD_STILL: Duration = Duration::from_secs(2);

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
    clock: Arc<dyn crate::Clock>,
    tenants: Tenants,
    relay: Relay,
    queued: Vec<Queued>,
    expiries: Semaphore,
    draining: AtomicBool,
    away: Away,
}

impl Dispatch {
    pub(crate) fn new(hub: Weak<Hub>, shards: usize, lease: Duration, clock: Arc<dyn crate::Clock>) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self {
            hub,
            tenants: Tenants::new(lease_ms),
            relay: Relay::new(u32::try_from(shards).unwrap_or(u32::MAX), lease_ms, wall_ms(&*clock)),
            clock,
            queued: (0..shards).map(|_| Queued::default()).collect(),
            expiries: Semaphore::new(EXPIRIES_AT_ONCE),
            draining: AtomicBool::new(false),
            away: Away::default(),
        }
    }

    // ---- for rooms ----

    /// The shard is led here from now on, in this epoch.
    pub(crate) fn opened(self: &Arc<Self>, shard: ShardId, epoch: Epoch) {
        let acts = self.tenants.opened(shard, epoch, self.clock.monotonic_ms());
        self.perform_all(acts);
        self.relay.nudge();
    }

    /// It is not any more.
    pub(crate) fn closed(self: &Arc<Self>, shard: ShardId) {
        let (acts, waited) = self.tenants.closed(shard, self.clock.monotonic_ms());
        for waiting in &waited {
            self.left_queue(waiting);
        }
        self.perform_all(acts);
        self.relay.nudge();
    }

    // ---- for turns ----

    fn take(&self, tenant: &TenantId, queue: &QueueName) -> Option<Lease> {
        // No pool means no worker; reading must not make one.
        let pool = self.tenants.get(tenant)?;
        let (lease, news) = {
            let mut pool = pool.lock();
            (pool.take(queue, rand::random()), pool.take_news())
        };
        if news {
            self.relay.nudge();
        }
        lease
    }

    fn give_back(self: &Arc<Self>, tenant: &TenantId, worker: &str) {
        self.with(tenant, |pool| pool.give_back(worker));
    }

    pub(crate) fn offer(self: &Arc<Self>, led: (ShardId, Epoch), grain: &GrainId, item: WorkItem, places: &mut Places) {
        let Some(lease) = item.lease.clone() else { return self.enqueue(led, grain, item) };
        let taking = self.taking(places.used(&lease), places.since());
        self.with(&grain.tenant, |pool| pool.assign(led, grain, item, lease, taking));
    }

    pub(crate) fn withdraw(self: &Arc<Self>, tenant: &TenantId, attempt: Uuid, interrupt: bool, reason: &str) {
        let mut gone = None;
        self.with(tenant, |pool| {
            let (actions, waited) = pool.withdraw(attempt, interrupt, reason);
            gone = waited;
            actions
        });
        if let Some(waiting) = gone {
            self.left_queue(&waiting);
        }
    }

    pub(crate) fn expect(
        self: &Arc<Self>,
        led: (ShardId, Epoch),
        grain: &GrainId,
        attempt: Uuid,
        _queue: QueueName,
        lease: Lease,
    ) {
        self.with(
            &grain.tenant,
            |pool| if pool.leads(led) { pool.expect(led.0, grain, attempt, lease) } else { Vec::new() },
        );
    }

    fn enqueue(self: &Arc<Self>, led: (ShardId, Epoch), grain: &GrainId, item: WorkItem) {
        let waiting = Waiting { grain: grain.clone(), shard: led.0, item };
        self.with(&grain.tenant, |pool| {
            if !pool.leads(led) || pool.knows(waiting.item.attempt) || !self.has_room(&waiting) {
                return Vec::new();
            }
            pool.enqueue(waiting)
        });
    }

    // ---- for workers ----

    pub(crate) fn connect(self: &Arc<Self>, hello: WorkerHello) -> Result<WorkerSession, Rejection> {
        check::hello(&hello)?;
        if self.draining.load(Acquire) {
            return Err(crate::refusal::unavailable("this silo is shutting down"));
        }
        if self.away.is_away() {
            return Err(crate::refusal::unavailable("this silo is cut off from the others; another one has work"));
        }
        let WorkerHello { worker_id, tenant, queues, capacity, held, session: stated } = hello;
        let shards = u32::try_from(self.queued.len()).unwrap_or(u32::MAX);
        let list = |held: HeldAttempt| {
            let shard = home_of(&held.grain, shards);
            Listed { attempt: held.attempt, grain: held.grain, shard, token: held.token }
        };
        let held: Vec<Listed> = held.into_iter().map(list).collect();
        let mut made = None;
        self.with(&tenant, |pool| {
            let Some(session) = pool.next_session(&worker_id, stated, wall_ms(&*self.clock)) else { return Vec::new() };
            let (receiver, actions) = pool.connect(&worker_id, session, queues, capacity, &held);
            made = Some((session, receiver));
            actions
        });
        let (session, receiver) =
            made.ok_or_else(|| crate::refusal::unavailable("a later session of this worker is known already"))?;
        Ok(WorkerSession { dispatch: self.clone(), tenant, worker: worker_id, session, receiver })
    }

    fn renew(self: &Arc<Self>, tenant: &TenantId, worker: &str, attempts: &[Uuid]) -> Vec<Uuid> {
        let mut lost = Vec::new();
        self.with(tenant, |pool| {
            lost = pool.renew(worker, attempts);
            Vec::new()
        });
        lost
    }

    /// No new attempts for anybody from now on. Where there are other nodes, workers are told to go there.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Release);
        let elsewhere = self.relay.has_peers();
        self.tenants.each(self.clock.monotonic_ms(), |pool| {
            pool.drain_all(elsewhere);
            Vec::new()
        });
        self.relay.nudge();
    }

    /// Workers of a silo that has lost the others are told to go to one that has not.
    fn look_around(&self, hub: &Hub) {
        let is_apart = !hub.around.is_alone() && crate::health::apart(hub).is_some();
        let now_ms = self.clock.monotonic_ms();
        if self.away.look(is_apart, now_ms) {
            tracing::warn!("this silo is cut off from the others; its workers are sent to another one");
            self.tenants.each(now_ms, |pool| {
                pool.drain_all(true);
                Vec::new()
            });
            self.relay.nudge();
        }
    }

    // ---- figures ----

    pub(crate) fn work_queued(&self) -> usize {
        self.queued.iter().map(|queued| queued.items.load(Acquire)).sum()
    }

    /// Free places of workers connected to other nodes.
    pub(crate) fn far_places(&self) -> u64 {
        self.tenants.all().into_iter().map(|(_, pool)| pool.lock().far_places()).sum()
    }

    /// Leases in force of attempts owned here, workers connected here.
    pub(crate) fn leases_and_workers(&self) -> (usize, usize) {
        let sum = |(leases, workers), (_, pool): (TenantId, Arc<parking_lot::Mutex<Pool>>)| {
            let pool = pool.lock();
            (leases + pool.leases(), workers + pool.connected())
        };
        self.tenants.all().into_iter().fold((0, 0), sum)
    }

    // ---- inside ----

    /// Works on one tenant's pool and then does what follows, outside the lock.
    fn with(self: &Arc<Self>, tenant: &TenantId, work: impl FnOnce(&mut Pool) -> Vec<Action>) {
        let pool = self.tenants.pool(tenant);
        let (actions, news) = {
            let mut pool = pool.lock();
            (work(pool.at(self.clock.monotonic_ms())), pool.take_news())
        };
        for action in actions {
            self.perform(tenant, action);
        }
        if news {
            self.relay.nudge();
        }
    }

    fn perform_all(self: &Arc<Self>, acts: Acts) {
        for (tenant, action) in acts {
            self.perform(&tenant, action);
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
}

fn wall_ms(clock: &dyn crate::Clock) -> u64 {
    u64::try_from(clock.now().0).unwrap_or(0)
}

/// The lease clock of all tenants; ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<crate::service::Pulse>) {
    // A lease is seen to be over by at most this fraction of it late, never early.
    let every = (hub.options.lease / 45).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let look = || (tokio::time::Instant::now(), hub.clock.monotonic_ms());
    let mut before = look();
    loop {
        pulse.beat();
        let now = look();
        // By both clocks: one that a test moves by hand says nothing of the process.
        let late = (now.0 - before.0).min(Duration::from_millis(now.1.saturating_sub(before.1))).saturating_sub(every);
        before = now;
        if late >= STOOD_STILL {
            let ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(ms, "this process stood still; leases are given the time in which nobody could renew them");
            hub.dispatch.tenants.each(hub.clock.monotonic_ms(), |pool| {
                pool.excuse(ms);
                Vec::new()
            });
        }
        hub.dispatch.look_around(&hub);
        let acts = hub.dispatch.tenants.each(hub.clock.monotonic_ms(), Pool::tick);
        hub.dispatch.perform_all(acts);
        tokio::select! {
            () = hub.clock.sleep(every) => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
}
