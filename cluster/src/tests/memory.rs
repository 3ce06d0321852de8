//! Memory holds the active set.

use crate::testing::{Cluster, settle, toy, until};
use std::time::Duration;

/// [K4] An idle activation is dropped; its grain is not.
#[tokio::test]
async fn an_idle_activation_is_dropped_and_comes_back_from_rows() {
    let cluster = Cluster::with(2, |options| options.idle = Duration::from_secs(60));
    cluster.add("a", 1).await.expect("added");
    cluster.add("b", 1).await.expect("added");
    cluster.clock.advance(Duration::from_secs(50));
    settle().await;
    cluster.add("b", 1).await.expect("added");
    cluster.clock.advance(Duration::from_secs(20));
    until("only the used one is left", || cluster.silo.metrics().activations == 1).await;
    assert_eq!((cluster.sum("a").await, cluster.sum("b").await), (1, 2));
}

#[tokio::test]
async fn a_grain_that_asks_for_it_is_dropped_after_its_turn() {
    let cluster = Cluster::start(1);
    cluster.call("a", toy::REST, b"").await.expect("rests");
    until("dropped", || cluster.silo.metrics().activations == 0).await;
    assert_eq!(cluster.silo.metrics().activation_bytes, 0);
    assert_eq!(cluster.sum("a").await, 1);
}

/// [K4] Over the budget the least recently used go first.
#[tokio::test]
async fn over_the_budget_the_least_recently_used_are_dropped() {
    let cluster = Cluster::with(1, |options| options.activation_memory = 100 * 8 * 1024);
    for n in 0..300 {
        cluster.clock.advance(Duration::from_millis(1));
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    until("within the budget", || cluster.silo.metrics().activation_bytes <= 100 * 8 * 1024).await;
    let before = cluster.silo.metrics().activations_created;
    cluster.sum("299").await;
    assert_eq!(cluster.silo.metrics().activations_created, before, "the newest is still there");
    cluster.sum("0").await;
    assert_eq!(cluster.silo.metrics().activations_created, before + 1, "the oldest is not");
}

#[tokio::test]
async fn a_watch_is_told_of_a_commit() {
    let cluster = Cluster::start(2);
    let mut watch = cluster.silo.watch(&toy::id("acme", "a"));
    let changed = async { crate::testing::next("the change", watch.changed()).await };
    let (added, ()) = tokio::join!(cluster.add("a", 1), changed);
    added.expect("added");
}
