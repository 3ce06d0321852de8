//! The silo over real shards: the toy grain, a log on disk, a state store, a clean stop and a start on the same folder.

mod toy;

use cluster::{
    Around, ManualClock, ReadEvents, ReadFrom, Request, Scope, Silo, SiloOptions, Supplier, ToWorker, WorkerHello,
    WorkerSession,
};
use futures::future::{BoxFuture, join_all};
use grain_contract::{GrainId, Method, Need, Rejection, Supply, Timestamp};
use shard::{Host, HostOptions, StateBackend};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(30);
const START: i64 = 1_000_000_000_000;

struct Nothing;

impl Supplier for Nothing {
    fn supply<'a>(&'a self, _: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>> {
        Box::pin(async move { Ok(Ok(Arc::new(need.key.len() as u64) as _)) })
    }
}

struct Node {
    host: Host,
    silo: Silo,
    clock: ManualClock,
}

impl Node {
    async fn start(folder: &Path, state: StateBackend, at: i64) -> Self {
        let options = HostOptions { state, segment_bytes: 1 << 20, ..HostOptions::new(folder, 4) };
        let host = Host::open(options).await.expect("the folder opens");
        let clock = ManualClock::at(Timestamp(at));
        let options = SiloOptions::new("test", toy::CLAIM, toy::LEASE_EXPIRED, toy::SWEEP, toy::OPEN);
        let types = vec![Arc::new(toy::Toys) as _];
        let silo =
            Silo::start(host.clone(), options, types, Arc::new(Nothing), Arc::new(clock.clone()), Around::alone())
                .await;
        Self { host, silo: silo.expect("one kind"), clock }
    }

    async fn stop(self) {
        self.silo.drain(PATIENCE).await;
        self.host.close().await.expect("closes");
    }

    async fn call(&self, key: &str, method: Method, body: &[u8]) -> Vec<u8> {
        let (target, body) = (toy::id("acme", key), body.to_vec());
        let request = Request { target, method, body, command: None, deadline: Instant::now() + PATIENCE };
        self.silo.call(request).await.expect("an answer")
    }

    async fn add(&self, key: &str) -> u64 {
        toy::number(&self.call(key, toy::ADD, &1u64.to_le_bytes()).await)
    }

    async fn worker(&self, id: &str) -> WorkerSession {
        let (worker_id, queues) = (id.to_owned(), vec!["q".into()]);
        let hello = WorkerHello { worker_id, tenant: "acme".into(), queues, capacity: 8, held: Vec::new(), session: 0 };
        self.silo.connect_worker(hello).await.expect("connected")
    }

    /// Returns once no shard holds a call that is not ticked off.
    async fn calls_done(&self) {
        let open = |n| {
            let shard = self.host.shard(shard::ShardId(n)).expect("a shard");
            !shard.open_calls(0, 1).expect("rows").is_empty()
        };
        while (0..self.host.shards()).any(open) {
            tokio::task::yield_now().await;
        }
    }

    async fn told(&self, key: &str) -> String {
        let mut watch = self.silo.watch(&toy::id("acme", key));
        loop {
            let told = self.call(key, toy::TOLD, b"").await;
            if !told.is_empty() {
                return String::from_utf8(told).expect("text");
            }
            timeout(PATIENCE, watch.changed()).await.expect("told in time");
        }
    }
}

/// [K3] [K4] [K5] [V2] [R15] Sums, reminders, calls between grains, events and waiting work outlive a stop, on each backend.
async fn everything_outlives_a_stop(state: StateBackend) {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), state, START).await;
    let keys: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    for _ in 0..3 {
        join_all(keys.iter().map(|key| node.add(key))).await;
    }
    node.call("7", toy::REMIND, format!("nap:{}", START + 5_000).as_bytes()).await;
    node.call("8", toy::WORK, &[Uuid::from_u128(8).as_bytes(), &b"q"[..]].concat()).await;
    node.call("9", toy::SEND, b"10").await;
    let mut watch = node.silo.watch(&toy::id("acme", "10"));
    while toy::number(&node.call("10", toy::GET, b"").await) < 4 {
        timeout(PATIENCE, watch.changed()).await.expect("delivered in time");
    }
    // Delivered is not yet ticked off, and a stop in between means a second delivery: calls come at least once, and the toy
    // counts each.
    timeout(PATIENCE, node.calls_done()).await.expect("ticked off in time");
    node.stop().await;

    let node = Node::start(folder.path(), state, START + 60_000).await;
    assert_eq!(node.told("7").await, format!("reminder nap due {} late 55000", START + 5_000));
    let mut worker = node.worker("w").await;
    match timeout(PATIENCE, worker.recv()).await.expect("assigned in time") {
        Some(ToWorker::Assign { item, .. }) => assert_eq!(item.attempt, Uuid::from_u128(8)),
        other => panic!("expected an assignment, but found {other:?}"),
    }
    for key in &keys {
        let sum = toy::number(&node.call(key, toy::GET, b"").await);
        assert_eq!(sum, if key == "10" { 4 } else { 3 }, "{key}");
    }
    let read =
        ReadEvents { tenant: Some("acme".into()), cursor_name: None, from: ReadFrom::Earliest, scope: Scope::Cluster };
    let mut reader = node.silo.events(read).await.expect("a reader");
    let mut events = Vec::new();
    while events.len() < 121 {
        events.extend(timeout(PATIENCE, reader.next_batch()).await.expect("in time").expect("a batch"));
    }
    assert_eq!(events.len(), 121);
    let mut token = String::new();
    let mut listed = Vec::new();
    loop {
        let page = node
            .silo
            .index_page(toy::OPEN, &"acme".into(), &token, 7, tokio::time::Instant::now() + Duration::from_secs(20))
            .await
            .expect("a page");
        listed.extend(page.entries.into_iter().map(|entry| entry.grain.key.to_string()));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(listed, sorted);
    node.clock.advance(Duration::from_secs(1));
    node.stop().await;
}

/// [FR-095] Reminders far in the future that were cleared leave no row, before and after a start on the same folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleared_reminders_of_next_year_leave_no_row() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let rows = |node: &Node| -> usize {
        let count = |n| {
            let shard = node.host.shard(shard::ShardId(n)).expect("a shard");
            shard.reminders(Timestamp(START + 2 * YEAR_MS), None, 1_000).expect("rows").len()
        };
        (0..node.host.shards()).map(count).sum()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), StateBackend::Sled, START).await;
    let keys: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let body = format!("deadline:{}", START + YEAR_MS);
    join_all(keys.iter().map(|key| node.call(key, toy::REMIND, body.as_bytes()))).await;
    assert_eq!(rows(&node), keys.len());
    join_all(keys.iter().map(|key| node.call(key, toy::CLEAR, b"deadline"))).await;
    assert_eq!(rows(&node), 0);
    node.stop().await;
    let node = Node::start(folder.path(), StateBackend::Sled, START + 60_000).await;
    assert_eq!(rows(&node), 0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_outlives_a_stop_in_memory() {
    everything_outlives_a_stop(StateBackend::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_outlives_a_stop_on_sled() {
    everything_outlives_a_stop(StateBackend::Sled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_outlives_a_stop_on_fjall() {
    everything_outlives_a_stop(StateBackend::Fjall).await;
}
