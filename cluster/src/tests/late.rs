//! Silos that stand still with an assignment in hand. That the hand is the owner's own changes nothing.

use crate::sabotage::Sabotage;
use crate::testing::many::Many;
use crate::testing::{Cluster, next, settle, toy, until};
use crate::{ToWorker, WorkerSession};
use futures::FutureExt;
use grain_contract::Lease;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(45);
const IN_TIME: Duration = Duration::from_secs(15);
const LATE: Duration = Duration::from_millis(15_001);
const ATTEMPT: Uuid = Uuid::from_u128(1);

async fn assigned(worker: &mut WorkerSession) -> (Uuid, Lease) {
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, lease, .. }) => (item.attempt, lease),
        other => panic!("expected an assignment, but found {other:?}"),
    }
}

fn given_back() -> Vec<String> {
    vec![format!("lease expired {ATTEMPT} never_started true")]
}

/// Held in its commit for so long; gives back what the grain was told.
async fn stands_still_in_a_commit(by: Duration, waits_first: bool, sabotage: Option<Sabotage>) -> Vec<String> {
    let cluster = Cluster::with(1, |options| options.sabotage = sabotage);
    let commits = || cluster.stores[0].commits.lock().len();
    if waits_first {
        cluster.work("acme", "a", ATTEMPT, "q").await;
    }
    let before = commits();
    cluster.stores[0].hold();
    let mut worker = cluster.worker("w", 1, Vec::new()).await;
    let stands_still = async {
        until("the lease is to be committed", || cluster.stores[0].at_gate.load(Ordering::SeqCst) == 1).await;
        assert_eq!(commits(), before, "and is not");
        cluster.clock.advance(by);
        cluster.stores[0].release_all();
        let (got, lease) = assigned(&mut worker).await;
        assert_eq!(got, ATTEMPT, "given back or not, the worker gets it");
        let held = cluster.attempts("a").await;
        assert_eq!(held, [(ATTEMPT, lease.worker)], "what the worker has is what the grain says it has");
        settle().await;
        assert!(worker.recv().now_or_never().is_none(), "once");
    };
    if waits_first {
        stands_still.await;
    } else {
        tokio::join!(cluster.work("acme", "a", ATTEMPT, "q"), stands_still);
    }
    assert_eq!(cluster.silo.metrics().leases, 1);
    cluster.told("a").await
}

/// [C3] [K7] Between the taking of the place and what follows the commit.
#[tokio::test]
async fn an_owner_that_stood_still_in_a_commit_does_not_hand_its_attempt_out() {
    for waits_first in [false, true] {
        assert_eq!(stands_still_in_a_commit(IN_TIME, waits_first, None).await, Vec::<String>::new());
        // Without the look at its age.
        let blind = Some(Sabotage::LateHandedOut);
        assert_eq!(stands_still_in_a_commit(LATE, waits_first, blind).await, Vec::<String>::new());
        // For the lease's time, and it was over meanwhile: another silo might have said so.
        for by in [LATE, 2 * LEASE] {
            assert_eq!(stands_still_in_a_commit(by, waits_first, None).await, given_back(), "{by:?}, {waits_first}");
        }
    }
}

/// [C3] [K7] Between what follows the commit and the worker's stream.
#[tokio::test]
async fn what_lay_before_the_workers_stream_for_long_is_not_handed_out() {
    for (by, told) in [(IN_TIME, Vec::new()), (LATE, given_back())] {
        for reads_many in [false, true] {
            let cluster = Cluster::start(1);
            let mut worker = cluster.worker("w", 1, Vec::new()).await;
            cluster.work("acme", "a", ATTEMPT, "q").await;
            cluster.clock.advance(by);
            let got = if reads_many {
                let mut got = vec![ToWorker::Interrupt { attempt: ATTEMPT, reason: "read before".to_owned() }];
                assert_eq!(next("an assignment", worker.recv_many(&mut got, 100)).await, 1);
                assert_eq!(got.len(), 2, "what was there stays");
                matches!(&got[1], ToWorker::Assign { item, .. } if item.attempt == ATTEMPT)
            } else {
                assigned(&mut worker).await.0 == ATTEMPT
            };
            assert!(got, "given back or not, the worker gets it");
            assert_eq!((cluster.told("a").await, cluster.silo.metrics().leases), (told.clone(), 1));
        }
    }
}

/// [C3] [K7] The same where the attempt is another silo's, and the next owner is the one that hears of it.
#[tokio::test]
async fn an_edge_that_stood_still_gives_back_what_its_worker_was_not_told() {
    let many = Many::start(3, 3);
    let key = (0..).map(|n| format!("k{n}")).find(|key| many.owner(key) == 1).expect("endless");
    let mut worker = many.silo(2).connect_worker(crate::testing::hello("acme", "w", 1, Vec::new())).await.expect("it");
    many.call(1, &key, toy::WORK, &[ATTEMPT.as_bytes(), &b"q"[..]].concat()).await.expect("work made");
    until("it is at the edge", || many.silo(1).metrics().relay_assigned == 1).await;
    settle().await;
    many.node(2).clock.advance(LATE);
    let (got, lease) = assigned(&mut worker).await;
    assert_eq!(got, ATTEMPT);
    let held = many.call(1, &key, toy::ATTEMPTS, b"").await.expect("a list");
    assert_eq!(String::from_utf8(held).expect("text"), format!("{ATTEMPT} {}", lease.worker));
    assert_eq!(many.told(1, &key).await, given_back());
}
