//! One process that hosts activations.

use crate::clocks::Clocks;
use crate::dispatch::Dispatch;
use crate::events::{Readers, Tails, run_keeper, run_retention, run_tails};
use crate::hop::rows::RowsOf;
use crate::hop::way::Hints;
use crate::hop::{Around, Parcels};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::room::{self, Room};
use crate::service::{Pulse, keep_running};
use crate::store::{HostedShard, Store};
use crate::watch::{Interests, Watches};
use crate::{
    Clock, EventReader, Health, IndexPage, MetricsSnapshot, ReadEvents, SiloOptions, Watch, WorkerHello, WorkerSession,
    dispatch, drain, events, health, hop, lists, reaper, watch,
};
use futures::future::BoxFuture;
use grain_contract::{CommandId, GrainId, GrainType, Method, Need, Rejection, Row, Supply, Table, TenantId};
use parking_lot::Mutex;
use shard::ShardId;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fetches what a grain needs and does not own.
pub trait Supplier: Send + Sync {
    /// # Errors
    /// A passing fault: it is asked again inside the caller's deadline. A final answer is `Ok(Err(…))`.
    fn supply<'a>(&'a self, grain: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>>;
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("two grain types have the kind {0}")]
    DoubledKind(String),
    #[error(transparent)]
    Shard(#[from] shard::Error),
}

/// A call of a grain.
///
/// What may have happened is made again behind the caller's back only if a second time has no second effect: if there is a
/// `command` (the stored reply answers), or if the grain's kind says so of the method
/// ([`grain_contract::GrainType::is_idempotent`]). Of the calls of runs all are, but for an observation, which would be in the
/// journal twice; of releases and definitions all. A submission or a load that was made again in this way may be answered as a
/// repeat although its caller made it once.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: GrainId,
    pub method: Method,
    pub body: Vec<u8>,
    /// Repeats of the same command get the stored reply.
    pub command: Option<CommandId>,
    pub deadline: Instant,
}

/// Handle of a running silo; cheap to clone. The silo runs until [`Silo::drain`].
#[derive(Clone)]
pub struct Silo {
    hub: Arc<Hub>,
    services: Arc<Services>,
}

struct Services {
    tasks: Mutex<JoinSet<()>>,
    leases: Arc<Pulse>,
    relay: Arc<Pulse>,
    keeper: Arc<Pulse>,
    retention: Arc<Pulse>,
    tails: Arc<Pulse>,
    watching: Arc<Pulse>,
    telling: Arc<Pulse>,
}

impl Silo {
    /// Starts hosting every shard that this process leads, now and later. Does not wait for leadership: calls do, inside their
    /// deadlines, and [`Silo::health`] tells.
    ///
    /// # Errors
    /// [`Error::DoubledKind`]; [`Error::Shard`] if the host is closed.
    pub async fn start(
        host: shard::Host,
        options: SiloOptions,
        types: Vec<Arc<dyn GrainType>>,
        supplier: Arc<dyn Supplier>,
        clock: Arc<dyn Clock>,
        around: Around,
    ) -> Result<Silo, Error> {
        let shards = (0..host.shards()).map(|n| host.shard(ShardId(n)).ok_or(shard::Error::Closed));
        let shards = shards.collect::<Result<Vec<_>, _>>()?;
        if shards.is_empty() {
            return Err(shard::Error::Closed.into());
        }
        let store = |shard| Arc::new(HostedShard { host: host.clone(), shard }) as Arc<dyn Store>;
        Self::start_over(shards.into_iter().map(store).collect(), options, types, supplier, clock, around)
    }

    pub(crate) fn start_over(
        stores: Vec<Arc<dyn Store>>,
        options: SiloOptions,
        types: Vec<Arc<dyn GrainType>>,
        supplier: Arc<dyn Supplier>,
        clock: Arc<dyn Clock>,
        around: Around,
    ) -> Result<Silo, Error> {
        let mut by_kind = HashMap::new();
        for behaviour in types {
            let kind = behaviour.kind();
            if by_kind.insert(kind.clone(), behaviour).is_some() {
                return Err(Error::DoubledKind(kind.as_str().to_owned()));
            }
        }
        let number = |n: usize| ShardId(u32::try_from(n).unwrap_or(u32::MAX));
        let rooms: Vec<Arc<Room>> =
            stores.into_iter().enumerate().map(|(n, store)| Arc::new(Room::new(number(n), store))).collect();
        let hub = Arc::new_cyclic(|hub| Hub {
            around,
            dispatch: Arc::new(Dispatch::new(hub.clone(), rooms.len(), options.lease, clock.clone())),
            hints: Hints::new(rooms.len()),
            parcels: Parcels::default(),
            serving: AtomicUsize::new(0),
            clocks: Arc::default(),
            interests: Interests::default(),
            tails: Tails::new(rooms.len()),
            options,
            types: by_kind,
            supplier,
            clock,
            metrics: Arc::new(Metrics::default()),
            watches: Watches::default(),
            rooms,
            readers: Readers::default(),
            calls: AtomicUsize::new(0),
            call_ended: Notify::new(),
            turns_running: AtomicUsize::new(0),
            turn_ended: Notify::new(),
            draining: AtomicBool::new(false),
            over_budget: Notify::new(),
            stop: CancellationToken::new(),
        });
        hub.around.services.mount(hop::SERVICE, Arc::new(hop::Served(Arc::downgrade(&hub))));
        let services = Services::start(&hub);
        Ok(Silo { hub, services: Arc::new(services) })
    }

    /// Calls a grain; the answer comes after its commit, before the deadline.
    ///
    /// # Errors
    /// Whatever the grain refuses with; `Overloaded` (try again after [`crate::RETRY_HINT_MS`]); `Unavailable` (no leader, or
    /// the outcome is not known: repeat it); `Quarantined`; `Internal`.
    pub async fn call(&self, request: Request) -> Result<Vec<u8>, Rejection> {
        let Request { target, method, body, command, deadline } = request;
        self.hub.call(target, method, body, command, deadline).await
    }

    /// Rows of one table of a grain behind `after`, as they were last committed, at most `limit`.
    ///
    /// # Errors
    /// `Unavailable` if no owner answered before the deadline.
    pub async fn rows(
        &self,
        target: &GrainId,
        table: Table,
        after: Option<&[u8]>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Row>, Rejection> {
        let question = RowsOf { grain: target.clone(), table, after: after.map(<[u8]>::to_vec), limit };
        Ok(self.hub.rows(vec![question], deadline).await?.pop().unwrap_or_default())
    }

    /// The same for many tables of many grains, in the order of the questions, in one call an owner.
    ///
    /// # Errors
    /// As [`Silo::rows`].
    pub async fn rows_of(&self, questions: Vec<RowsOf>, deadline: Instant) -> Result<Vec<Vec<Row>>, Rejection> {
        self.hub.rows(questions, deadline).await
    }

    /// One page of a tenant's entries of an index over all shards; `page_token` is empty or that of the page before; at most
    /// [`grain_contract::limits::PAGE_MAX`] entries.
    ///
    /// # Errors
    /// `Invalid` for a token of something else; `Unavailable` if not every shard's owner answered before the deadline.
    pub async fn index_page(
        &self,
        index: &str,
        tenant: &TenantId,
        page_token: &str,
        limit: usize,
        deadline: Instant,
    ) -> Result<IndexPage, Rejection> {
        lists::index_page(&self.hub, index, tenant, page_token, limit, deadline).await
    }

    /// Tells when the grain changes, from now on.
    pub fn watch(&self, target: &GrainId) -> Watch {
        self.hub.watches.watch(target)
    }

    /// # Errors
    /// `Invalid` for a name or cursor that cannot be; `Unavailable`.
    pub async fn events(&self, request: ReadEvents) -> Result<EventReader, Rejection> {
        events::open(&self.hub, request).await
    }

    /// # Errors
    /// `Invalid`, naming the field; `Unavailable` while the silo drains.
    pub async fn connect_worker(&self, hello: WorkerHello) -> Result<WorkerSession, Rejection> {
        self.hub.dispatch.connect(hello)
    }

    pub fn health(&self) -> Health {
        health::of(&self.hub, self.services.complaints())
    }

    /// What is known of the clocks of the silos beside this one; nothing unless [`crate::clocks::watch`] runs.
    pub fn clocks(&self) -> Arc<Clocks> {
        self.hub.clocks.clone()
    }

    pub fn metrics(&self) -> MetricsSnapshot {
        let (leases, workers) = self.hub.dispatch.leases_and_workers();
        let sum = |gauge: fn(&Room) -> u64| self.hub.rooms.iter().map(|room| gauge(room)).sum::<u64>();
        let oldest = |room: &Arc<Room>| room.reminders.oldest_overdue_ms.load(Ordering::Relaxed);
        MetricsSnapshot {
            calls_in_progress: self.hub.calls.load(Ordering::Relaxed) as u64,
            reminders_armed: sum(|room| room.reminders.armed.load(Ordering::Relaxed)),
            reminders_overdue: sum(|room| room.reminders.overdue.load(Ordering::Relaxed)),
            reminder_oldest_overdue_ms: self.hub.rooms.iter().map(oldest).max().unwrap_or(0),
            outbox_calls_open: sum(|room| room.calls_open.load(Ordering::Relaxed)),
            event_reader_lag: self.hub.readers.worst_lag(),
            work_queued: self.hub.dispatch.work_queued() as u64,
            relay_far_places: self.hub.dispatch.far_places(),
            leases: leases as u64,
            workers: workers as u64,
            ..self.hub.metrics.snapshot()
        }
    }

    /// Gives away what it leads (alone: admits no more and lets calls end), keeps the cursors, ends the services and waits for
    /// the last turn; gives up waiting after `deadline`. With others beside it, calls are answered before, during and after it,
    /// for as long as the peers can be reached. The host is the caller's to close. What was not finished is in rows.
    pub async fn drain(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        let tasks = std::mem::take(&mut *self.services.tasks.lock());
        drain::drain(&self.hub, tasks, until).await;
    }
}

impl Silo {
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

#[cfg(test)]
impl Silo {
    /// Ends everything at once and keeps nothing, as a crash does.
    pub(crate) fn kill(&self) {
        self.hub.stop.cancel();
    }
}

impl Services {
    fn start(hub: &Arc<Hub>) -> Self {
        let mut tasks = JoinSet::new();
        for room in &hub.rooms {
            tasks.spawn(room::host(hub.clone(), room.clone()));
        }
        let leases = run(&mut tasks, hub, "the lease clock", dispatch::run);
        dispatch::mount_relay(hub);
        let relay = run(&mut tasks, hub, "the relay of workers", dispatch::run_relay);
        let keeper = run(&mut tasks, hub, "the keeper of cursors", run_keeper);
        let retention = run(&mut tasks, hub, "the retention of events", run_retention);
        let tails = run(&mut tasks, hub, "the look at events elsewhere", run_tails);
        let watching = run(&mut tasks, hub, "the watch on grains elsewhere", watch::run);
        let telling = run(&mut tasks, hub, "the word to watchers elsewhere", watch::tell);
        // Without a pulse: a reaper that stands still costs memory, not promises.
        let (reaping, stop) = (reaper::run(hub.clone()), hub.stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = reaping => {}
                () = stop.cancelled() => {}
            }
        });
        Self { tasks: Mutex::new(tasks), leases, relay, keeper, retention, tails, watching, telling }
    }

    fn complaints(&self) -> impl Iterator<Item = String> + '_ {
        [&self.leases, &self.relay, &self.keeper, &self.retention, &self.tails, &self.watching, &self.telling]
            .into_iter()
            .filter_map(|pulse| pulse.complaint())
    }
}

fn run<Fut>(
    tasks: &mut JoinSet<()>,
    hub: &Arc<Hub>,
    name: &'static str,
    service: fn(Arc<Hub>, Arc<Pulse>) -> Fut,
) -> Arc<Pulse>
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let pulse = Arc::new(Pulse::new(name));
    let (hub, given) = (hub.clone(), pulse.clone());
    let (metrics, stop) = (hub.metrics.clone(), hub.stop.clone());
    tasks.spawn(keep_running(pulse.clone(), metrics, stop, move || service(hub.clone(), given.clone())));
    pulse
}
