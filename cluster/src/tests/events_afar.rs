//! Events read at a silo that has not all shards, and that loses its peers.

use crate::testing::many::Many;
use crate::testing::{next, settle, toy, until};
use crate::{DeliveredEvent, EventReader, ReadEvents, ReadFrom, Scope, Silo};
use futures::FutureExt;
use grain_contract::Code;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn open(silo: &Silo, name: Option<&str>, from: ReadFrom, scope: Scope) -> EventReader {
    let read = ReadEvents { tenant: Some("acme".into()), cursor_name: name.map(str::to_owned), from, scope };
    silo.events(read).await.expect("a reader")
}

async fn take(reader: &mut EventReader, count: usize) -> Vec<DeliveredEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next("events", reader.next_batch()).await.expect("a batch"));
    }
    events
}

/// Sums rise by one with each event of a toy: in order, and no gap.
fn in_order_without_gap(events: &[DeliveredEvent]) {
    let mut last: HashMap<String, u64> = HashMap::new();
    for event in events {
        let before = last.insert(event.grain.key.to_string(), toy::number(&event.body)).unwrap_or(0);
        assert_eq!(toy::number(&event.body), before + 1, "{}", event.grain);
    }
}

/// [V1, V2, FR-004, FR-119, FR-059] A reader at a silo with replicas of two of five shards, while owners change: every event,
/// once, in order per grain.
#[tokio::test]
async fn a_reader_sees_all_shards_while_owners_change() {
    let many = Many::with(5, 5, 2, |_| {});
    let mut reader = open(many.silo(1), None, ReadFrom::Earliest, Scope::Cluster).await;
    let writes = async {
        for round in 0..40u64 {
            for n in 0..10u64 {
                many.add((round + n) % 5 + 1, &n.to_string(), 1).await.expect("added");
            }
            let shard = (round % 5) as usize;
            // Shard n has replicas at nodes n+1 and the next.
            many.lead(shard, (shard as u64 + round / 5 % 2) % 5 + 1);
        }
    };
    let (events, ()) = next("all", async { tokio::join!(take(&mut reader, 400), writes) }).await;
    assert_eq!(events.len(), 400);
    in_order_without_gap(&events);
    let ids: BTreeSet<(u32, u64)> = events.iter().map(|event| (event.shard, event.sequence)).collect();
    assert_eq!(ids.len(), 400, "each once");
    assert_eq!(reader.skipped(), 0);
}

/// [V2, FR-189] Reading goes on at another silo behind the cursor of the first, with the same numbers; a replica that lags
/// behind the cursor is waited for, not taken for the end.
#[tokio::test]
async fn a_cursor_goes_on_at_another_silo_even_if_that_lags() {
    let many = Many::start(3, 1);
    many.lead(0, 1);
    for _ in 0..10 {
        many.add(1, "r", 1).await.expect("added");
    }
    let mut first = open(many.silo(1), None, ReadFrom::Earliest, Scope::Cluster).await;
    let seen = take(&mut first, 10).await;
    // Node 2 has the first four rows only.
    many.node(2).stores[0].lags_from.store(5, Ordering::SeqCst);
    many.net.judge(|_, _, method| match method {
        "grain.outbox" => crate::testing::net::Fate::NotSent,
        _ => crate::testing::net::Fate::Arrives,
    });
    let mut second = open(many.silo(2), None, ReadFrom::Cursor(seen[7].cursor.clone()), Scope::Cluster).await;
    assert!(second.next_batch().now_or_never().is_none(), "nothing from before the cursor, and no refusal");
    many.node(2).stores[0].lags_from.store(u64::MAX, Ordering::SeqCst);
    many.node(2).stores[0].nudge();
    let rest = take(&mut second, 2).await;
    let ids = |events: &[DeliveredEvent]| events.iter().map(|event| event.sequence).collect::<Vec<_>>();
    assert_eq!(ids(&rest), ids(&seen[8..]));
    // One that no owner has given out is none.
    let ahead = ReadFrom::Cursor("1.999".to_owned());
    let read = ReadEvents { tenant: None, cursor_name: None, from: ahead, scope: Scope::Cluster };
    assert_eq!(many.silo(2).events(read).await.err().map(|r| r.code), Some(Code::Invalid));
}

/// [V2] A replica that lags for good does not hold up its readers: the rows come from who has them.
#[tokio::test]
async fn rows_that_are_not_here_yet_come_from_elsewhere() {
    let many = Many::start(3, 1);
    many.lead(0, 1);
    for _ in 0..10 {
        many.add(1, "r", 1).await.expect("added");
    }
    let mut first = open(many.silo(1), None, ReadFrom::Earliest, Scope::Cluster).await;
    let seen = take(&mut first, 10).await;
    many.node(2).stores[0].lags_from.store(5, Ordering::SeqCst);
    let mut second = open(many.silo(2), None, ReadFrom::Cursor(seen[7].cursor.clone()), Scope::Cluster).await;
    assert_eq!(toy::number(&take(&mut second, 2).await[0].body), 9);
}

/// [V2] A second reader takes the named cursor over at another silo: the first one ends, and what it acknowledged is done.
#[tokio::test]
async fn a_named_cursor_is_taken_over_from_another_silo() {
    let many = Many::with(3, 3, 2, |_| {});
    let mut first = open(many.silo(1), Some("audit"), ReadFrom::Earliest, Scope::Cluster).await;
    for n in 0..30u64 {
        many.add(1, &n.to_string(), 1).await.expect("added");
    }
    let seen = take(&mut first, 30).await;
    first.acknowledge(&seen[19].cursor).expect("acknowledged");
    let kept = |many: &Many| -> u64 {
        let of = |shard: usize| {
            let cursors = crate::store::Store::cursors(&*many.node(1).stores[shard]).expect("cursors");
            cursors.iter().filter(|c| !c.name.ends_with("reader")).map(|c| c.sequence - 1).sum::<u64>()
        };
        (0..3).map(of).sum()
    };
    until("kept", || kept(&many) == 20).await;
    let mut second = open(many.silo(3), Some("audit"), ReadFrom::Latest, Scope::Cluster).await;
    let ended = next("the end of the first", first.next_batch()).await.map(|_| ());
    assert_eq!(ended.map_err(|r| r.code), Err(Code::WrongState));
    // What it says from now on moves nothing.
    first.acknowledge(&seen[29].cursor).expect("of a delivered event");
    let mut rest: Vec<_> = take(&mut second, 10).await.iter().map(|e| (e.shard, e.sequence)).collect();
    let mut wanted: Vec<_> = seen[20..].iter().map(|e| (e.shard, e.sequence)).collect();
    rest.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(rest, wanted);
    settle().await;
    assert_eq!(kept(&many), 20);
}

/// [V2] The word that another took the cursor is lost: the older reader ends at its next move.
#[tokio::test]
async fn a_reader_that_did_not_hear_of_its_successor_moves_nothing() {
    let many = Many::start(2, 1);
    many.lead(0, 1);
    let mut first = open(many.silo(1), Some("audit"), ReadFrom::Earliest, Scope::Cluster).await;
    for _ in 0..4 {
        many.add(1, "r", 1).await.expect("added");
    }
    let seen = take(&mut first, 4).await;
    many.net.judge(|_, _, method| match method {
        "grain.cursor_taken" => crate::testing::net::Fate::QuestionLost,
        _ => crate::testing::net::Fate::Arrives,
    });
    let mut second = open(many.silo(2), Some("audit"), ReadFrom::Earliest, Scope::Cluster).await;
    first.acknowledge(&seen[3].cursor).expect("acknowledged");
    let ended = next("the end of the first", first.next_batch()).await.map(|_| ());
    assert_eq!(ended.map_err(|r| r.code), Err(Code::WrongState));
    assert_eq!(take(&mut second, 4).await.len(), 4, "nothing that the first one had in hand is lost");
}

/// [P4] Counted where they are led, events are counted once over all silos.
#[tokio::test]
async fn a_reader_of_what_is_led_here_counts_each_event_once() {
    let many = Many::start(3, 4);
    let mut readers = Vec::new();
    for id in 1..=3 {
        readers.push(open(many.silo(id), None, ReadFrom::Latest, Scope::Led).await);
    }
    for n in 0..60u64 {
        many.add(n % 3 + 1, &n.to_string(), 1).await.expect("added");
    }
    let mut counted = BTreeSet::new();
    for reader in &mut readers {
        while let Some(batch) = reader.next_batch().now_or_never() {
            for event in batch.expect("a batch") {
                assert!(counted.insert((event.shard, event.sequence)), "counted twice");
            }
        }
    }
    assert_eq!(counted.len(), 60);
}

/// [V2] Old events are trimmed by the owner, and only there.
#[tokio::test]
async fn the_owner_trims() {
    let many = Many::with(3, 1, 3, |options| options.event_retention = Duration::from_secs(3_600));
    many.lead(0, 2);
    for _ in 0..10 {
        many.add(1, "r", 1).await.expect("added");
    }
    let before: Vec<usize> = (1..=3).map(|id| many.node(id).stores[0].housekeepings.load(Ordering::SeqCst)).collect();
    settle().await;
    many.advance(Duration::from_secs(7_200));
    until("trimmed", || many.node(2).stores[0].events_kept() == 0).await;
    settle().await;
    let after: Vec<usize> = (1..=3).map(|id| many.node(id).stores[0].housekeepings.load(Ordering::SeqCst)).collect();
    assert!(after[0] == before[0] && after[1] > before[1] && after[2] == before[2], "{before:?} {after:?}");
}
