//! Calls between grains: at least once, in order, and refusals go back.

use crate::testing::memory::Fault;
use crate::testing::{Cluster, settle, toy, until};
use std::time::Duration;

#[tokio::test]
async fn a_call_is_delivered_and_struck() {
    let cluster = Cluster::start(4);
    for n in 0..20 {
        cluster.call(&format!("from{n}"), toy::SEND, b"target").await.expect("sent");
    }
    until("all struck", || {
        cluster.silo.metrics().outbox_calls_delivered == 20 && cluster.silo.metrics().outbox_calls_open == 0
    })
    .await;
    assert_eq!(cluster.sum("target").await, 20);
}

#[tokio::test]
async fn a_call_that_was_not_delivered_before_a_crash_is_delivered_after_it() {
    let mut cluster = Cluster::start(1);
    // The sending commits; the delivery's own commit does not end before the crash.
    cluster.call("from", toy::ADD, &1u64.to_le_bytes()).await.expect("added");
    cluster.stores[0].hold();
    cluster.stores[0].release(1);
    cluster.call("from", toy::SEND, b"target").await.expect("sent");
    settle().await;
    cluster.restart(Duration::ZERO);
    cluster.stores[0].release_all();
    until("delivered", || cluster.silo.metrics().outbox_calls_delivered == 1).await;
    assert_eq!(cluster.sum("target").await, 1);
}

#[tokio::test]
async fn a_refusal_for_good_goes_back_to_the_sender() {
    let cluster = Cluster::start(2);
    cluster.call("from", toy::SEND, b"!target").await.expect("sent");
    assert_eq!(cluster.until_told("from", 1).await, ["rejected invalid by acme/toy/target"]);
}

/// [FR-119] A fault on the way changes neither order nor number.
#[tokio::test]
async fn a_passing_fault_is_retried() {
    let cluster = Cluster::start(1);
    cluster.call("from", toy::SEND, b"target").await.expect("sent");
    for fault in [Fault::Full, Fault::LostThenUnknown, Fault::Full] {
        cluster.stores[0].fail_next(fault);
    }
    cluster.call("from", toy::GET, b"").await.expect("a read takes no commit");
    until("delivered", || cluster.silo.metrics().outbox_calls_delivered == 1).await;
    assert_eq!(cluster.sum("target").await, 1);
    assert_eq!(cluster.silo.metrics().outbox_retries, 3);
}
