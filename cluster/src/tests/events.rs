//! Readers of events: in order, without gaps, from where they stood.

use crate::testing::{Cluster, next, settle, toy, until};
use crate::{DeliveredEvent, EventReader, ReadEvents, ReadFrom, Scope};
use futures::FutureExt;
use grain_contract::Code;
use std::collections::HashMap;
use std::time::Duration;

fn read(tenant: &str, name: Option<&str>, from: ReadFrom) -> ReadEvents {
    ReadEvents { tenant: Some(tenant.into()), cursor_name: name.map(str::to_owned), from, scope: Scope::Cluster }
}

async fn open(cluster: &Cluster, name: Option<&str>, from: ReadFrom) -> EventReader {
    cluster.silo.events(read("acme", name, from)).await.expect("a reader")
}

async fn take(reader: &mut EventReader, count: usize) -> Vec<DeliveredEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next("events", reader.next_batch()).await.expect("a batch"));
    }
    events
}

fn ids(events: &[DeliveredEvent]) -> Vec<(u32, u64)> {
    events.iter().map(|event| (event.shard, event.sequence)).collect()
}

/// [V1, V2, FR-119, FR-004] While writers write: every event, each once, in order per grain.
#[tokio::test]
async fn events_come_in_order_per_grain_while_they_are_written() {
    let cluster = Cluster::start(4);
    let mut reader = open(&cluster, None, ReadFrom::Earliest).await;
    let writers = async {
        for _ in 0..50 {
            for key in ["a", "b", "c", "d", "e", "f"] {
                cluster.add(key, 1).await.expect("added");
            }
        }
    };
    let (events, ()) = tokio::join!(take(&mut reader, 300), writers);
    let mut last: HashMap<String, u64> = HashMap::new();
    for event in &events {
        let sum = toy::number(&event.body);
        let before = last.insert(event.grain.key.to_string(), sum).unwrap_or(0);
        assert_eq!(sum, before + 1, "{}", event.grain);
    }
    assert_eq!(events.len(), 300);
    assert!(reader.next_batch().now_or_never().is_none(), "and no more");
}

/// [V2, FR-059] From any event's cursor the rest comes, with the same numbers.
#[tokio::test]
async fn reading_goes_on_behind_any_cursor_with_the_same_numbers() {
    let cluster = Cluster::start(4);
    for n in 0..60 {
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    let mut reader = open(&cluster, None, ReadFrom::Earliest).await;
    let all = take(&mut reader, 60).await;
    for at in [0, 17, 58] {
        let mut again = open(&cluster, None, ReadFrom::Cursor(all[at].cursor.clone())).await;
        let mut rest = ids(&take(&mut again, 59 - at).await);
        let mut expected = ids(&all[at + 1..]);
        rest.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rest, expected);
    }
}

#[tokio::test]
async fn from_latest_only_what_comes_later() {
    let cluster = Cluster::start(2);
    cluster.add("a", 1).await.expect("added");
    let mut reader = open(&cluster, None, ReadFrom::Latest).await;
    cluster.add("a", 1).await.expect("added");
    assert_eq!(toy::number(&take(&mut reader, 1).await[0].body), 2);
}

/// [V2, FR-189] After a crash at most what was acknowledged in the last second comes again, with the same ids.
#[tokio::test]
async fn a_named_cursor_survives_a_crash() {
    let mut cluster = Cluster::start(2);
    let mut reader = open(&cluster, Some("audit"), ReadFrom::Earliest).await;
    for n in 0..40 {
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    let seen = take(&mut reader, 40).await;
    reader.acknowledge(&seen[29].cursor).expect("acknowledged");
    let cursors = |cluster: &Cluster| -> u64 {
        let sum = |s: &std::sync::Arc<crate::testing::memory::MemoryStore>| {
            crate::store::Store::cursors(&**s)
                .expect("cursors")
                .iter()
                .filter(|c| !c.name.ends_with("reader"))
                .map(|c| c.sequence)
                .sum::<u64>()
        };
        cluster.stores.iter().map(sum).sum()
    };
    until("kept", || cursors(&cluster) >= 32).await;
    cluster.restart(Duration::from_secs(1));
    let mut reader = open(&cluster, Some("audit"), ReadFrom::Latest).await;
    let mut again = ids(&take(&mut reader, 10).await);
    let mut expected = ids(&seen[30..]);
    again.sort_unstable();
    expected.sort_unstable();
    assert_eq!(again, expected);
}

/// [FR-120] Events of others move a filtered cursor on, too.
#[tokio::test]
async fn a_filtered_reader_moves_past_what_is_not_for_it() {
    let cluster = Cluster::start(2);
    let mut reader = cluster.silo.events(read("b", Some("mine"), ReadFrom::Earliest)).await.expect("a reader");
    for n in 0..1_000 {
        cluster.add(&n.to_string(), 1).await.expect("added");
    }
    assert!(next("nothing", async { reader.next_batch().now_or_never().is_none() }).await);
    let waiting = tokio::spawn(async move { reader.next_batch().await });
    let position = |cluster: &Cluster| -> u64 {
        let at = |s: &std::sync::Arc<crate::testing::memory::MemoryStore>| {
            crate::store::Store::cursors(&**s)
                .expect("cursors")
                .iter()
                .filter(|c| !c.name.ends_with("reader"))
                .map(|c| c.sequence)
                .sum::<u64>()
        };
        cluster.stores.iter().map(at).sum()
    };
    until("the cursor is behind the last", || position(&cluster) == 1_002).await;
    cluster.call_of("b", "k", toy::ADD, &1u64.to_le_bytes()).await.expect("added");
    let events = next("its own event", waiting).await.expect("joined").expect("a batch");
    assert_eq!((events.len(), events[0].grain.tenant.as_str()), (1, "b"));
}

#[tokio::test]
async fn a_second_reader_takes_the_named_cursor_over() {
    let cluster = Cluster::start(2);
    let mut first = open(&cluster, Some("audit"), ReadFrom::Earliest).await;
    let waiting = tokio::spawn(async move { first.next_batch().await.map(|_| ()).map_err(|r| r.code) });
    settle().await;
    let mut second = open(&cluster, Some("audit"), ReadFrom::Earliest).await;
    assert_eq!(next("the end of the first", waiting).await.expect("joined"), Err(Code::WrongState));
    cluster.add("a", 1).await.expect("added");
    assert_eq!(take(&mut second, 1).await.len(), 1);
}

#[tokio::test]
async fn what_the_retention_trimmed_is_skipped_and_counted() {
    let cluster = Cluster::with(1, |options| options.event_retention = Duration::from_secs(3_600));
    let mut slow = open(&cluster, Some("slow"), ReadFrom::Earliest).await;
    for _ in 0..10 {
        cluster.add("a", 1).await.expect("added");
    }
    cluster.clock.advance(Duration::from_secs(4_000));
    until("trimmed", || cluster.stores[0].events_kept() == 0).await;
    cluster.add("a", 1).await.expect("added");
    let events = take(&mut slow, 1).await;
    assert_eq!((toy::number(&events[0].body), slow.skipped()), (11, 10));
}

#[tokio::test]
async fn by_count_the_oldest_are_trimmed() {
    let cluster = Cluster::with(1, |options| options.events_kept_max = 100);
    for _ in 0..150 {
        cluster.add("a", 1).await.expect("added");
    }
    cluster.clock.advance(Duration::from_secs(61));
    until("trimmed", || cluster.stores[0].events_kept() == 100).await;
}

#[tokio::test]
async fn cursors_that_cannot_be_are_refused() {
    let cluster = Cluster::start(2);
    cluster.add("a", 1).await.expect("added");
    for text in ["", "1.1", "1.900.1", "2.1.1", "1.1.1.1"] {
        let refused = cluster.silo.events(read("acme", None, ReadFrom::Cursor(text.to_owned()))).await;
        assert_eq!(refused.err().map(|r| r.code), Some(Code::Invalid), "{text:?}");
    }
    let reader = open(&cluster, None, ReadFrom::Earliest).await;
    assert_eq!(reader.acknowledge("1.2.2").map_err(|r| r.code), Err(Code::Invalid), "not delivered yet");
    assert_eq!(
        cluster.silo.events(read("acme", Some(""), ReadFrom::Latest)).await.err().map(|r| r.code),
        Some(Code::Invalid)
    );
}
