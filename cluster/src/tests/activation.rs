//! One activation a grain, whose memory is never ahead of its rows.

use crate::testing::memory::Fault;
use crate::testing::{Cluster, next, request, settle, toy, until};
use futures::future::join_all;
use grain_contract::{Code, GrainId, RowKey, Table};
use std::time::Duration;

/// [FR-021, K4] Three hundred first calls of a cold grain: one activation, its rows read once, no addition lost.
#[tokio::test]
async fn concurrent_first_calls_share_one_activation() {
    let mut cluster = Cluster::start(4);
    cluster.add("r", 5).await.expect("added");
    cluster.restart(Duration::ZERO);
    // The takeover wakes it and drops it again; from here on it is cold.
    until("cold", || cluster.silo.metrics().activations_dropped == 1).await;
    for store in &cluster.stores {
        store.loads.lock().clear();
    }
    let calls = (0..300).map(|n| {
        let cluster = &cluster;
        async move {
            loop {
                let answer = if n % 2 == 0 {
                    cluster.add("r", 1).await.map(|_| ())
                } else {
                    cluster.call("r", toy::GET, b"").await.map(|_| ())
                };
                match answer {
                    Ok(()) => return,
                    Err(rejection) => assert_eq!(rejection.code, Code::Overloaded),
                }
                tokio::task::yield_now().await;
            }
        }
    });
    next("all calls", join_all(calls)).await;
    assert_eq!(cluster.sum("r").await, 155);
    let loads: usize =
        cluster.stores.iter().map(|s| s.loads.lock().get(&toy::id("acme", "r")).copied().unwrap_or(0)).sum();
    let metrics = cluster.silo.metrics();
    assert_eq!((loads, metrics.activations_created - 1, metrics.activations), (1, 1, 1));
}

/// [FR-035] The outcome of a commit is not known: memory is dropped and read again, and both cases end alike.
#[tokio::test]
async fn a_commit_with_unknown_outcome_ends_the_same_whether_it_was_applied_or_lost() {
    for fault in [Fault::AppliedThenUnknown, Fault::LostThenUnknown] {
        let cluster = Cluster::start(1);
        cluster.add("r", 10).await.expect("added");
        cluster.stores[0].fail_next(fault);
        assert_eq!(cluster.command("r", "c-2", 1).await, Ok(11), "{fault:?}");
        assert_eq!(cluster.command("r", "c-2", 1).await, Ok(11), "{fault:?}, repeated");
        assert_eq!(cluster.sum("r").await, 11, "{fault:?}");
        assert_eq!(cluster.stores[0].commits.lock().len(), 2, "{fault:?}");
    }
}

/// [FR-035] Without a command id the caller is told, and what memory says next is what the rows say.
#[tokio::test]
async fn a_call_without_a_command_is_not_repeated_behind_the_callers_back() {
    for (fault, sum) in [(Fault::AppliedThenUnknown, 11), (Fault::LostThenUnknown, 10)] {
        let cluster = Cluster::start(1);
        cluster.add("r", 10).await.expect("added");
        cluster.stores[0].fail_next(fault);
        assert_eq!(cluster.add("r", 1).await.map_err(|r| r.code), Err(Code::Unavailable));
        assert_eq!(cluster.sum("r").await, sum, "{fault:?}");
    }
}

#[tokio::test]
async fn a_fenced_turn_is_decided_again_on_fresh_rows() {
    let cluster = Cluster::start(1);
    cluster.add("r", 10).await.expect("added");
    cluster.stores[0].fail_next(Fault::Fenced);
    assert_eq!(cluster.add("r", 1).await, Ok(11));
    assert_eq!(cluster.silo.metrics().turns_reloaded, 1);
}

#[tokio::test]
async fn a_full_disk_refuses_and_leaves_memory_as_the_rows_are() {
    let cluster = Cluster::start(1);
    cluster.add("r", 10).await.expect("added");
    cluster.stores[0].fail_next(Fault::Full);
    assert_eq!(cluster.add("r", 1).await.map_err(|r| r.code), Err(Code::Unavailable));
    assert_eq!(cluster.sum("r").await, 10);
}

#[tokio::test]
async fn a_repeated_command_finds_its_stored_reply() {
    let cluster = Cluster::start(1);
    assert_eq!(cluster.command("r", "a", 3).await, Ok(3));
    assert_eq!(cluster.command("r", "b", 4).await, Ok(7));
    assert_eq!(cluster.command("r", "a", 3).await, Ok(3));
    assert_eq!((cluster.sum("r").await, cluster.stores[0].commits.lock().len()), (7, 2));
}

#[tokio::test]
async fn a_panic_in_a_turn_changes_nothing_and_ends_nothing() {
    let cluster = Cluster::start(1);
    cluster.add("r", 10).await.expect("added");
    assert_eq!(cluster.call("r", toy::PANIC, b"").await.map_err(|r| r.code), Err(Code::Internal));
    assert_eq!(cluster.sum("r").await, 10);
}

/// [FR-130] Ten panics in the turns of a grain with a reminder: each caller is told, memory is read again each time, and the
/// reminder is still one.
#[tokio::test]
async fn panics_do_not_multiply_a_reminder() {
    let cluster = Cluster::start(1);
    cluster.add("r", 10).await.expect("added");
    let due = crate::testing::START + 5_000;
    cluster.call("r", toy::REMIND, format!("tick:{due}").as_bytes()).await.expect("set");
    until("armed", || cluster.silo.metrics().reminders_armed == 1).await;
    let loads = || cluster.stores[0].loads.lock().get(&toy::id("acme", "r")).copied().unwrap_or(0);
    for n in 1..=10 {
        let answer = next("an answer", cluster.call("r", toy::PANIC, b"")).await;
        assert_eq!(answer.map_err(|r| r.code), Err(Code::Internal));
        assert_eq!((cluster.sum("r").await, loads()), (10, n + 1), "dropped, and read again");
    }
    let metrics = cluster.silo.metrics();
    assert_eq!((metrics.reminders_armed, metrics.activations), (1, 1));
    cluster.clock.advance(Duration::from_secs(5));
    assert_eq!(cluster.until_told("r", 1).await, [format!("reminder tick due {due} late 0")]);
    for _ in 0..3 {
        cluster.clock.advance(Duration::from_secs(60));
        settle().await;
    }
    assert_eq!((cluster.told("r").await.len(), cluster.silo.metrics().reminders_fired), (1, 1));
    assert_eq!(cluster.stores[0].reminder_rows(), 0);
}

#[tokio::test]
async fn rows_that_cannot_be_read_set_one_grain_aside() {
    let cluster = Cluster::start(1);
    cluster.stores[0].spoil(&toy::id("acme", "bad"), RowKey { table: Table(1), key: b"sum".to_vec() }, b"corrupt");
    assert_eq!(cluster.add("bad", 1).await.map_err(|r| r.code), Err(Code::Quarantined));
    assert_eq!(cluster.add("good", 1).await, Ok(1));
}

#[tokio::test]
async fn a_passing_fault_of_the_supplier_is_waited_out() {
    let cluster = Cluster::start(1);
    cluster.supplier.faults.store(2, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(cluster.call("r", toy::NEED, b"seven77").await.map(|reply| toy::number(&reply)), Ok(7));
}

#[tokio::test]
async fn an_unknown_kind_is_refused() {
    let cluster = Cluster::start(1);
    let mut request = request("acme", "r", toy::ADD, b"", None);
    request.target = GrainId::new(&"acme".into(), &"ghost".into(), "r");
    assert_eq!(cluster.silo.call(request).await.map_err(|r| r.code), Err(Code::Invalid));
}

/// [K4] Leadership lost in the middle of a commit: the former owner commits nothing, the call ends on the next one.
#[tokio::test]
async fn a_former_owner_commits_nothing() {
    let cluster = Cluster::start(1);
    cluster.add("r", 10).await.expect("added");
    let store = &cluster.stores[0];
    store.hold();
    let calls = async { tokio::join!(cluster.add("r", 1), cluster.add("r", 2)) };
    let change = async {
        settle().await;
        store.depose();
        store.release_all();
        settle().await;
        assert_eq!(store.commits.lock().len(), 1, "nothing of the former owner");
        store.elect();
    };
    let ((one, two), ()) = next("both calls", async { tokio::join!(calls, change) }).await;
    // Which of them finds the new owner first is open.
    assert!(matches!((&one, &two), (Ok(11), Ok(13)) | (Ok(13), Ok(12))), "{one:?} {two:?}");
    assert_eq!(cluster.sum("r").await, 13);
}

/// [K6] Without a leader a call waits inside its deadline and then says so.
#[tokio::test]
async fn a_call_without_a_leader_ends_at_its_deadline() {
    let cluster = Cluster::start(1);
    cluster.stores[0].depose();
    settle().await;
    let mut request = request("acme", "r", toy::ADD, b"", None);
    request.deadline = tokio::time::Instant::now() + Duration::from_millis(30);
    assert_eq!(cluster.silo.call(request).await.map_err(|r| r.code), Err(Code::Unavailable));
}
