//! After a takeover: what lived in memory only is told again.

use crate::ToWorker;
use crate::testing::{Cluster, next, settle, toy, until};
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
