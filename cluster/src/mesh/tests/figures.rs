//! Figures, for people: `cargo test -p cluster --lib --release -- --ignored --nocapture mesh::tests::figures`.

use super::child::Birth;
use super::nodes::{Authority, PATIENCE, Plan, soon};
use crate::mesh::Carrier;
use crate::peers::Peers;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processor time of a process so far.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a test"]
async fn idle_processor_time_of_three_nodes() {
    const FOR: Duration = Duration::from_secs(20);
    let authority = Authority::new();
    for (carrier, shards) in [(Carrier::Tonic, 0), (Carrier::Mesh, 0), (Carrier::Mesh, 16)] {
        // The first says where it listens only when it has founded, so its address is fixed.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let birth = |name, id| Birth { shards, ..Birth::new(name, id, carrier) };
        let first = Birth { peer: &free, ..birth("a", 1) };
        let (first, second, third) = tokio::join!(
            first.start(&authority, &free),
            birth("b", 2).start(&authority, &free),
            birth("c", 3).start(&authority, &free)
        );
        let all = [first, second, third];
        tokio::time::sleep(Duration::from_secs(5)).await;
        let used = || all.iter().map(|child| cpu(child.pid())).sum::<Duration>();
        let before = used();
        tokio::time::sleep(FOR).await;
        let share = (used() - before).as_secs_f64() / FOR.as_secs_f64() * 100.0;
        println!("idle, {carrier:?}, {shards} shards on 3 nodes: {share:.2} % of one core in all");
        for child in all {
            child.kill().await;
        }
    }
}

async fn latencies(peers: &Arc<dyn Peers>, count: usize, body: &Bytes) -> Vec<Duration> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        peers.call(9, "echo.back", body.clone(), PATIENCE).await.unwrap();
        all.push(begun.elapsed());
    }
    all.sort();
    all
}

fn say(what: &str, sorted: &[Duration]) {
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    println!("{what}: p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), at(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a test"]
async fn calls_and_detection() {
    for carrier in [Carrier::Tonic, Carrier::Mesh] {
        let authority = Authority::new();
        let mut plan = Plan::new(&authority, "a", 5, &[]);
        plan.options.carrier = carrier;
        let first = plan.start().await;
        let child = Birth::new("b", 9, carrier).start(&authority, &first.seed()).await;
        first.until("the child", |attached| attached.contains_key(&9)).await;
        if carrier == Carrier::Mesh {
            first.has_gates(&[9]).await;
        }
        let (peers, small, big) = (first.peers(), Bytes::from(vec![1; 500]), Bytes::from(vec![1; 4 << 20]));
        latencies(&peers, 500, &small).await;
        say(&format!("{carrier:?}, 500 bytes, one after the other"), &latencies(&peers, 1_000, &small).await);
        let (begun, used) = (Instant::now(), cpu(std::process::id()) + cpu(child.pid()));
        let many = (0..256).map(|_| {
            let (peers, small) = (peers.clone(), small.clone());
            tokio::spawn(async move { latencies(&peers, 100, &small).await.len() })
        });
        let done: usize = futures::future::join_all(many).await.into_iter().map(Result::unwrap).sum();
        let (taken, used) = (begun.elapsed(), cpu(std::process::id()) + cpu(child.pid()) - used);
        let (rate, cost) = (done as f64 / taken.as_secs_f64(), used.as_micros() as f64 / done as f64);
        println!("{carrier:?}, 256 at once: {rate:.0} calls/s, {cost:.1} us CPU a call, both sides");
        let stream = tokio::spawn({
            let (peers, big) = (peers.clone(), big.clone());
            async move {
                loop {
                    peers.call(9, "echo.back", big.clone(), PATIENCE).await.unwrap();
                }
            }
        });
        say(&format!("{carrier:?}, 500 bytes beside a stream of 4 MiB"), &latencies(&peers, 300, &small).await);
        stream.abort();
        let begun = Instant::now();
        child.freeze();
        first.until("the end", |attached| attached.is_empty()).await;
        println!("{carrier:?}, frozen: detached after {:?}", begun.elapsed());
        let begun = Instant::now();
        child.thaw();
        first.until("the child", |attached| attached.contains_key(&9)).await;
        println!("{carrier:?}, thawed: attached after {:?}", begun.elapsed());
        let begun = Instant::now();
        child.signal("-KILL");
        println!("{carrier:?}, signal sent {:?}", begun.elapsed());
        let mut a = first.peers().attached();
        while !a.borrow_and_update().is_empty() {
            a.changed().await.unwrap();
            println!("changed {:?} {:?}", begun.elapsed(), a.borrow().len());
        }
        println!("{carrier:?}, frozen, thawed and killed: detached after {:?}", begun.elapsed());
        for round in 0..1 {
            let child = Birth::new("c", 10 + round, carrier).start(&authority, &first.seed()).await;
            first.until("the child", |attached| attached.contains_key(&child.id)).await;
            if carrier == Carrier::Mesh {
                first.has_gates(&[child.id]).await;
            }
            child.signal("-KILL");
            let begun = Instant::now();
            first.until("the end", |attached| !attached.contains_key(&child.id)).await;
            println!("{carrier:?}, killed: detached after {:?}", begun.elapsed());
        }
        soon("the stop", first.mesh.stop(Duration::ZERO)).await;
    }
}
