//! A stop that loses nothing and leaves nothing behind.

use crate::testing::{Cluster, hello, next, settle, until};
use futures::future::join_all;
use grain_contract::Code;
use std::time::Duration;

/// [FR-184, P6] Five hundred turns in the middle of slow writes: the drain ends when the last of them has, and admits no more.
#[tokio::test]
async fn a_drain_ends_with_the_last_turn_and_admits_no_more() {
    let cluster = Cluster::start(4);
    cluster.stores.iter().for_each(|store| store.hold());
    let keys: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let calls = join_all(keys.iter().map(|key| cluster.add(key, 1)));
    let stop = async {
        settle().await;
        let drain = cluster.silo.drain(Duration::from_secs(20));
        let slow = async {
            settle().await;
            assert_eq!(cluster.add("late", 1).await.map_err(|r| r.code), Err(Code::Unavailable));
            assert!(!cluster.silo.health().ready);
            let refused = cluster.silo.connect_worker(hello("acme", "w", 1, Vec::new())).await;
            assert_eq!(refused.err().map(|r| r.code), Some(Code::Unavailable));
            cluster.stores.iter().for_each(|store| store.release_all());
        };
        tokio::join!(drain, slow);
        cluster.stores.iter().map(|store| store.commits.lock().len()).sum::<usize>()
    };
    let (answers, committed) = next("calls and drain", async { tokio::join!(calls, stop) }).await;
    assert!(answers.iter().all(Result::is_ok));
    settle().await;
    let now: usize = cluster.stores.iter().map(|store| store.commits.lock().len()).sum();
    assert_eq!((committed, now), (500, 500), "no commit after the drain");
    until("all dropped", || cluster.silo.metrics().activations == 0).await;
}

#[tokio::test]
async fn a_drain_gives_up_at_its_deadline() {
    let cluster = Cluster::start(1);
    cluster.stores[0].hold();
    let call = cluster.add("stuck", 1);
    let drain = async {
        settle().await;
        cluster.silo.drain(Duration::from_millis(30)).await;
        cluster.stores[0].release_all();
    };
    let (answer, ()) = next("the drain", async { tokio::join!(call, drain) }).await;
    // Its commit was on the way: it is answered as it ended.
    assert_eq!(answer, Ok(1));
}
