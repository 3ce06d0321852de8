//! Another silo takes a shard over: what was promised goes on, and nothing of the former owner is left.

use crate::testing::many::Many;
use crate::testing::{next, settle, toy, until};
use std::time::Duration;

async fn remind(many: &Many, at: u64, key: &str, name: &str, due_in: i64) {
    let text = format!("{name}:{}", crate::testing::START + due_in);
    many.call(at, key, toy::REMIND, text.as_bytes()).await.expect("set");
}

/// [FR-024, FR-027, FR-038, K5, K7] Five hundred reminders; their owner dies before they are due, and its successor too, after
/// some have fired: each fires once, none early.
#[tokio::test]
async fn reminders_fire_once_through_two_deaths() {
    let mut many = Many::start(3, 3);
    for n in 0..500u64 {
        remind(&many, n % 3 + 1, &n.to_string(), "wake", 10_000 + (n as i64 % 2) * 10_000).await;
    }
    let first = many.kill(1);
    settle().await;
    many.advance(Duration::from_secs(10));
    until("half of them fired", || {
        many.nodes.values().map(|node| node.silo.metrics().reminders_fired).sum::<u64>() >= 250
    })
    .await;
    many.revive(first);
    let second = many.kill(2);
    settle().await;
    many.advance(Duration::from_secs(10));
    for n in 0..500u64 {
        let key = n.to_string();
        assert_eq!(many.until_told(3, &key).await.len(), 1, "{key}");
    }
    drop(second);
    let left: usize = (0..3).map(|shard| many.node(3).stores[shard].reminder_rows()).sum();
    assert_eq!(left, 0);
}

/// [FR-031, FR-197, K7] The leadership flaps twenty times between three silos while calls and reminders run: nothing is lost,
/// nothing is twice, and afterwards only the owner holds anything in memory.
#[tokio::test]
async fn twenty_flaps_lose_nothing_and_leave_nothing_behind() {
    let many = Many::start(3, 1);
    for n in 0..40u64 {
        remind(&many, 1, &n.to_string(), "wake", 1_000 + n as i64 * 500).await;
    }
    let commands = async {
        for n in 0..120u64 {
            let (key, command) = ((n % 40).to_string(), format!("c-{n}"));
            while let Err(rejection) = many.command(n % 3 + 1, &key, &command, 1).await {
                assert!(rejection.code.is_retryable(), "{rejection}");
                tokio::task::yield_now().await;
            }
        }
    };
    let flaps = async {
        for n in 0..20u64 {
            many.lead(0, n % 3 + 1);
            many.advance(Duration::from_secs(1));
            settle().await;
        }
        many.advance(Duration::from_secs(10));
    };
    next("both", async { tokio::join!(commands, flaps) }).await;
    for n in 0..40u64 {
        let key = n.to_string();
        assert_eq!(many.sum(1, &key).await, Ok(3));
        assert_eq!(many.until_told(1, &key).await.len(), 1, "{key}");
    }
    let owner = many.leader(0).expect("a leader");
    for node in many.nodes.values().filter(|node| node.id != owner) {
        until("nothing left", || node.silo.metrics().activations == 0).await;
        assert_eq!(node.silo.metrics().reminders_armed, 0);
    }
}

/// [FR-059, K7] Calls from grain to grain that were committed and not delivered go on at the new owner, each answered.
#[tokio::test]
async fn the_outbox_goes_on_at_the_new_owner() {
    let mut many = Many::start(3, 3);
    // The targets cannot commit yet, wherever they are.
    for node in many.nodes.values() {
        node.stores.iter().for_each(|store| store.hold());
    }
    let senders: Vec<String> = (0..60).map(|n| format!("s{n}")).collect();
    for store in many.nodes.values().flat_map(|node| &node.stores) {
        store.release(60);
    }
    for (n, sender) in senders.iter().enumerate() {
        many.call(n as u64 % 3 + 1, sender, toy::SEND, format!("t{}", n % 6).as_bytes()).await.expect("sent");
    }
    let dead = many.kill(1);
    for store in many.nodes.values().flat_map(|node| &node.stores) {
        store.release_all();
    }
    dead.stores.iter().for_each(|store| store.release_all());
    // At least once each: the toy's addition is not idempotent, so what was on its way to a commit may count twice.
    for n in 0..6 {
        let key = format!("t{n}");
        many.until_sum_is(2, &key, |sum| sum >= 10).await;
    }
    until("all struck", || many.nodes.values().map(|node| node.silo.metrics().outbox_calls_open).sum::<u64>() == 0)
        .await;
}

/// [K4, R15] Those that say they have nothing to tell are not loaded by a takeover; all others are.
#[tokio::test]
async fn a_takeover_wakes_only_those_with_something_to_tell() {
    let many = Many::start(2, 1);
    many.lead(0, 1);
    for n in 0..300u64 {
        many.add(1, &n.to_string(), 1).await.expect("added");
        if n % 10 != 0 {
            many.call(1, &n.to_string(), toy::QUIET, b"").await.expect("quiet");
        }
    }
    many.lead(0, 2);
    until("thirty woken", || many.silo(2).metrics().activations_created == 30).await;
    settle().await;
    assert_eq!(many.silo(2).metrics().activations_created, 30);
    until("none kept", || many.silo(2).metrics().activations == 0).await;
}

/// [R15, K4] The sweep visits all of them, and leaves none in memory.
#[tokio::test]
async fn the_sweep_visits_everybody_and_keeps_nobody() {
    let many = Many::with(2, 1, 2, |options| options.sweep_every = Duration::from_secs(300));
    many.lead(0, 1);
    for n in 0..100u64 {
        many.add(1, &n.to_string(), 1).await.expect("added");
        many.call(1, &n.to_string(), toy::QUIET, b"").await.expect("quiet");
    }
    many.lead(0, 2);
    settle().await;
    many.advance(Duration::from_secs(300));
    for n in 0..100u64 {
        many.until_told(2, &n.to_string()).await;
    }
}
