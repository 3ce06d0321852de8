//! Three hosts in one process over a network in memory, sixteen shards, real disks: commits a second at several numbers of
//! clients, and the CPU that the three take when nothing happens. `cargo bench -p shard --bench replicas`.

use grain_contract::{Epoch, GrainId, Row, RowKey, Table, Timestamp, Turn};
use shard::testing::Net;
use shard::{Commit, Host, HostOptions, Shard, ShardId, StateBackend};
use std::time::{Duration, Instant};

const NODES: u64 = 3;
const SHARDS: u32 = 16;
const ROW_BYTES: usize = 1_024;

fn main() {
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    for state in [StateBackend::Memory, StateBackend::Sled] {
        runtime.block_on(measure(state, Duration::from_secs(seconds)));
    }
}

async fn measure(state: StateBackend, span: Duration) {
    let net = Net::new();
    let dirs: Vec<_> = (0..NODES).map(|_| tempfile::tempdir().expect("a temporary folder")).collect();
    let mut hosts = Vec::new();
    for (node, dir) in (1..).zip(&dirs) {
        let link = net.link(node);
        let base = HostOptions::new(dir.path(), SHARDS);
        let options = HostOptions { alone: false, node_id: Some(node), link, state, ..base };
        let host = Host::open(options).await.expect("a new host opens");
        net.attach(&host);
        for shard in 0..SHARDS {
            host.start_replica(ShardId(shard)).await.expect("a new replica starts");
        }
        hosts.push(host);
    }
    for shard in 0..SHARDS {
        hosts[shard as usize % hosts.len()]
            .found(ShardId(shard), (1..=NODES).collect())
            .await
            .expect("a new group is founded");
    }
    let mut owners = Vec::new();
    for shard in 0..SHARDS {
        owners.push(owner(&hosts, ShardId(shard)).await);
    }
    idle(&net, state, span).await;
    for clients in [1, 32, 256] {
        load(&owners, state, clients, span).await;
    }
    for host in &hosts {
        net.detach(host.node_id());
    }
    for host in hosts {
        host.close().await.expect("it closes in order");
    }
}

async fn owner(hosts: &[Host], id: ShardId) -> (Shard, Epoch) {
    let mut shards: Vec<_> = hosts.iter().map(|host| host.shard(id).expect("below the count")).collect();
    loop {
        for shard in &mut shards {
            if let Some(epoch) = shard.leadership().borrow().epoch {
                return (shard.clone(), epoch);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn idle(net: &Net, state: StateBackend, span: Duration) {
    // The elections are over, and so is what they left to write.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (cpu, (requests, _), begun) = (cpu(), net.traffic(), Instant::now());
    tokio::time::sleep(span).await;
    let took = begun.elapsed().as_secs_f64();
    let (percent, messages) = (100.0 * (self::cpu() - cpu) / took, (net.traffic().0 - requests) as f64 / took);
    println!(
        "{state:?}: idle: {percent:.1} % of a core for {NODES} nodes of {SHARDS} shards, {messages:.0} requests/s"
    );
}

async fn load(owners: &[(Shard, Epoch)], state: StateBackend, clients: usize, span: Duration) {
    let (cpu, begun) = (cpu(), Instant::now());
    let until = begun + span;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (shard, epoch) = owners[client % owners.len()].clone();
            tokio::spawn(async move { client_of(shard, epoch, format!("{clients}-{client}"), until).await })
        })
        .collect();
    let mut took: Vec<Duration> = Vec::new();
    for task in tasks {
        took.extend(task.await.expect("a client ends"));
    }
    let all = begun.elapsed().as_secs_f64();
    took.sort_unstable();
    let at =
        |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default().as_secs_f64() * 1e3;
    let (rate, cpu) = (took.len() as f64 / all, (self::cpu() - cpu) / took.len().max(1) as f64 * 1e6);
    println!(
        "{state:?}: {clients} clients: {rate:.0} commits/s, p50 {:.2} ms, p99 {:.2} ms, {cpu:.0} us CPU a commit on all",
        at(0.5),
        at(0.99)
    );
}

async fn client_of(shard: Shard, epoch: Epoch, key: String, until: Instant) -> Vec<Duration> {
    let grain = GrainId::new(&"bench".into(), &"run".into(), &key);
    let mut took = Vec::new();
    let mut expected = shard.grain(&grain).expect("it is hosted").revision;
    while Instant::now() < until {
        let row = Row { key: RowKey { table: Table(1), key: b"k".to_vec() }, value: vec![7; ROW_BYTES] };
        let turn = Turn { puts: vec![row], ..Turn::default() };
        let commit = Commit { grain: grain.clone(), epoch, expected, turn, command: None, at: Timestamp(1) };
        let begun = Instant::now();
        match shard.commit(commit).await {
            Ok(committed) => expected = committed.revision,
            Err(error) => {
                println!("{key}: {error}");
                break;
            }
        }
        took.push(begun.elapsed());
    }
    took
}

/// Seconds of CPU that this process has taken.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: fields 14 and 15, in hundredths of a second.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / 100.0
}
