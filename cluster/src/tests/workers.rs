//! Workers, leases and waiting work.

use crate::testing::memory::Fault;
use crate::testing::{Cluster, hello, next, settle, toy, until};
use crate::{HeldAttempt, ToWorker, WorkerSession};
use futures::FutureExt;
use grain_contract::{Code, Lease};
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(45);

fn attempt(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

async fn assigned(worker: &mut WorkerSession) -> (Uuid, Lease) {
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, lease, .. }) => (item.attempt, lease),
        other => panic!("expected an assignment, but found {other:?}"),
    }
}

fn held(key: &str, attempt: Uuid, lease: &Lease) -> HeldAttempt {
    HeldAttempt { attempt, grain: toy::id("acme", key), token: lease.token }
}

async fn advance(cluster: &Cluster, by: Duration) {
    cluster.clock.advance(by);
    settle().await;
}

/// [C3] A free place is taken before the commit: created and leased are one commit, and the worker has it at once.
#[tokio::test]
async fn work_for_a_free_worker_is_one_commit() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    let (got, lease) = assigned(&mut worker).await;
    assert_eq!((got, lease.worker.as_str(), cluster.stores[0].commits.lock().len()), (attempt(1), "w", 1));
    let metrics = cluster.silo.metrics();
    assert_eq!((metrics.leases, metrics.workers, metrics.work_queued), (1, 1, 0));
}

/// [FR-005] Work is not visible before its commit, so what a worker answers at once finds what it answers.
#[tokio::test]
async fn work_is_seen_after_its_commit_and_an_answer_at_once_has_its_effect() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.stores[0].hold();
    let answer_at_once = async {
        settle().await;
        assert!(worker.recv().now_or_never().is_none(), "the commit is not done");
        assert!(cluster.stores[0].commits.lock().is_empty());
        cluster.stores[0].release_all();
        let (got, _) = assigned(&mut worker).await;
        cluster.call("a", toy::DONE, got.as_bytes()).await.expect("taken");
        cluster.attempts("a").await
    };
    let ((), left) = tokio::join!(cluster.work("acme", "a", attempt(1), "q"), answer_at_once);
    assert_eq!((left, cluster.stores[0].commits.lock().len()), (Vec::new(), 2), "made, and done");
    // The same where the work waited and a claim is what is not committed yet.
    cluster.work("acme", "b", attempt(2), "q").await;
    worker.release(attempt(1));
    let (got, _) = assigned(&mut worker).await;
    worker.release(got);
    cluster.call("b", toy::DONE, got.as_bytes()).await.expect("taken");
    cluster.work("acme", "c", attempt(3), "other").await;
    cluster.stores[0].hold();
    let hello = crate::WorkerHello { queues: vec!["other".into()], ..hello("acme", "x", 1, Vec::new()) };
    let mut other = cluster.silo.connect_worker(hello).await.expect("connected");
    settle().await;
    assert!(other.recv().now_or_never().is_none(), "the claim is not committed");
    cluster.stores[0].release_all();
    let (got, _) = assigned(&mut other).await;
    cluster.call("c", toy::DONE, got.as_bytes()).await.expect("taken");
    assert_eq!((got, cluster.attempts("c").await), (attempt(3), Vec::new()));
}

/// [C3] Without a free place it waits, in order, and is claimed when a place frees.
#[tokio::test]
async fn waiting_work_is_claimed_in_order_when_a_place_frees() {
    let cluster = Cluster::start(2);
    for n in 1..=3 {
        cluster.work("acme", &format!("k{n}"), attempt(n), "q").await;
    }
    assert_eq!(cluster.silo.metrics().work_queued, 3);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    for n in 1..=3 {
        assert_eq!(assigned(&mut worker).await.0, attempt(n));
        assert!(worker.recv().now_or_never().is_none(), "one place, one attempt");
        assert_eq!(cluster.attempts(&format!("k{n}")).await, [(attempt(n), "w".to_owned())]);
        worker.finished(attempt(n));
        worker.release(attempt(n));
    }
    assert_eq!(cluster.silo.metrics().work_queued, 0);
}

/// Older work is not overtaken by the turn of a newer one.
#[tokio::test]
async fn a_turn_does_not_overtake_waiting_work() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    cluster.work("acme", "b", attempt(2), "q").await;
    assert_eq!(assigned(&mut worker).await.0, attempt(1));
    worker.finished(attempt(1));
    cluster.work("acme", "c", attempt(3), "q").await;
    assert_eq!(assigned(&mut worker).await.0, attempt(2));
}

/// [C3] Not renewed for the lease's time: the grain is told, the worker loses it.
#[tokio::test]
async fn a_lease_that_is_not_renewed_expires() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 2, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    assigned(&mut worker).await;
    advance(&cluster, LEASE - Duration::from_millis(1)).await;
    assert_eq!(cluster.told("a").await.len(), 0);
    advance(&cluster, Duration::from_secs(2)).await;
    let told = cluster.until_told("a", 1).await;
    assert_eq!(told, [format!("lease expired {} never_started false", attempt(1))]);
    assert_eq!(worker.renew(&[attempt(1)]), [attempt(1)]);
    assert!(matches!(worker.recv().now_or_never(), Some(Some(ToWorker::Interrupt { .. }))));
    until("no lease is left", || cluster.silo.metrics().leases == 0).await;
    assert_eq!(cluster.silo.metrics().leases_expired, 1);
}

/// [C3] Renewed every 15 s it lasts.
#[tokio::test]
async fn a_renewed_lease_lasts() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    assigned(&mut worker).await;
    for _ in 0..19 {
        advance(&cluster, Duration::from_secs(15)).await;
        assert_eq!(worker.renew(&[attempt(1)]), Vec::<Uuid>::new());
    }
    assert_eq!(cluster.told("a").await.len(), 0);
    assert_eq!(worker.renew(&[attempt(2)]), [attempt(2)], "what was never its own is lost");
}

/// [C3] A worker that comes back with what it holds keeps it, and its places are counted.
#[tokio::test]
async fn a_reconnecting_worker_keeps_what_it_lists() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    let (_, lease) = assigned(&mut worker).await;
    drop(worker);
    advance(&cluster, Duration::from_secs(30)).await;
    let mut worker = cluster.worker("w", 1, vec![held("a", attempt(1), &lease)]).await;
    advance(&cluster, Duration::from_secs(30)).await;
    assert_eq!((cluster.told("a").await.len(), worker.renew(&[attempt(1)])), (0, Vec::new()));
    cluster.work("acme", "b", attempt(2), "q").await;
    assert!(worker.recv().now_or_never().is_none(), "its one place is taken");
    worker.release(attempt(1));
    assert_eq!(assigned(&mut worker).await.0, attempt(2));
}

/// [C3] What a returning worker does not list was never received: offered again at once, under another token.
#[tokio::test]
async fn what_a_reconnecting_worker_does_not_list_was_never_started() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    // It left this process, but the worker's stream broke before it arrived.
    let (_, lost) = assigned(&mut worker).await;
    drop(worker);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    let (got, lease) = assigned(&mut worker).await;
    assert_eq!(got, attempt(1));
    assert_ne!(lease.token, lost.token);
    assert_eq!(cluster.told("a").await, [format!("lease expired {} never_started true", attempt(1))]);
}

/// What never left this process when the session ended goes to the next worker at once.
#[tokio::test]
async fn an_unread_assignment_of_a_gone_worker_is_offered_again() {
    let cluster = Cluster::start(1);
    let first = cluster.worker("w1", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    let mut second = cluster.worker("w2", 1, Vec::new()).await;
    drop(first);
    assert_eq!(assigned(&mut second).await.0, attempt(1));
}

/// [C3, K7] After a restart the worker comes back before or after its grain is woken: it keeps its attempt either way.
#[tokio::test]
async fn a_worker_keeps_its_attempt_over_a_restart_of_the_silo() {
    for worker_first in [true, false] {
        let mut cluster = Cluster::start(1);
        let mut worker = cluster.worker("w", 1, Vec::new()).await;
        cluster.work("acme", "a", attempt(1), "q").await;
        let (_, lease) = assigned(&mut worker).await;
        drop(worker);
        cluster.restart(Duration::from_secs(3));
        if !worker_first {
            until("expected", || cluster.silo.metrics().leases == 1).await;
        }
        let worker = cluster.worker("w", 1, vec![held("a", attempt(1), &lease)]).await;
        settle().await;
        advance(&cluster, Duration::from_secs(44)).await;
        assert_eq!(worker.renew(&[attempt(1)]), Vec::<Uuid>::new(), "worker first: {worker_first}");
        assert_eq!(cluster.told("a").await.len(), 0);
    }
}

/// [C3] A worker that does not come back after the restart has a fresh lease time, then its attempt is over.
#[tokio::test]
async fn a_worker_that_does_not_return_after_a_restart_loses_its_lease() {
    let mut cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    assigned(&mut worker).await;
    cluster.restart(Duration::from_secs(600));
    until("expected", || cluster.silo.metrics().leases == 1).await;
    advance(&cluster, Duration::from_secs(44)).await;
    assert_eq!(cluster.told("a").await.len(), 0);
    advance(&cluster, Duration::from_secs(2)).await;
    assert_eq!(cluster.until_told("a", 1).await, [format!("lease expired {} never_started false", attempt(1))]);
}

/// [C3] A token that the grain does not know is worth nothing.
#[tokio::test]
async fn a_returning_worker_with_a_wrong_token_is_told_that_it_lost() {
    let mut cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    let (_, mut lease) = assigned(&mut worker).await;
    cluster.call("a", toy::DONE, attempt(1).as_bytes()).await.expect("done");
    cluster.restart(Duration::from_secs(1));
    lease.token = [7; 16];
    let mut worker = cluster.worker("w", 1, vec![held("a", attempt(1), &lease)]).await;
    assert!(
        matches!(next("an interrupt", worker.recv()).await, Some(ToWorker::Interrupt { attempt, .. }) if attempt.as_u128() == 1)
    );
    assert_eq!(worker.renew(&[attempt(1)]), [attempt(1)]);
    cluster.work("acme", "b", attempt(2), "q").await;
    assert_eq!(assigned(&mut worker).await.0, attempt(2), "the place is free again");
}

/// A place whose turn did not commit is given back.
#[tokio::test]
async fn a_place_taken_by_a_turn_that_did_not_commit_is_free_again() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    for fault in [Fault::Full, Fault::LostThenUnknown] {
        cluster.stores[0].fail_next(fault);
        let body = [attempt(1).as_bytes(), &b"q"[..]].concat();
        assert_eq!(cluster.call("a", toy::WORK, &body).await.map_err(|r| r.code), Err(Code::Unavailable));
    }
    cluster.work("acme", "b", attempt(2), "q").await;
    assert_eq!(assigned(&mut worker).await.0, attempt(2));
}

/// [FR-035] Committed although the outcome was not known: the worker gets it, though the effects of that turn were lost.
#[tokio::test]
async fn work_of_a_commit_with_unknown_outcome_is_not_forgotten() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.stores[0].fail_next(Fault::AppliedThenUnknown);
    let body = [attempt(1).as_bytes(), &b"q"[..]].concat();
    assert_eq!(cluster.call("a", toy::WORK, &body).await.map_err(|r| r.code), Err(Code::Unavailable));
    assert_eq!(assigned(&mut worker).await.0, attempt(1));
}

/// [C3] The worker went away between the taking of its place and the commit.
#[tokio::test]
async fn work_leased_to_a_worker_that_just_left_goes_to_another() {
    let cluster = Cluster::start(1);
    let first = cluster.worker("w1", 1, Vec::new()).await;
    cluster.stores[0].hold();
    let leave = async {
        settle().await;
        drop(first);
        cluster.stores[0].release_all();
    };
    tokio::join!(cluster.work("acme", "a", attempt(1), "q"), leave);
    let mut second = cluster.worker("w2", 1, Vec::new()).await;
    assert_eq!(assigned(&mut second).await.0, attempt(1));
}

/// [FR-035] The commit is on its way still when the grain is woken for it: its work is told when the rows are found ahead.
#[tokio::test]
async fn work_of_a_commit_that_is_applied_late_is_not_forgotten() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 2, Vec::new()).await;
    cluster.stores[0].fail_next(Fault::UnknownThenApplied);
    let body = [attempt(1).as_bytes(), &b"q"[..]].concat();
    assert_eq!(cluster.call("a", toy::WORK, &body).await.map_err(|r| r.code), Err(Code::Unavailable));
    cluster.work("acme", "a", attempt(2), "q").await;
    let mut got = [assigned(&mut worker).await.0, assigned(&mut worker).await.0];
    got.sort();
    assert_eq!(got, [attempt(1), attempt(2)]);
}

#[tokio::test]
async fn withdrawn_work_is_not_handed_out() {
    let cluster = Cluster::start(1);
    cluster.work("acme", "a", attempt(1), "q").await;
    cluster.work("acme", "b", attempt(2), "q").await;
    cluster.call("a", toy::DONE, attempt(1).as_bytes()).await.expect("done");
    assert_eq!(cluster.silo.metrics().work_queued, 1);
    let mut worker = cluster.worker("w", 2, Vec::new()).await;
    assert_eq!(assigned(&mut worker).await.0, attempt(2));
    settle().await;
    assert!(worker.recv().now_or_never().is_none());
}

/// [A5] An interrupted attempt keeps its place until the worker has answered, and is no lost lease meanwhile.
#[tokio::test]
async fn an_interrupt_reaches_the_worker_that_holds_the_attempt() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    assigned(&mut worker).await;
    cluster.call("a", toy::DONE, &[attempt(1).as_bytes(), &b"!"[..]].concat()).await.expect("done");
    assert_eq!(
        next("an interrupt", worker.recv()).await,
        Some(ToWorker::Interrupt { attempt: attempt(1), reason: "done".to_owned() })
    );
    assert_eq!(worker.renew(&[attempt(1)]), Vec::<Uuid>::new());
    cluster.work("acme", "b", attempt(2), "q").await;
    settle().await;
    assert!(worker.recv().now_or_never().is_none());
    worker.release(attempt(1));
    assert_eq!(assigned(&mut worker).await.0, attempt(2));
}

/// [K9] One tenant's flood waits in its own queues: another tenant's only attempt is handed out at once.
#[tokio::test]
async fn a_flood_of_one_tenant_does_not_hold_up_another() {
    let cluster = Cluster::start(2);
    for n in 0..2_000 {
        cluster.work("flood", &n.to_string(), attempt(n), "q").await;
    }
    let _busy = cluster.silo.connect_worker(hello("flood", "w", 1, Vec::new())).await.expect("connected");
    let mut worker = cluster.silo.connect_worker(hello("calm", "w", 1, Vec::new())).await.expect("connected");
    cluster.work("calm", "k", attempt(9_999), "q").await;
    assert_eq!(assigned(&mut worker).await.0, attempt(9_999));
    assert!(cluster.silo.metrics().work_queued >= 1_999);
}

/// Two workers of one queue take turns.
#[tokio::test]
async fn workers_of_one_queue_take_turns() {
    let cluster = Cluster::start(1);
    let mut one = cluster.worker("w1", 10, Vec::new()).await;
    let mut two = cluster.worker("w2", 10, Vec::new()).await;
    for n in 0..10 {
        cluster.work("acme", &n.to_string(), attempt(n), "q").await;
    }
    for worker in [&mut one, &mut two] {
        let mut got = Vec::new();
        assert_eq!(next("assignments", worker.recv_many(&mut got, 100)).await, 5);
    }
}

#[tokio::test]
async fn a_draining_worker_gets_nothing_new_and_keeps_what_it_has() {
    let cluster = Cluster::start(1);
    let mut worker = cluster.worker("w", 5, Vec::new()).await;
    cluster.work("acme", "a", attempt(1), "q").await;
    assigned(&mut worker).await;
    worker.drain();
    cluster.work("acme", "b", attempt(2), "q").await;
    settle().await;
    assert!(worker.recv().now_or_never().is_none());
    assert_eq!(worker.renew(&[attempt(1)]), Vec::<Uuid>::new());
}

#[tokio::test]
async fn a_later_session_of_the_same_worker_ends_the_earlier() {
    let cluster = Cluster::start(1);
    let mut first = cluster.worker("w", 1, Vec::new()).await;
    let mut second = cluster.worker("w", 1, Vec::new()).await;
    assert_eq!(next("the end of the first", first.recv()).await, None);
    drop(first);
    cluster.work("acme", "a", attempt(1), "q").await;
    assert_eq!(assigned(&mut second).await.0, attempt(1));
}

#[tokio::test]
async fn a_hello_that_cannot_be_is_refused_with_its_field() {
    let cluster = Cluster::start(1);
    let lease = Lease { worker: "w".to_owned(), token: [0; 16] };
    let mut foreign = held("a", attempt(1), &lease);
    foreign.grain = toy::id("other", "a");
    let cases = [
        (hello("acme", "", 1, Vec::new()), "workerId"),
        (hello("acme", "w", 0, Vec::new()), "capacity"),
        (hello("acme", "w", 1_000_000, Vec::new()), "capacity"),
        (crate::WorkerHello { queues: Vec::new(), ..hello("acme", "w", 1, Vec::new()) }, "queues"),
        (hello("acme", "w", 1, vec![foreign]), "held[0]"),
    ];
    for (hello, field) in cases {
        let refused = cluster.silo.connect_worker(hello).await.err().expect("refused");
        assert_eq!((refused.code, refused.field.as_str()), (Code::Invalid, field));
    }
}

/// How long a unit of work takes from its turn to its worker and back, with everything around it in memory.
#[tokio::test]
#[ignore = "a figure, not a check"]
async fn the_cost_of_dispatch() {
    const UNITS: u128 = 20_000;
    let cluster = Cluster::start(4);
    let mut worker = cluster.worker("w", 64, Vec::new()).await;
    let begun = std::time::Instant::now();
    for n in 0..UNITS {
        let key = format!("k{}", n % 200);
        cluster.work("acme", &key, attempt(n), "q").await;
        let (got, _) = assigned(&mut worker).await;
        worker.finished(got);
        cluster.call(&key, toy::DONE, got.as_bytes()).await.expect("done");
        worker.release(got);
    }
    println!("{} us a unit", begun.elapsed().as_micros() / UNITS);
}
