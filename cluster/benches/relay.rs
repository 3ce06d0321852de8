//! What a hop costs: a call at the node that owns the grain against the same call at another one, and an attempt handed to a
//! worker at its owner against one that is relayed. Three nodes in one process, real Raft and membership, a log on disk, a
//! network in memory: so it is the cost of the code, without sockets and TLS. `cargo bench -p cluster --bench relay`.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/toy/mod.rs"]
mod toy;

use cluster::placement::home_of;
use cluster::{ToWorker, WorkerHello, WorkerSession};
use common::{Node, Settings, TestCluster};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const NAMES: [&str; 3] = ["a", "b", "c"];
const UNTIMED: usize = 100;

fn main() {
    let rounds = std::env::var("BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(measure(rounds));
}

async fn measure(rounds: usize) {
    let cluster = TestCluster::founded(Settings::founders(&NAMES)).await;
    cluster.at_rest(&NAMES, 3).await;
    let owner = leader_of(&cluster, "k");
    let other = cluster.nodes.values().find(|node| node.name != owner.name).expect("three of them");

    let mut read = Pair::new("read, confirmed by the leader");
    let mut write = Pair::new("call with a commit");
    for round in 0..UNTIMED + rounds {
        for (node, is_far) in [(owner, false), (other, true)] {
            read.time(round, is_far, || async { node.sum("k").await.map(drop).expect("a sum") }).await;
            let command = format!("{round}-{is_far}");
            write.time(round, is_far, || async { node.add("k", &command).await.map(drop).expect("a sum") }).await;
        }
    }
    read.say();
    write.say();

    let mut work = Pair::new("attempt, from the call that makes it to the worker");
    let (mut near, mut far) = (worker(owner, "near").await, worker(other, "far").await);
    for round in 0..UNTIMED + rounds {
        for (session, queue, is_far) in [(&mut near, "near", false), (&mut far, "far", true)] {
            let attempt = Uuid::from_u128(1 + 2 * round as u128 + u128::from(is_far));
            let body = [attempt.as_bytes(), queue.as_bytes()].concat();
            work.time(round, is_far, || async {
                let made = call(owner, toy::WORK, body);
                let (got, ()) = tokio::join!(assigned(session), made);
                assert_eq!(got, attempt);
            })
            .await;
            session.finished(attempt);
            call(owner, toy::DONE, attempt.as_bytes().to_vec()).await;
            session.release(attempt);
        }
    }
    work.say();
    let metrics = owner.silo.metrics();
    println!("relayed: {} taken, {} refused", metrics.relay_assigned, metrics.relay_refused);
}

fn leader_of<'a>(cluster: &'a TestCluster, key: &str) -> &'a Node {
    let shard = home_of(&toy::id("acme", key), cluster.settings.shards);
    let leads = |node: &&Node| node.host.shard(shard).expect("a shard").leadership().borrow().epoch.is_some();
    cluster.nodes.values().find(leads).expect("at rest, so it is led")
}

async fn worker(node: &Node, name: &str) -> WorkerSession {
    let queues = vec![name.into()];
    let (worker_id, tenant, held) = (name.to_owned(), "acme".into(), Vec::new());
    let hello = WorkerHello { worker_id, tenant, queues, capacity: 64, held, session: 0 };
    node.silo.connect_worker(hello).await.expect("connected")
}

async fn assigned(worker: &mut WorkerSession) -> Uuid {
    match tokio::time::timeout(common::PATIENCE, worker.recv()).await {
        Ok(Some(ToWorker::Assign { item, .. })) => item.attempt,
        other => panic!("expected an assignment, but found {other:?}"),
    }
}

async fn call(node: &Node, method: grain_contract::Method, body: Vec<u8>) {
    let (target, deadline) = (toy::id("acme", "k"), Instant::now() + Duration::from_secs(10));
    let request = cluster::Request { target, method, body, command: None, deadline };
    node.silo.call(request).await.expect("taken");
}

/// The same at the owner and elsewhere, in turn, so that both see the same machine.
struct Pair {
    what: &'static str,
    here: Vec<Duration>,
    far: Vec<Duration>,
}

impl Pair {
    fn new(what: &'static str) -> Self {
        Self { what, here: Vec::new(), far: Vec::new() }
    }

    async fn time<F: Future<Output = ()>>(&mut self, round: usize, is_far: bool, what: impl FnOnce() -> F) {
        let begun = Instant::now();
        what().await;
        let took = begun.elapsed();
        if round >= UNTIMED {
            if is_far { self.far.push(took) } else { self.here.push(took) }
        }
    }

    fn say(mut self) {
        let mut of = |times: fn(&mut Self) -> &mut Vec<Duration>| {
            let times = times(&mut self);
            times.sort_unstable();
            let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
            (at(50), at(95))
        };
        let ((here, here_95), (far, far_95)) = (of(|pair| &mut pair.here), of(|pair| &mut pair.far));
        println!(
            "{:<52} at the owner p50 {here:.0} p95 {here_95:.0} us, elsewhere p50 {far:.0} p95 {far_95:.0} us: ratio {:.2}",
            self.what,
            far / here
        );
    }
}
