//! One commit changes everything it should, or nothing.

use super::*;
use crate::{Cursor, Housekeeping, OutboxItem};
use grain_contract::limits::ENTRY_BYTES_MAX;
use std::time::Instant;

fn rich(n: u8) -> Turn {
    Turn {
        puts: vec![row(1, "a", [n]), row(1, "b", [n]), row(200, &format!("j{n}"), [n])],
        deletes: vec![RowKey { table: Table(1), key: b"old".to_vec() }],
        reminders: vec![set("wake", i64::from(n) * 10), set("stuck", 1_000)],
        index: vec![IndexChange::Put { index: "runs", sort: vec![n], value: b"v".to_vec() }],
        outbox: vec![event([n]), call("other")],
        reply: vec![n, n],
        ..Turn::default()
    }
}

/// [K3] One log entry: rows, reminders, index, outbox and the stored reply, visible together once acknowledged.
#[tokio::test]
async fn a_turn_is_visible_whole() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let (host, owner) = open(dir.path(), state).await;
        owner.commit("k", 0, puts([row(1, "old", "x")])).await.unwrap();
        let command = CommandId::new("c1");
        let commit = Commit { command: Some(command.clone()), ..owner.turn("k", 1, rich(1)) };
        let committed = owner.shard.commit(commit).await.unwrap();
        assert_eq!(committed, Committed { revision: Revision(2), outbox: vec![1, 2] });

        let shard = &owner.shard;
        let rows = shard.grain(&grain("k")).unwrap();
        assert_eq!(rows.revision, Revision(2));
        assert_eq!(rows.rows, [row(1, "a", [1]), row(1, "b", [1])]);
        assert_eq!(rows.reminders, [("stuck".to_string(), Timestamp(1_000)), ("wake".to_string(), Timestamp(10))]);
        assert_eq!(shard.rows(&grain("k"), Table(200), None, 9).unwrap(), [row(200, "j1", [1])]);
        assert_eq!(shard.stored_reply(&grain("k"), &command).unwrap(), Some(vec![1, 1]));
        assert_eq!(shard.stored_reply(&grain("k"), &CommandId::new("c2")).unwrap(), None);
        let due = shard.reminders(Timestamp(10), None, 9).unwrap();
        assert_eq!(due.iter().map(|r| (r.due.0, r.name.as_str())).collect::<Vec<_>>(), [(10, "wake")]);
        assert_eq!(shard.index("runs", &"acme".into(), None, 9).unwrap()[0].sort, [1]);
        assert!(shard.index("runs", &"other".into(), None, 9).unwrap().is_empty());
        assert_eq!(shard.index_all("runs", None, 9).unwrap().len(), 1);
        let outbox = shard.outbox(0, 9).unwrap();
        assert_eq!(outbox.iter().map(|record| record.sequence).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(outbox[0].item, OutboxItem::Event(vec![1]));
        assert!(matches!(&outbox[1].item, OutboxItem::Call { on_rejected: Some(Method(0)), .. }));
        assert_eq!(shard.open_calls(0, 9).unwrap(), outbox[1..]);
        assert_eq!((shard.outbox_bounds(), *shard.outbox_watch().borrow() <= 3), ((3, 1), true));
        host.close().await.unwrap();
        assert!(matches!(shard.grain(&grain("k")), Err(Error::Closed)));
    }
}

/// [K4] A commit under another epoch or over another revision changes nothing.
#[tokio::test]
async fn another_epoch_or_revision_is_fenced() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Memory).await;
    owner.commit("k", 0, rich(1)).await.unwrap();
    let before = owner.shard.grain(&grain("k")).unwrap();
    for expected in [0, 2, 9] {
        assert!(matches!(owner.commit("k", expected, rich(2)).await, Err(Error::Fenced { .. })));
    }
    for epoch in [owner.epoch.0 - 1, owner.epoch.0 + 1] {
        let commit = Commit { epoch: Epoch(epoch), ..owner.turn("k", 1, rich(2)) };
        assert!(matches!(owner.shard.commit(commit).await, Err(Error::Fenced { .. })));
    }
    assert_eq!(owner.shard.grain(&grain("k")).unwrap(), before);
    assert_eq!(owner.shard.outbox_bounds().0, 3);
    host.close().await.unwrap();
}

/// [K4] Of many commits on one revision exactly one is accepted, also when all are in flight at once.
#[tokio::test]
async fn of_concurrent_turns_on_one_revision_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Memory).await;
    for revision in 0..20 {
        let turns = (0..8).map(|n| owner.commit("k", revision, puts([row(1, "who", [n])])));
        let results = futures::future::join_all(turns).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        let winner = results.iter().position(Result::is_ok).unwrap() as u8;
        assert_eq!(owner.shard.grain(&grain("k")).unwrap().rows, [row(1, "who", [winner])]);
    }
    host.close().await.unwrap();
}

#[tokio::test]
async fn a_turn_above_the_limit_is_refused_before_it_is_proposed() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Memory).await;
    let huge = puts([row(1, "a", vec![0; ENTRY_BYTES_MAX])]);
    assert!(matches!(owner.commit("k", 0, huge).await, Err(Error::TooLarge { limit: ENTRY_BYTES_MAX, .. })));
    let large = puts([row(1, "a", vec![7; ENTRY_BYTES_MAX - 1_000])]);
    assert_eq!(owner.commit("k", 0, large.clone()).await.unwrap().revision, Revision(1));
    assert_eq!(owner.shard.grain(&grain("k")).unwrap().rows, large.puts);
    host.close().await.unwrap();
}

#[tokio::test]
async fn pages_go_on_behind_the_last_one_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Sled).await;
    for n in 0..25u8 {
        let turn = Turn {
            puts: vec![row(200, &format!("{n:03}"), [n])],
            reminders: vec![set("wake", i64::from(n) % 5)],
            index: vec![IndexChange::Put { index: "runs", sort: vec![n / 2], value: vec![n] }],
            ..Turn::default()
        };
        owner.commit(&format!("g{n:02}"), 0, turn.clone()).await.unwrap();
        owner.commit("j", u64::from(n), Turn { reminders: vec![], index: vec![], ..turn }).await.unwrap();
    }
    let shard = &owner.shard;
    let (mut rows, mut index, mut due) = (vec![], vec![], vec![]);
    loop {
        let after = rows.last().map(|row: &Row| row.key.key.clone());
        let page = shard.rows(&grain("j"), Table(200), after.as_deref(), 7).unwrap();
        if page.is_empty() {
            break;
        }
        rows.extend(page);
    }
    assert_eq!(rows.iter().map(|row| row.value[0]).collect::<Vec<_>>(), (0..25).collect::<Vec<_>>());
    loop {
        let page = shard.index("runs", &"acme".into(), index.last(), 4).unwrap();
        if page.is_empty() {
            break;
        }
        index.extend(page);
    }
    assert_eq!(index.iter().map(|entry| entry.value[0]).collect::<Vec<_>>(), (0..25).collect::<Vec<_>>());
    loop {
        let page = shard.reminders(Timestamp(3), due.last(), 3).unwrap();
        if page.is_empty() {
            break;
        }
        due.extend(page);
    }
    assert_eq!(due.len(), 20);
    assert!(due.is_sorted_by_key(|record| record.due));
    host.close().await.unwrap();
}

/// [V2] Cursors are named and durable; events go when told, calls when answered.
#[tokio::test]
async fn housekeeping_moves_cursors_and_trims() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Sled).await;
    for n in 0..5 {
        owner.commit("k", n, Turn { outbox: vec![event([n as u8]), call("o")], ..Turn::default() }).await.unwrap();
    }
    let shard = &owner.shard;
    let work = Housekeeping {
        epoch: owner.epoch,
        calls_done: vec![2, 4],
        cursors: vec![Cursor { name: "a".into(), sequence: 5 }, Cursor { name: "b".into(), sequence: 1 }],
        cursors_dropped: vec![],
        trim_events_below: Some(6),
    };
    shard.housekeeping(work.clone()).await.unwrap();
    let sequences = |records: Vec<crate::OutboxRecord>| records.iter().map(|r| r.sequence).collect::<Vec<_>>();
    assert_eq!(sequences(shard.outbox(0, 99).unwrap()), [6, 7, 8, 9, 10]);
    assert_eq!(sequences(shard.open_calls(0, 99).unwrap()), [6, 8, 10]);
    assert_eq!(shard.outbox_bounds(), (11, 6));
    assert_eq!(shard.cursors().unwrap(), work.cursors);
    let dropped = Housekeeping { epoch: owner.epoch, cursors_dropped: vec!["a".into()], ..Housekeeping::default() };
    shard.housekeeping(dropped).await.unwrap();
    assert_eq!(shard.cursors().unwrap(), work.cursors[1..]);
    let stale = Housekeeping { epoch: Epoch(owner.epoch.0 - 1), ..work };
    assert!(matches!(shard.housekeeping(stale).await, Err(Error::Fenced { .. })));
    host.close().await.unwrap();
}

/// One voter asks nobody, so a restart must not wait for an election timeout.
#[tokio::test]
async fn one_voter_leads_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut epochs = vec![];
    for _ in 0..3 {
        let host = Host::open(options(dir.path(), StateBackend::Memory)).await.unwrap();
        let opened = Instant::now();
        epochs.push(Owner::of(&host, 1).await.epoch);
        assert!(opened.elapsed() < Duration::from_millis(400), "{:?}", opened.elapsed());
        host.close().await.unwrap();
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "each leadership has its own epoch: {epochs:?}");
}
