//! What the tests of a silo share: shards in memory, a clock that moves when told to, the toy grain, and waiting for something
//! to become true with a deadline.

pub(crate) mod many;
pub(crate) mod memory;
pub(crate) mod net;
#[path = "../../tests/toy/mod.rs"]
pub(crate) mod toy;

use crate::store::Store;
use crate::{Around, ManualClock, Request, Silo, SiloOptions, Supplier, WorkerHello, WorkerSession};
use futures::future::BoxFuture;
use grain_contract::{CommandId, GrainId, Method, Need, Rejection, Supply, Timestamp};
use memory::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Wall time at the start of a test, ms.
pub(crate) const START: i64 = 1_000_000_000_000;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Supplies the length of the key, after so many passing faults.
#[derive(Default)]
pub(crate) struct Lengths {
    pub(crate) faults: AtomicUsize,
}

impl Supplier for Lengths {
    fn supply<'a>(&'a self, _: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>> {
        Box::pin(async move {
            let left = self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            match left {
                Ok(_) => Err(crate::refusal::unavailable("the source is away")),
                Err(_) => Ok(Ok(Arc::new(need.key.len() as u64) as _)),
            }
        })
    }
}

pub(crate) struct Cluster {
    pub(crate) stores: Vec<Arc<MemoryStore>>,
    pub(crate) clock: ManualClock,
    pub(crate) supplier: Arc<Lengths>,
    pub(crate) options: SiloOptions,
    pub(crate) silo: Silo,
}

impl Cluster {
    pub(crate) fn start(shards: usize) -> Self {
        Self::with(shards, |_| {})
    }

    pub(crate) fn with(shards: usize, change: impl FnOnce(&mut SiloOptions)) -> Self {
        let stores: Vec<_> = (0..shards).map(|_| Arc::new(MemoryStore::new())).collect();
        let mut options = SiloOptions::new("test", toy::CLAIM, toy::LEASE_EXPIRED, toy::SWEEP, toy::OPEN);
        change(&mut options);
        let (clock, supplier) = (ManualClock::at(Timestamp(START)), Arc::new(Lengths::default()));
        let silo = launch(&stores, &options, &supplier, &clock);
        Self { stores, clock, supplier, options, silo }
    }

    /// The process is gone and another starts on the same rows: nothing in memory survives, time went on.
    pub(crate) fn restart(&mut self, after: Duration) {
        self.silo.kill();
        self.stores.iter().for_each(|store| store.elect());
        self.clock.advance(after);
        self.silo = launch(&self.stores, &self.options, &self.supplier, &self.clock);
    }

    pub(crate) async fn call(&self, key: &str, method: Method, body: &[u8]) -> Result<Vec<u8>, Rejection> {
        self.call_of("acme", key, method, body).await
    }

    pub(crate) async fn call_of(
        &self,
        tenant: &str,
        key: &str,
        method: Method,
        body: &[u8],
    ) -> Result<Vec<u8>, Rejection> {
        self.silo.call(request(tenant, key, method, body, None)).await
    }

    pub(crate) async fn command(&self, key: &str, command: &str, amount: u64) -> Result<u64, Rejection> {
        let request = request("acme", key, toy::ADD, &amount.to_le_bytes(), Some(command.into()));
        self.silo.call(request).await.map(|reply| toy::number(&reply))
    }

    pub(crate) async fn add(&self, key: &str, amount: u64) -> Result<u64, Rejection> {
        self.call(key, toy::ADD, &amount.to_le_bytes()).await.map(|reply| toy::number(&reply))
    }

    pub(crate) async fn sum(&self, key: &str) -> u64 {
        toy::number(&self.call(key, toy::GET, b"").await.expect("a sum"))
    }

    /// What the machinery told this toy, one line each.
    pub(crate) async fn told(&self, key: &str) -> Vec<String> {
        let told = self.call(key, toy::TOLD, b"").await.expect("lines");
        String::from_utf8(told).expect("text").lines().map(str::to_owned).collect()
    }

    pub(crate) async fn until_told(&self, key: &str, count: usize) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let told = self.told(key).await;
            if told.len() >= count {
                return told;
            }
            assert!(Instant::now() < until, "{key} was told {told:?} only");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn work(&self, tenant: &str, key: &str, attempt: Uuid, queue: &str) {
        let body = [attempt.as_bytes(), queue.as_bytes()].concat();
        self.call_of(tenant, key, toy::WORK, &body).await.expect("work made");
    }

    /// Who holds the attempts of this toy: id and worker, `-` for none.
    pub(crate) async fn attempts(&self, key: &str) -> Vec<(Uuid, String)> {
        let list = self.call(key, toy::ATTEMPTS, b"").await.expect("a list");
        let list = String::from_utf8(list).expect("text");
        let line = |line: &str| line.split_once(' ').map(|(id, worker)| (id.parse().expect("id"), worker.to_owned()));
        list.lines().filter_map(line).collect()
    }

    pub(crate) async fn worker(&self, id: &str, capacity: u32, held: Vec<crate::HeldAttempt>) -> WorkerSession {
        self.silo.connect_worker(hello("acme", id, capacity, held)).await.expect("connected")
    }
}

/// The deadline of whatever a test asks.
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn hello(tenant: &str, id: &str, capacity: u32, held: Vec<crate::HeldAttempt>) -> WorkerHello {
    WorkerHello {
        worker_id: id.to_owned(),
        tenant: tenant.into(),
        queues: vec!["q".into()],
        capacity,
        held,
        session: 0,
    }
}

pub(crate) fn request(tenant: &str, key: &str, method: Method, body: &[u8], command: Option<CommandId>) -> Request {
    let target = toy::id(tenant, key);
    Request { target, method, body: body.to_vec(), command, deadline: Instant::now() + PATIENCE }
}

fn launch(stores: &[Arc<MemoryStore>], options: &SiloOptions, supplier: &Arc<Lengths>, clock: &ManualClock) -> Silo {
    let stores = stores.iter().map(|store| store.clone() as Arc<dyn Store>).collect();
    let types: Vec<Arc<dyn grain_contract::GrainType>> = vec![Arc::new(toy::Toys)];
    let clock = Arc::new(clock.clone());
    Silo::start_over(stores, options.clone(), types, supplier.clone(), clock, Around::alone()).expect("one kind")
}

/// Gives way to everything else until it is true; fails when patience ends.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        tokio::task::yield_now().await;
    }
}

/// Lets everything that is ready run, often enough for chains of tasks to settle.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn next<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}
