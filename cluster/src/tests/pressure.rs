//! Every queue is bounded, overload is an answer, and it ends when the load does.

use crate::testing::{Cluster, next, settle, toy};
use crate::{ReadEvents, ReadFrom, Scope, ToWorker};
use futures::FutureExt;
use futures::future::join_all;
use grain_contract::{Code, limits};
use uuid::Uuid;

/// [K9, FR-136, FR-182] A full queue answers `Overloaded` with a hint, hurts no sender and no other grain, and recovers at once.
#[tokio::test]
async fn a_hot_grain_refuses_with_a_hint_and_recovers() {
    let cluster = Cluster::start(1);
    cluster.add("cool", 1).await.expect("added");
    cluster.stores[0].hold();
    let flood = join_all((0..limits::ACTIVATION_QUEUE_MAX + 36).map(|_| cluster.add("hot", 1)));
    let meanwhile = async {
        settle().await;
        assert_eq!(cluster.sum("cool").await, 1, "another grain still answers");
        cluster.stores[0].release_all();
    };
    let (answers, ()) = next("the flood", async { tokio::join!(flood, meanwhile) }).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 36);
    assert!(refused.iter().all(|r| r.code == Code::Overloaded && r.message.contains("try again in 100 ms")));
    assert_eq!(cluster.sum("hot").await, limits::ACTIVATION_QUEUE_MAX as u64);
    let answers = join_all((0..limits::ACTIVATION_QUEUE_MAX).map(|_| cluster.add("hot", 1))).await;
    assert!(answers.iter().all(Result::is_ok), "as much as before fits again");
    let metrics = cluster.silo.metrics();
    assert!(metrics.rejections.contains(&("overloaded", 36)), "{:?}", metrics.rejections);
}

/// [FR-181] Those who wait while the silo refuses by overload (a worker, a reader of events) get what is there when the load
/// ends, without coming again.
#[tokio::test]
async fn who_waits_during_overload_is_served_after_it() {
    let cluster = Cluster::start(1);
    let attempt = Uuid::from_u128(1);
    cluster.work("acme", "hot", attempt, "q").await;
    let read =
        ReadEvents { tenant: Some("acme".into()), cursor_name: None, from: ReadFrom::Earliest, scope: Scope::Cluster };
    let mut reader = cluster.silo.events(read).await.expect("a reader");
    cluster.stores[0].hold();
    let extra = 10;
    let flood = join_all((0..limits::ACTIVATION_QUEUE_MAX + extra).map(|_| cluster.add("hot", 1)));
    let meanwhile = async {
        settle().await;
        // Its claim stands behind the flood.
        let mut worker = cluster.worker("w", 1, Vec::new()).await;
        settle().await;
        assert!(worker.recv().now_or_never().is_none());
        assert!(reader.next_batch().now_or_never().is_none());
        assert_eq!(cluster.add("hot", 1).await.map_err(|r| r.code), Err(Code::Overloaded));
        cluster.stores[0].release_all();
        worker
    };
    let (answers, mut worker) = next("the flood", async { tokio::join!(flood, meanwhile) }).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), extra);
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, .. }) => assert_eq!(item.attempt, attempt),
        other => panic!("expected an assignment, but found {other:?}"),
    }
    let mut events = 0;
    while events < limits::ACTIVATION_QUEUE_MAX {
        events += next("events", reader.next_batch()).await.expect("a batch").len();
    }
    assert_eq!(events, limits::ACTIVATION_QUEUE_MAX);
}

/// [K9] The silo's own bound over all grains.
#[tokio::test]
async fn calls_in_progress_are_bounded_for_the_whole_silo() {
    let cluster = Cluster::start(1);
    cluster.stores[0].hold();
    let extra = 10;
    let keys: Vec<String> = (0..limits::CALLS_IN_PROGRESS_MAX + extra).map(|n| n.to_string()).collect();
    let flood = join_all(keys.iter().map(|key| cluster.add(key, 1)));
    let meanwhile = async {
        settle().await;
        cluster.stores[0].release_all();
    };
    let (answers, ()) = next("the flood", async { tokio::join!(flood, meanwhile) }).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), extra);
    assert_eq!(cluster.silo.metrics().calls_in_progress, 0);
    assert_eq!(cluster.add("after", 1).await, Ok(1));
}

/// [K9, FR-136] Callers that fill a grain's queue do not keep its reminders out.
#[tokio::test]
async fn a_reminder_finds_room_at_a_grain_that_callers_have_filled() {
    let cluster = Cluster::start(1);
    let due = crate::testing::START + 10;
    cluster.call("hot", toy::REMIND, format!("r:{due}").as_bytes()).await.expect("set");
    cluster.stores[0].hold();
    let flood = join_all((0..limits::ACTIVATION_QUEUE_MAX).map(|_| cluster.add("hot", 1)));
    let meanwhile = async {
        settle().await;
        cluster.clock.advance(std::time::Duration::from_millis(10));
        settle().await;
        cluster.stores[0].release_all();
    };
    let (answers, ()) = next("the flood", async { tokio::join!(flood, meanwhile) }).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(cluster.until_told("hot", 1).await, ["reminder r due 1000000000010 late 0"]);
}
