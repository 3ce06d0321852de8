//! After a takeover: what lived in memory only is told again.

use crate::ToWorker;
use crate::testing::memory::Fault;
use crate::testing::{Cluster, next, settle, toy, until};
use grain_contract::Code;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use uuid::Uuid;

/// [R15, K7] Work that waited before the crash finds a worker after it.
#[tokio::test]
async fn waiting_work_is_offered_again_after_a_restart() {
    let mut cluster = Cluster::start(4);
    for n in 0..100u128 {
        cluster.work("acme", &n.to_string(), Uuid::from_u128(n), "q").await;
    }
    cluster.restart(Duration::from_secs(1));
    let mut worker = cluster.worker("w", 100, Vec::new()).await;
    let mut got = Vec::new();
    while got.len() < 100 {
        match next("an assignment", worker.recv()).await {
            Some(ToWorker::Assign { item, .. }) => got.push(item.attempt.as_u128()),
            other => panic!("{other:?}"),
        }
    }
    got.sort_unstable();
    assert_eq!(got, (0..100).collect::<Vec<_>>());
}

/// [FR-038] The store cannot be read while a shard's open grains are woken, for longer than one grain is waited for: none of
/// them is forgotten.
#[tokio::test]
async fn grains_that_could_not_be_read_are_woken_when_the_store_is_back() {
    let mut cluster = Cluster::start(1);
    for n in 0..200u128 {
        cluster.work("acme", &n.to_string(), Uuid::from_u128(n), "q").await;
    }
    // The list fails, then every try at the first 64 grains, then some of the next.
    cluster.stores[0].failing_lists.store(3, SeqCst);
    cluster.stores[0].failing_loads.store(64 * 20 + 30, SeqCst);
    cluster.restart(Duration::from_secs(1));
    let mut worker = cluster.worker("w", 200, Vec::new()).await;
    let mut got = BTreeSet::new();
    while got.len() < 200 {
        match next("an assignment", worker.recv()).await {
            Some(ToWorker::Assign { item, .. }) => assert!(got.insert(item.attempt), "each once"),
            other => panic!("{other:?}"),
        }
    }
    let left = (cluster.stores[0].failing_lists.load(SeqCst), cluster.stores[0].failing_loads.load(SeqCst));
    assert_eq!(left, (0, 0), "every fault was met");
}

/// [FR-038] A leader without a majority gives a commit up, and it is committed all the same when the others are back: its work
/// is found without waiting for a sweep.
#[tokio::test]
async fn work_of_a_commit_that_came_late_is_offered() {
    let cluster = Cluster::with(1, |options| options.sweep_every = Duration::from_secs(100_000));
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.stores[0].fail_next(Fault::LateThenUnknown);
    let attempt = Uuid::from_u128(7);
    let body = [attempt.as_bytes(), &b"q"[..]].concat();
    let answer = cluster.call_of("acme", "1", toy::WORK, &body).await;
    assert!(answer.is_err_and(|rejection| rejection.code == Code::Unavailable));
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, .. }) => assert_eq!(item.attempt, attempt),
        other => panic!("{other:?}"),
    }
}

/// [K4] Those with nothing to do are not kept in memory by being woken or swept.
#[tokio::test]
async fn woken_grains_without_work_leave_memory_again() {
    let mut cluster = Cluster::with(2, |options| options.sweep_every = Duration::from_secs(300));
    for n in 0..200 {
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    cluster.restart(Duration::from_secs(1));
    until("all woken", || cluster.silo.metrics().activations_created == 200).await;
    until("none kept", || cluster.silo.metrics().activations == 0).await;
}

/// [R15] Each open grain is swept once a period.
#[tokio::test]
async fn open_grains_are_swept_from_time_to_time() {
    let cluster = Cluster::with(2, |options| options.sweep_every = Duration::from_secs(300));
    for n in 0..20 {
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    settle().await;
    for round in 1..=2 {
        cluster.clock.advance(Duration::from_secs(300));
        for n in 0..20 {
            assert_eq!(cluster.until_told(&n.to_string(), round).await.len(), round);
        }
        settle().await;
    }
    assert_eq!(cluster.told("7").await, ["sweep", "sweep"]);
    assert_eq!(toy::number(&cluster.call("7", toy::GET, b"").await.expect("sum")), 1);
}
