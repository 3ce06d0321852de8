//! The overlay against a model, its bound, and what the writer makes of it.

use super::memory::MemoryStore;
use super::overlay::{DIRTY_BYTES_MAX, Mark, Overlay, Range, Slot};
use super::store::{Change, StateStore};
use super::writer::{Bell, Checkpoints, Writer};
use super::{Stop, keys};
use crate::Error;
use crate::raft::types::{LeaderTerm, LogId};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn id(index: u64) -> LogId {
    LogId { leader_id: LeaderTerm::new(1), index }
}

fn key(n: u64) -> Vec<u8> {
    keys::event(0, n)
}

fn put(overlay: &Overlay, index: u64, n: u64, value: impl Into<Bytes>) {
    overlay.apply([(key(n), Slot::Put(value.into()))], |mark| mark.applied = Some(id(index)));
}

/// Counts what reaches it.
#[derive(Default)]
struct Counting {
    rows: MemoryStore,
    puts: AtomicU64,
    refuse: std::sync::atomic::AtomicBool,
}

impl StateStore for Counting {
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        if self.refuse.load(SeqCst) {
            return Err(Error::Storage("no space left".into()));
        }
        let rows = changes.iter().filter(|change| matches!(change, Change::Put(key, _) if !keys::is_stamp(key)));
        self.puts.fetch_add(rows.count() as u64, SeqCst);
        self.rows.write(changes)
    }
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.rows.get(key)
    }
    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        self.rows.scan(from, end, visit)
    }
    fn sync(&self) -> Result<(), Error> {
        self.rows.sync()
    }
    fn verify(&self) -> Result<u64, Error> {
        self.rows.verify()
    }
}

/// Remembers the marks in order.
#[derive(Default)]
struct Kept(Mutex<Vec<Mark>>);

impl Checkpoints for Kept {
    fn keep(&self, marks: Vec<(u32, Option<Mark>)>) -> Result<(), Error> {
        self.0.lock().extend(marks.into_iter().filter_map(|(_, mark)| mark));
        Ok(())
    }
}

struct Rig {
    overlay: Arc<Overlay>,
    store: Arc<Counting>,
    kept: Arc<Kept>,
    stop: Stop,
    writer: Writer,
}

fn rig() -> Rig {
    let (store, kept, bell, stop) =
        (Arc::new(Counting::default()), Arc::new(Kept::default()), Bell::new(), Stop::default());
    let overlay = Arc::new(Overlay::new(0, store.clone(), Mark::origin(), bell.clone(), stop.clone()));
    // Only woken: time plays no part.
    let every = Duration::from_secs(3_600);
    let writer = Writer::start(bell, vec![overlay.clone()], store.clone(), kept.clone(), every, stop.clone()).unwrap();
    Rig { overlay, store, kept, stop, writer }
}

/// Random puts, deletes, freezes and half-done writes; every page of every range is that of the model.
#[test]
fn pages_are_those_of_a_plain_map() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let store = Arc::new(MemoryStore::default());
        let overlay = Overlay::new(0, store.clone(), Mark::origin(), Bell::new(), Stop::default());
        let mut model: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
        let mut frozen = None;
        for index in 0..150 {
            let n = random.random_range(0..24);
            if random.random_ratio(2, 5) {
                model.remove(&key(n));
                overlay.apply([(key(n), Slot::Gone)], |mark| mark.applied = Some(id(index)));
            } else {
                let value = Bytes::from(vec![index as u8]);
                model.insert(key(n), value.clone());
                put(&overlay, index, n, value);
            }
            if random.random_ratio(1, 12) {
                frozen = overlay.freeze();
            }
            if let Some(rows) = &frozen {
                // Some of it reaches the store, which readers must not see by itself.
                for (key, slot) in &rows.rows {
                    let change = slot.value().map_or(Change::Delete(key), |value| Change::Put(key, value));
                    if random.random() {
                        store.write(&[change]).unwrap();
                    }
                }
            }
            if random.random_ratio(1, 10)
                && let Some(rows) = frozen.take()
            {
                for (key, slot) in &rows.rows {
                    let change = slot.value().map_or(Change::Delete(key), |value| Change::Put(key, value));
                    store.write(&[change]).unwrap();
                }
                overlay.done();
            }
            let (from, end, limit) =
                (key(random.random_range(0..24)), key(random.random_range(0..26)), random.random_range(0..9));
            let expected: Vec<_> = if from < end {
                model.range(from.clone()..end.clone()).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect()
            } else {
                vec![]
            };
            assert_eq!(overlay.scan(from, end, limit).unwrap(), expected, "seed {seed} index {index}");
            assert_eq!(overlay.get(&key(n)).unwrap().as_ref(), model.get(&key(n)));
            let (_, one) = overlay.read(&[Range::one(key(n))]).unwrap();
            assert_eq!(one[0].first().map(|row| &row.1), model.get(&key(n)));
        }
    }
}

#[tokio::test]
async fn a_row_written_ten_times_reaches_the_store_once_and_a_short_lived_one_never() {
    let rig = rig();
    for index in 0..10 {
        put(&rig.overlay, index, 1, vec![index as u8]);
    }
    rig.overlay.apply([(key(2), Slot::Fresh(Bytes::from_static(b"x")))], |mark| mark.applied = Some(id(10)));
    rig.overlay.apply([(key(2), Slot::Gone)], |mark| mark.applied = Some(id(11)));
    rig.writer.flush().await.unwrap();
    assert_eq!(rig.store.puts.load(SeqCst), 1);
    assert_eq!(rig.store.get(&key(1)).unwrap(), Some(vec![9]));
    assert_eq!(rig.kept.0.lock().last().and_then(Mark::index), Some(11));
    assert_eq!(rig.overlay.dirty_bytes(), 0);
}

/// Marks only go forward, and each stands behind the rows it speaks of.
#[tokio::test]
async fn checkpoints_never_go_back() {
    let rig = rig();
    for index in 0..200 {
        put(&rig.overlay, index, index % 7, index.to_be_bytes().to_vec());
        if index % 9 == 0 {
            rig.writer.flush().await.unwrap();
            let last = rig.kept.0.lock().last().and_then(Mark::index);
            assert_eq!(last, Some(index));
            assert_eq!(rig.store.get(&key(index % 7)).unwrap(), Some(index.to_be_bytes().to_vec()));
        }
    }
    assert!(rig.kept.0.lock().is_sorted_by_key(Mark::index));
}

/// Apply waits for the writer when too much is unwritten, without blocking its thread, and goes on when there is room.
#[tokio::test]
async fn what_is_unwritten_stays_bounded() {
    let rig = rig();
    let (hold, _) = rig.overlay.hold().await.unwrap();
    hold.written().await.unwrap();
    let mut index = 0;
    while rig.overlay.dirty_bytes() <= DIRTY_BYTES_MAX {
        put(&rig.overlay, index, index, vec![0; 100_000]);
        index += 1;
    }
    let mut room = Box::pin(rig.overlay.room());
    assert!(futures::poll!(&mut room).is_pending());
    assert!(rig.overlay.dirty_bytes() < DIRTY_BYTES_MAX + 200_000);
    drop(hold);
    tokio::time::timeout(Duration::from_secs(20), room).await.unwrap().unwrap();
    assert_eq!(rig.overlay.dirty_bytes(), 0);
}

/// A store that cannot write stops the node; whoever waits is told why.
#[tokio::test]
async fn a_store_that_refuses_is_not_waited_for() {
    let rig = rig();
    rig.store.refuse.store(true, SeqCst);
    for index in 0..100 {
        put(&rig.overlay, index, index, vec![0; 100_000]);
    }
    let waiting = tokio::time::timeout(Duration::from_secs(20), rig.overlay.room()).await.unwrap();
    assert!(matches!(waiting, Err(Error::Storage(_))));
    assert!(rig.writer.flush().await.is_err());
    assert!(rig.stop.why().is_some_and(|why| why.contains("no space left")));
    // What was applied can still be read.
    assert!(rig.overlay.get(&key(5)).unwrap().is_some());
}

/// Readers see whole turns only, whatever the writer does in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_of_one_moment() {
    let rig = rig();
    let overlay = rig.overlay.clone();
    let writing = tokio::task::spawn_blocking(move || {
        for index in 0..3_000u64 {
            let value = Bytes::copy_from_slice(&index.to_be_bytes());
            overlay.apply((0..8).map(|n| (key(n), Slot::Put(value.clone()))), |mark| mark.applied = Some(id(index)));
        }
    });
    let mut reads = 0u64;
    while !writing.is_finished() || reads == 0 {
        let (applied, rows) = rig.overlay.read(&[Range { from: key(0), end: key(9), limit: 99 }]).unwrap();
        let values: Vec<_> = rows[0].iter().map(|row| u64::from_be_bytes(row.1[..].try_into().unwrap())).collect();
        if let Some(applied) = applied {
            assert_eq!(values, [applied; 8]);
        }
        reads += 1;
        if reads.is_multiple_of(3) {
            rig.writer.flush().await.unwrap();
        }
    }
    writing.await.unwrap();
}
