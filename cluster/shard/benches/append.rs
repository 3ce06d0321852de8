//! Durable appends a second: entries of 1 KiB to 16 groups, each on disk before its writer goes on.
//!
//! `cargo bench -p shard --bench append`, in a folder of the disk to be measured (`TMPDIR`).

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shard::log_bench::Appender;
use std::sync::Arc;
use std::time::Instant;

const GROUPS: u32 = 16;

fn append(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let mut group = c.benchmark_group("append");
    group.throughput(Throughput::Elements(1));
    for writers in [1u64, 32, 256] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = Arc::new(Appender::open(folder.path(), GROUPS).expect("a new log opens"));
        let (mut appends, syncs) = (0, log.syncs());
        group.bench_function(BenchmarkId::new("writers", writers), |b| {
            b.iter_custom(|rounds| {
                appends += rounds;
                let begun = Instant::now();
                runtime.block_on(run(&log, writers, rounds));
                begun.elapsed()
            });
        });
        println!("{writers} writers: {:.1} appends a sync", appends as f64 / (log.syncs() - syncs) as f64);
    }
    group.finish();
}

/// Shares the rounds among the writers.
async fn run(log: &Arc<Appender>, writers: u64, rounds: u64) {
    let payload = bytes::Bytes::from(vec![7; 1024]);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let (log, payload) = (log.clone(), payload.clone());
        tasks.spawn(async move {
            for _ in 0..rounds / writers + u64::from(writer < rounds % writers) {
                log.append(writer as usize, payload.clone()).await.expect("the disk works");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no writer panics");
    }
}

criterion_group!(benches, append);
criterion_main!(benches);
