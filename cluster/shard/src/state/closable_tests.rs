//! Stores that panic or hang under the one face that the rest of the node sees.

use super::Stop;
use super::closable::Closable;
use super::memory::MemoryStore;
use super::overlay::{Mark, Overlay, Slot};
use super::store::{Change, StateStore};
use super::writer::{Bell, Checkpoints, Writer};
use crate::Error;
use crate::raft::types::{LeaderTerm, LogId};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than all that an end of a stopped node waits for, shorter than one wait of an orderly end.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A memory store whose calls go wrong when they meet a certain key.
#[derive(Default)]
struct Bad {
    rows: MemoryStore,
    gate: Arc<Gate>,
    hangs_at_end: bool,
}

/// Holds calls back until it is opened.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |(open, _)| !*open);
    }

    fn await_somebody(&self) {
        let mut state = self.state.lock();
        let late = self.changed.wait_while_for(&mut state, |(_, waiting)| *waiting == 0, Duration::from_secs(30));
        assert!(!late.timed_out(), "nobody came");
    }

    fn open(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }
}

impl Bad {
    fn meet(&self, key: &[u8]) {
        match key {
            b"panic" => panic!("no such page"),
            b"hang" => self.gate.wait(),
            _ => {}
        }
    }
}

impl StateStore for Bad {
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        for change in changes {
            let (Change::Put(key, _) | Change::Delete(key)) = change;
            self.meet(key);
        }
        self.rows.write(changes)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.meet(key);
        self.rows.get(key)
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        self.meet(from);
        self.rows.scan(from, end, visit)
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn verify(&self) -> Result<u64, Error> {
        self.rows.verify()
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if self.hangs_at_end {
            self.gate.wait();
        }
    }
}

type Call = fn(&Closable) -> Result<(), Error>;

/// [FR-083] sled panics on much of what it cannot read.
#[test]
fn a_panic_of_the_store_is_damage_and_stops_the_node() {
    let calls: [(&str, Call); 3] = [
        ("get", |store| store.get(b"panic").map(drop)),
        ("scan", |store| store.scan(b"panic", b"z", &mut |_, _| true)),
        ("write", |store| store.write(&[Change::Delete(b"panic")])),
    ];
    for (name, call) in calls {
        let stop = Stop::default();
        let store = Closable::new(Arc::new(Bad::default()), stop.clone());
        store.write(&[Change::Put(b"k", b"v")]).unwrap();
        assert_eq!(stop.why(), None);
        let error = call(&store).unwrap_err();
        assert!(matches!(&error, Error::Damaged { what, .. } if what.contains("no such page")), "{name}: {error}");
        assert!(stop.why().is_some_and(|why| why.contains("no such page")), "{name}: {:?}", stop.why());
        assert_eq!(store.get(b"k").unwrap(), Some(b"v".to_vec()), "{name}: other rows can be read");
        store.close().unwrap();
        assert!(matches!(store.get(b"k"), Err(Error::Closed)));
    }
}

/// sled's end waits for its own threads, for ever if one of them has panicked.
#[test]
fn a_store_that_does_not_end_is_not_waited_for_when_the_node_has_stopped() {
    let (stop, gate) = (Stop::default(), Arc::new(Gate::default()));
    let bad = Bad { rows: MemoryStore::default(), gate: gate.clone(), hangs_at_end: true };
    let store = Closable::new(Arc::new(bad), stop.clone());
    stop.because("the disk is full");
    let begun = Instant::now();
    let error = store.close().unwrap_err();
    assert!(begun.elapsed() < AT_ONCE);
    assert!(error.to_string().contains("did not end"), "{error}");
    store.close().unwrap();
    gate.open();
}

struct Kept;

impl Checkpoints for Kept {
    fn keep(&self, _: Vec<(u32, Option<Mark>)>) -> Result<(), Error> {
        Ok(())
    }
}

/// A writer that hangs in the store holds up neither itself nor the close of the store behind it.
#[test]
fn a_writer_that_hangs_in_the_store_is_not_waited_for_when_the_node_has_stopped() {
    let (stop, gate, bell) = (Stop::default(), Arc::new(Gate::default()), Bell::new());
    let bad = Bad { rows: MemoryStore::default(), gate: gate.clone(), hangs_at_end: false };
    let store = Arc::new(Closable::new(Arc::new(bad), stop.clone()));
    let overlay = Arc::new(Overlay::new(0, store.clone(), Mark::origin(), bell.clone(), stop.clone()));
    let every = Duration::from_secs(60);
    let writer =
        Writer::start(bell.clone(), vec![overlay.clone()], store.clone(), Arc::new(Kept), every, stop.clone()).unwrap();
    overlay.apply([(b"hang".to_vec(), Slot::Put("v".into()))], |mark| {
        mark.applied = Some(LogId { leader_id: LeaderTerm::new(1), index: 1 });
    });
    bell.ring();
    gate.await_somebody();
    stop.because("the disk is full");
    let begun = Instant::now();
    writer.end();
    let error = store.close().unwrap_err();
    assert!(begun.elapsed() < AT_ONCE);
    assert!(error.to_string().contains("did not end"), "{error}");
    assert_eq!(stop.why().as_deref(), Some("the disk is full"), "the first reason stays");
    gate.open();
    writer.end();
    store.close().unwrap();
}
