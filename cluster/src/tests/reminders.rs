//! Reminders: at least once, never early, never after they were cleared.

use crate::testing::memory::Fault;
use crate::testing::{Cluster, START, next, settle, toy, until};
use grain_contract::{Code, Epoch, ReminderChange, Revision, Timestamp, Turn};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

async fn remind(cluster: &Cluster, key: &str, name: &str, in_ms: i64) {
    let due = crate::Clock::now(&cluster.clock).0 + in_ms;
    cluster.call(key, toy::REMIND, format!("{name}:{due}").as_bytes()).await.expect("set");
}

/// [R7, K5] Once, not before its moment, and nothing is left of it.
#[tokio::test]
async fn a_reminder_fires_once_at_its_moment() {
    let cluster = Cluster::start(2);
    remind(&cluster, "a", "tick", 5_000).await;
    cluster.clock.advance(Duration::from_millis(4_999));
    settle().await;
    assert_eq!(cluster.told("a").await.len(), 0);
    cluster.clock.advance(Duration::from_millis(1));
    assert_eq!(cluster.until_told("a", 1).await, [format!("reminder tick due {} late 0", START + 5_000)]);
    for _ in 0..5 {
        cluster.clock.advance(60 * SECOND);
        settle().await;
    }
    assert_eq!(cluster.told("a").await.len(), 1);
    assert!(cluster.stores.iter().all(|store| store.reminder_rows() == 0));
}

/// [FR-032, FR-006, K5] What came due while nobody ran fires at once after the start, once, with its lateness.
#[tokio::test]
async fn overdue_reminders_fire_after_a_restart_and_know_how_late_they_are() {
    let mut cluster = Cluster::start(4);
    for n in 0..50 {
        remind(&cluster, &n.to_string(), "nap", 5_000 + n).await;
    }
    cluster.restart(180 * SECOND);
    for n in 0..50 {
        let told = cluster.until_told(&n.to_string(), 1).await;
        assert_eq!(told, [format!("reminder nap due {} late {}", START + 5_000 + n, 175_000 - n)]);
    }
    assert_eq!(cluster.silo.metrics().reminders_fired, 50);
}

/// [FR-100] Cleared at any moment before its turn: it does not fire, and nothing of it lives on.
#[tokio::test]
async fn a_cleared_reminder_never_fires() {
    let cluster = Cluster::start(1);
    for n in 0..100 {
        remind(&cluster, &n.to_string(), "timeout", 1_000).await;
    }
    cluster.clock.advance(Duration::from_millis(999));
    settle().await;
    // Half are cleared before the moment, half are cleared while the firings are on their way.
    for n in 0..50 {
        cluster.call(&n.to_string(), toy::CLEAR, b"timeout").await.expect("cleared");
    }
    cluster.clock.advance(Duration::from_millis(1));
    let mut fired = 0;
    for n in 50..100 {
        cluster.call(&n.to_string(), toy::CLEAR, b"timeout").await.expect("cleared");
    }
    settle().await;
    cluster.clock.advance(120 * SECOND);
    settle().await;
    for n in 0..100 {
        let told = cluster.told(&n.to_string()).await.len();
        assert!(told <= usize::from(n >= 50), "{n} was told {told} times");
        fired += told;
    }
    assert!(fired <= 50);
    assert_eq!(cluster.stores[0].reminder_rows(), 0);
    until("nothing is armed", || cluster.silo.metrics().reminders_armed == 0).await;
}

#[tokio::test]
async fn a_moved_reminder_fires_at_its_new_moment_only() {
    let cluster = Cluster::start(1);
    remind(&cluster, "a", "tick", 1_000).await;
    remind(&cluster, "a", "tick", 300_000).await;
    cluster.clock.advance(100 * SECOND);
    settle().await;
    assert_eq!(cluster.told("a").await.len(), 0);
    cluster.clock.advance(200 * SECOND);
    assert_eq!(cluster.until_told("a", 1).await, [format!("reminder tick due {} late 0", START + 300_000)]);
}

/// A reminder whose turn could not be committed comes again.
#[tokio::test]
async fn a_firing_that_could_not_commit_is_repeated() {
    let cluster = Cluster::start(1);
    remind(&cluster, "a", "tick", 1_000).await;
    cluster.stores[0].fail_next(Fault::Full);
    cluster.clock.advance(SECOND);
    until("the first firing", || cluster.silo.metrics().reminders_fired == 1).await;
    settle().await;
    assert_eq!(cluster.told("a").await.len(), 0);
    cluster.clock.advance(SECOND);
    assert_eq!(cluster.until_told("a", 1).await, [format!("reminder tick due {} late 1000", START + 1_000)]);
}

/// [FR-032] [K5] A commit that was given up, and that was applied all the same: its reminder lies behind where scans have been, and
/// nobody told the wheel of it. It fires once.
#[tokio::test]
async fn a_reminder_of_a_commit_with_unknown_outcome_fires() {
    for fault in [Fault::AppliedThenUnknown, Fault::UnknownThenApplied, Fault::LateThenUnknown] {
        let cluster = Cluster::with(1, |options| options.sweep_every = 100_000 * SECOND);
        until("the first scan", || cluster.silo.metrics().reminder_scans > 0).await;
        cluster.stores[0].fail_next(fault);
        let due = START + 5_000;
        let answer = cluster.call_of("acme", "a", toy::REMIND_ONCE, format!("tick:{due}").as_bytes()).await;
        assert!(answer.is_err_and(|rejection| rejection.code == Code::Unavailable), "{fault:?}");
        if fault == Fault::UnknownThenApplied {
            cluster.add("b", 1).await.expect("it pushes the other through");
            cluster.add("a", 1).await.expect("it meets what came meanwhile");
        }
        until("it is in the rows", || cluster.stores[0].reminder_rows() == 1).await;
        until("it is armed", || cluster.silo.metrics().reminders_armed == 1).await;
        cluster.clock.advance(5 * SECOND);
        assert_eq!(cluster.until_told("a", 1).await, [format!("reminder tick due {due} late 0")], "{fault:?}");
        for _ in 0..3 {
            cluster.clock.advance(60 * SECOND);
            settle().await;
        }
        assert_eq!((cluster.told("a").await.len(), cluster.stores[0].reminder_rows()), (1, 0), "{fault:?}");
    }
}

/// [FR-084] A flood due at one moment is interleaved with calls: no call waits for more than a few rounds of it.
#[tokio::test]
async fn fifty_thousand_due_at_once_do_not_stall_calls() {
    const GRAINS: usize = 500;
    const EACH: usize = 100;
    let mut cluster = Cluster::start(1);
    for n in 0..GRAINS {
        let name = |k: usize| ReminderChange::Set { name: format!("r{k}"), due: Timestamp(START + 1_000) };
        let turn = Turn { reminders: (0..EACH).map(name).collect(), ..Turn::default() };
        seed(&cluster, &n.to_string(), turn).await;
    }
    cluster.restart(SECOND);
    let store = &cluster.stores[0];
    let before = store.commits.lock().len();
    let mut worst = 0;
    let mut calls = 0;
    while store.commits.lock().len() - before < GRAINS * EACH {
        let at = store.commits.lock().len();
        cluster.add("other", 1).await.expect("added");
        calls += 1;
        worst = worst.max(store.commits.lock().len() - at);
    }
    assert!(calls > 100, "calls went on between: {calls}");
    assert!(worst < 1_000, "one call waited for {worst} commits");
    until("all fired", || store.reminder_rows() == 0).await;
    assert_eq!(cluster.silo.metrics().reminders_fired as usize, GRAINS * EACH);
}

async fn seed(cluster: &Cluster, key: &str, turn: Turn) {
    let (grain, at) = (toy::id("acme", key), Timestamp(START));
    let commit = shard::Commit { grain, epoch: Epoch(1), expected: Revision(0), turn, command: None, at };
    crate::store::Store::commit(&*cluster.stores[0], commit).await.expect("seeded");
}

/// [FR-094] Set again and again: one row, one armed timer, no more memory.
#[tokio::test]
async fn setting_one_reminder_again_and_again_keeps_one_timer() {
    let cluster = Cluster::start(1);
    for _ in 0..5_000 {
        remind(&cluster, "a", "timeout", 30_000).await;
    }
    cluster.clock.advance(SECOND);
    tokio::time::timeout(20 * SECOND, async {
        while cluster.silo.metrics().reminders_armed == 0 {
            remind(&cluster, "a", "timeout", 30_000).await;
        }
    })
    .await
    .expect("armed");
    assert_eq!((cluster.silo.metrics().reminders_armed, cluster.stores[0].reminder_rows()), (1, 1));
}

/// [FR-200] Ten thousand reminders of tomorrow: no scan for them, no memory.
#[tokio::test]
async fn reminders_of_tomorrow_cost_neither_scans_nor_memory() {
    let cluster = Cluster::start(1);
    settle().await;
    let scans = cluster.stores[0].reminder_scans.load(SeqCst);
    for n in 0..10_000 {
        remind(&cluster, &(n % 10).to_string(), &format!("r{n}"), 86_400_000).await;
    }
    settle().await;
    assert_eq!(cluster.stores[0].reminder_scans.load(SeqCst), scans);
    assert_eq!((cluster.silo.metrics().reminders_armed, cluster.stores[0].reminder_rows()), (0, 10_000));
    for _ in 0..10 {
        cluster.clock.advance(30 * SECOND);
        settle().await;
    }
    assert!(cluster.stores[0].reminder_scans.load(SeqCst) - scans <= 11, "a scan each half window");
}

/// [FR-031] A wheel that died is seen, and another one goes on from the rows.
#[tokio::test]
async fn a_wheel_that_dies_is_unready_and_restarted() {
    let cluster = Cluster::start(1);
    settle().await;
    assert!(cluster.silo.health().ready, "{:?}", cluster.silo.health());
    for n in 0..100 {
        remind(&cluster, &n.to_string(), "tick", 10_000).await;
    }
    cluster.stores[0].panic_in_scan.store(true, SeqCst);
    cluster.clock.advance(31 * SECOND);
    until("unready", || !cluster.silo.health().ready).await;
    assert_eq!(cluster.silo.health().reasons, ["shard 0: the reminder wheel does not run"]);
    for n in 0..100 {
        next("the firing", cluster.until_told(&n.to_string(), 1)).await;
    }
    until("ready", || cluster.silo.health().ready).await;
    assert_eq!(cluster.silo.metrics().service_restarts, 1);
}
