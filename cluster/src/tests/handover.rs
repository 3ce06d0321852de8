//! A silo with others beside it stops: it gives its shards away and fails no call. And how it says that it is well.

use crate::directory::View;
use crate::testing::many::Many;
use crate::testing::{hello, next, settle, until};
use futures::future::join_all;
use grain_contract::Code;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// [FR-184, FR-002, P6] While calls run at all three silos, one of them drains: all its shards are led elsewhere, the most
/// up-to-date first, every call is answered, and it goes on to forward after its end.
#[tokio::test]
async fn a_drain_gives_all_shards_away_and_fails_no_call() {
    let many = Many::start(3, 6);
    for store in &many.node(1).stores {
        *store.others.lock() = vec![3, 2];
    }
    let over = AtomicBool::new(false);
    let callers = join_all((0..30u64).map(|n| {
        let (many, over) = (&many, &over);
        async move {
            let mut done = 0u64;
            while !over.load(Ordering::SeqCst) || done < 5 {
                done += 1;
                let command = format!("c-{n}-{done}");
                many.command(n % 3 + 1, &n.to_string(), &command, 1).await.expect("no call fails");
                tokio::task::yield_now().await;
            }
            done
        }
    }));
    let elects = join_all((0..6usize).map(|shard| {
        let many = &many;
        async move {
            let mut told = many.node(1).stores[shard].handed_over.subscribe();
            if many.leader(shard) == Some(1) {
                let heir = told.wait_for(Option::is_some).await.expect("told").expect("an heir");
                many.lead(shard, heir);
                assert_eq!(heir, 3, "the most up-to-date one");
            }
        }
    }));
    let drains = async {
        settle().await;
        assert!(many.silo(1).health().ready);
        many.silo(1).drain(Duration::from_secs(20)).await;
        assert!(!many.silo(1).health().ready);
        let refused = many.silo(1).connect_worker(hello("acme", "w", 1, Vec::new())).await;
        assert_eq!(refused.err().map(|r| r.code), Some(Code::Unavailable));
        settle().await;
        over.store(true, Ordering::SeqCst);
    };
    let (counts, _, ()) = next("all", async { tokio::join!(callers, elects, drains) }).await;
    for (n, count) in counts.iter().enumerate() {
        assert_eq!(many.sum(1, &n.to_string()).await, Ok(*count), "forwarded still");
    }
    assert!((0..6).all(|shard| many.leader(shard) != Some(1)));
    until("all dropped", || many.silo(1).metrics().activations == 0).await;
}

/// [P6] Nobody takes the shards over: the drain ends all the same.
#[tokio::test]
async fn a_drain_ends_even_if_nobody_takes_over() {
    let many = Many::start(2, 2);
    next("the drain", many.silo(1).drain(Duration::from_secs(5))).await;
    assert!(!many.silo(1).health().ready && many.silo(2).health().ready);
}

/// [FR-015, P6] One shard without a leader is told and keeps no traffic away; a silo that is cut off, or in no cluster yet, is
/// not ready.
#[tokio::test]
async fn health_says_what_concerns_this_silo() {
    let many = Many::start(3, 3);
    settle().await;
    many.leaderless(1);
    let health = many.silo(1).health();
    assert_eq!(
        (health.ready, health.reasons, health.troubles.as_slice()),
        (true, vec![], &["shard 1: it has no leader".to_owned()][..])
    );
    many.net.isolate(1);
    let health = many.silo(1).health();
    assert_eq!(
        (health.live, health.ready, health.reasons),
        (true, false, vec!["it is cut off: of 3 members it reaches 1".to_owned()])
    );
    assert!(many.silo(2).health().ready, "the majority goes on");
    many.net.heal();
    assert!(many.silo(1).health().ready);
    let view = View { version: 9, ..View::default() };
    many.node(1).directory.learn(view);
    assert_eq!(many.silo(1).health().reasons, ["it belongs to no cluster yet"]);
}
