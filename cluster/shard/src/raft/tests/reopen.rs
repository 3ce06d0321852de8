//! What was acknowledged is there after a restart, however the process ended.

use super::*;
use crate::{Cursor, Housekeeping};

/// Everything of a shard, as its owner sees it.
fn picture(shard: &Shard) -> String {
    let keys: Vec<_> = (0..40).map(|n| format!("g{n}")).collect();
    let grains: Vec<_> = keys.iter().map(|key| shard.grain(&grain(key)).unwrap()).collect();
    format!(
        "{grains:#?}{:#?}{:#?}{:#?}{:#?}{:?}",
        shard.outbox(0, 10_000).unwrap(),
        shard.reminders(Timestamp(i64::MAX), None, 10_000).unwrap(),
        shard.index_all("runs", None, 10_000).unwrap(),
        shard.cursors().unwrap(),
        shard.outbox_bounds(),
    )
}

/// Turns of forty grains with fenced ones among them, moved reminders, trimmed events.
async fn work(owner: &Owner, revisions: &mut [u64; 40], seed: u64, turns: u64) {
    let mut random = seed;
    for _ in 0..turns {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (random >> 33) as usize;
        let (n, key) = (pick % 40, format!("g{}", pick % 40));
        let turn = Turn {
            puts: vec![row(1, "a", pick.to_be_bytes()), row(2, &format!("{}", pick % 3), [1])],
            deletes: vec![RowKey { table: Table(2), key: format!("{}", (pick + 1) % 3).into() }],
            reminders: match pick % 4 {
                0 => vec![ReminderChange::Clear { name: "wake".into() }],
                1 => vec![set("wake", (pick % 90) as i64), set("stuck", 5)],
                _ => vec![set("wake", (pick % 90) as i64)],
            },
            index: vec![IndexChange::Put { index: "runs", sort: vec![(pick % 7) as u8], value: vec![1] }],
            outbox: vec![event("e"), call("t")],
            ..Turn::default()
        };
        // The second is decided on a revision that is gone, with the same rows: it must be fenced now and at each replay.
        let (first, second) = tokio::join!(
            owner.commit(&key, revisions[n], turn.clone()),
            owner.commit(&key, revisions[n], Turn { outbox: vec![event("twice")], ..turn })
        );
        assert!(first.is_ok() && matches!(second, Err(Error::Fenced { .. })), "{first:?} {second:?}");
        revisions[n] += 1;
        if pick % 10 == 0 {
            let (next, low) = owner.shard.outbox_bounds();
            let housekeeping = Housekeeping {
                epoch: owner.epoch,
                calls_done: (low..next.saturating_sub(4)).collect(),
                cursors: vec![Cursor { name: "c".into(), sequence: next }],
                cursors_dropped: vec![],
                trim_events_below: Some(next.saturating_sub(6)),
            };
            owner.shard.housekeeping(housekeeping).await.unwrap();
        }
    }
}

/// [K3]
#[tokio::test]
async fn a_clean_close_and_reopen_changes_nothing() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = [0; 40];
        for round in 0..3 {
            let (host, owner) = open(dir.path(), state).await;
            let epoch = owner.epoch;
            work(&owner, &mut revisions, round, 60).await;
            let before = picture(&owner.shard);
            host.close().await.unwrap();
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(picture(&owner.shard), before, "{state:?}");
            assert_eq!(host.rebuilds(), 0, "{state:?}");
            assert!(owner.epoch > epoch);
            host.close().await.unwrap();
        }
    }
}

/// [K3] The store may be ahead of the checkpoint from which the log is replayed, anywhere; each entry is decided again as it
/// was, fenced ones among them, and outbox numbers come out the same.
#[tokio::test]
async fn replay_over_a_store_that_is_ahead_is_exact() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = [0; 40];
        for round in 0..8 {
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(host.rebuilds(), 0, "{state:?} {round}");
            work(&owner, &mut revisions, 100 + round, 30 + 11 * round).await;
            let before = picture(&owner.shard);
            host.inner.crash().await;
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(picture(&owner.shard), before, "{state:?} {round}");
            // And once more, with a checkpoint inside what was replayed.
            host.inner.crash().await;
        }
    }
}

#[tokio::test]
async fn two_hosts_on_one_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = open(dir.path(), StateBackend::Sled).await;
    let second = Host::open(options(dir.path(), StateBackend::Sled)).await;
    assert!(matches!(second, Err(Error::FolderInUse { .. })));
    host.close().await.unwrap();
    let (host, _) = open(dir.path(), StateBackend::Sled).await;
    host.close().await.unwrap();
}

#[tokio::test]
async fn a_folder_of_another_shape_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = open(dir.path(), StateBackend::Memory).await;
    host.close().await.unwrap();
    let other = HostOptions { shards: 3, ..options(dir.path(), StateBackend::Memory) };
    assert!(matches!(Host::open(other).await, Err(Error::WrongFolder { .. })));
    let other = options(dir.path(), StateBackend::Fjall);
    assert!(matches!(Host::open(other).await, Err(Error::WrongFolder { .. })));
}
