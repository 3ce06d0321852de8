//! What every backend must do, asked of each.

use super::fjall::FjallStore;
use super::memory::MemoryStore;
use super::sled::{PART_BYTES, SledStore};
use super::store::{Change, StateStore, wipe_shard};
use super::{keys, value};
use std::path::Path;

type Open = fn(&Path) -> Box<dyn StateStore>;

/// Backends, and whether they remember.
const BACKENDS: [(&str, Open, bool); 3] = [
    ("memory", |_| Box::new(MemoryStore::default()), false),
    ("sled", |dir| Box::new(SledStore::open(dir, 4 << 20).unwrap()), true),
    ("fjall", |dir| Box::new(FjallStore::open(dir, 4 << 20).unwrap()), true),
];

fn each(test: impl Fn(&str, &dyn Fn() -> Box<dyn StateStore>, bool)) {
    for (name, open, remembers) in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        test(name, &|| open(&dir.path().join("state")), remembers);
    }
}

fn all(store: &dyn StateStore, from: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    store
        .scan(from, end, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    rows
}

#[test]
fn changes_apply_in_order() {
    each(|name, open, _| {
        let store = open();
        store
            .write(&[
                Change::Put(b"a", b"1"),
                Change::Put(b"b", b""),
                Change::Put(b"a", b"2"),
                Change::Put(b"c", b"3"),
                Change::Delete(b"c"),
                Change::Delete(b"never"),
            ])
            .unwrap();
        assert_eq!(store.get(b"a").unwrap(), Some(b"2".to_vec()), "{name}");
        assert_eq!(store.get(b"b").unwrap(), Some(vec![]), "{name}");
        assert_eq!(store.get(b"c").unwrap(), None, "{name}");
    });
}

#[test]
fn scans_are_ordered_bounded_and_stop_when_told() {
    each(|name, open, _| {
        let store = open();
        for key in ["b", "a", "ab", "c", "d"] {
            store.write(&[Change::Put(key.as_bytes(), key.as_bytes())]).unwrap();
        }
        let keys = |from: &str, end: &str| -> Vec<String> {
            let rows = all(&*store, from.as_bytes(), end.as_bytes());
            rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
        };
        assert_eq!(keys("a", "d"), ["a", "ab", "b", "c"], "{name}");
        assert_eq!(keys("aa", "b"), ["ab"], "{name}");
        assert!(keys("c", "c").is_empty() && keys("d", "a").is_empty(), "{name}");
        let mut seen = 0;
        store
            .scan(b"a", b"z", &mut |_, _| {
                seen += 1;
                seen < 2
            })
            .unwrap();
        assert_eq!(seen, 2, "{name}");
    });
}

#[test]
fn values_of_any_size_come_back_and_leave_nothing_behind() {
    each(|name, open, _| {
        let store = open();
        let value = |bytes: usize, seed: u8| (0..bytes).map(|n| (n / 7) as u8 ^ seed).collect::<Vec<_>>();
        for bytes in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES + 9, 3] {
            for seed in [1, 2, 2] {
                let value = value(bytes, seed);
                store.write(&[Change::Put(b"k", &value)]).unwrap();
                assert_eq!(store.get(b"k").unwrap().as_ref(), Some(&value), "{name} {bytes}");
                assert_eq!(all(&*store, b"a", b"z"), [(b"k".to_vec(), value)], "{name} {bytes}");
            }
        }
        // Parts of replaced values are gone, too.
        assert_eq!(store.verify().unwrap(), 1, "{name}");
        store.write(&[Change::Put(b"k", &value(200_000, 3)), Change::Delete(b"k")]).unwrap();
        assert_eq!(store.verify().unwrap(), 0, "{name}");
    });
}

#[test]
fn what_was_synced_is_there_after_reopening() {
    each(|name, open, remembers| {
        if !remembers {
            return;
        }
        let large = vec![9; 3 * PART_BYTES];
        for round in 0..3u8 {
            let store = open();
            if round > 0 {
                assert_eq!(store.get(b"n").unwrap(), Some(vec![round - 1]), "{name}");
                assert_eq!(store.get(b"large").unwrap().as_ref(), Some(&large), "{name}");
            }
            store.write(&[Change::Put(b"n", &[round]), Change::Put(b"large", &large)]).unwrap();
            store.sync().unwrap();
            assert_eq!(store.verify().unwrap(), if name == "sled" { 5 } else { 2 }, "{name}");
        }
    });
}

#[test]
fn wiping_a_shard_leaves_the_others() {
    each(|name, open, _| {
        let store = open();
        let large = vec![1; 2 * PART_BYTES];
        for shard in [0, 1, 2] {
            for n in 0..1_200u64 {
                store.write(&[Change::Put(&keys::event(shard, n), b"e")]).unwrap();
            }
            store.write(&[Change::Put(&keys::head(shard, b"g"), &large)]).unwrap();
        }
        let before = store.verify().unwrap();
        wipe_shard(&*store, 1).unwrap();
        for shard in [0, 1, 2] {
            let rows: usize = keys::shard_ranges(shard).map(|(from, end)| all(&*store, &from, &end).len()).sum();
            assert_eq!(rows, if shard == 1 { 0 } else { 1_201 }, "{name}");
        }
        assert_eq!(store.verify().unwrap() * 3, before * 2, "{name}");
    });
}

#[test]
fn a_changed_byte_is_noticed() {
    let sealed = value::seal(b"hello");
    assert_eq!(value::open("store", b"k", &sealed).unwrap(), b"hello");
    for at in 0..sealed.len() {
        let mut bad = sealed.clone();
        bad[at] ^= 1;
        assert!(value::open("store", b"k", &bad).is_err());
    }
    for short in 0..4 {
        assert!(value::open("store", b"k", &sealed[..short]).is_err());
    }
}
