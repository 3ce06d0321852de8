//! The ordinary life of a log: written, read, closed, opened; its files made, used, dead and used again.

use super::driver::{self, GROUPS, entries, entry, id, open, options, put, state, vote};
use crate::log::bounds::{PINNED_SEGMENTS_MAX, READY_MAX};
use crate::log::{Checkpoint, Wal};
use crate::testing::Double;
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::sync::Arc;

#[test]
fn what_was_written_is_there_after_a_clean_and_an_unclean_end() {
    let disk = Double::default();
    let checkpoint = Checkpoint { last_applied: Some(id(1, 2)), membership_json: b"{}".to_vec(), extra: b"7".to_vec() };
    let wal = open(&disk);
    assert!(!wal.unclean(), "a new folder is clean");
    let log = wal.group(1);
    (0..5).for_each(|i| put(&log, entry(1, 1, i, 10)));
    driver::save_vote(&log, vote(4, 2, true)).unwrap();
    driver::truncate(&log, Some(id(1, 3))).unwrap();
    put(&log, entry(1, 2, 4, 10));
    driver::purge(&log, id(1, 0)).unwrap();
    driver::save_committed(&log, Some(id(1, 3)));
    wal.checkpoint(1, checkpoint.clone());
    assert_eq!(log.checkpoint(), Some(checkpoint.clone()), "also before it is durable");
    wal.close().unwrap();
    wal.close().unwrap();

    for round in 0..3 {
        let wal = open(&disk);
        assert_eq!(wal.unclean(), round > 0, "round {round}");
        let log = wal.group(1);
        assert_eq!(driver::read_vote(&log), Some(vote(4, 2, true)));
        assert_eq!(state(&log), (Some(id(1, 0)), Some(id(2, 4))));
        assert_eq!(entries(&log), [entry(1, 1, 1, 10), entry(1, 1, 2, 10), entry(1, 1, 3, 10), entry(1, 2, 4, 10)]);
        assert_eq!(log.committed(), Some(id(1, 3)));
        assert_eq!(log.checkpoint(), Some(checkpoint.clone()));
        assert_eq!(state(&wal.group(0)), (None, None));
        assert_eq!(wal.stopped(), None);
        drop(wal);
    }
}

#[test]
fn a_closed_log_refuses_every_call() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    put(&log, entry(0, 1, 0, 10));
    wal.close().unwrap();
    assert!(driver::acked(driver::append(&log, vec![entry(0, 1, 1, 10)])).is_err());
    assert!(driver::save_vote(&log, vote(1, 1, false)).is_err());
    assert!(driver::truncate(&log, None).is_err());
    assert!(driver::purge(&log, id(1, 0)).is_err());
}

#[test]
fn an_append_that_leaves_a_hole_and_a_truncation_into_the_purged_are_refused() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    put(&log, entry(0, 1, 0, 10));
    assert!(driver::acked(driver::append(&log, vec![entry(0, 1, 2, 10)])).is_err());
    assert!(driver::acked(driver::append(&log, vec![entry(0, 1, 0, 10)])).is_err());
    assert!(driver::acked(driver::append(&log, vec![entry(0, 1, 1, 10), entry(0, 1, 3, 10)])).is_err());
    put(&log, entry(0, 1, 1, 10));
    driver::purge(&log, id(1, 0)).unwrap();
    assert!(driver::truncate(&log, None).is_err());
    assert_eq!(entries(&log), [entry(0, 1, 1, 10)]);
    driver::truncate(&log, Some(id(1, 0))).unwrap();
    assert_eq!(state(&log), (Some(id(1, 0)), Some(id(1, 0))));
    assert!(driver::acked(driver::append(&log, vec![entry(0, 1, 5, 10)])).is_err());
}

#[test]
fn entries_larger_than_a_segment_are_kept_too() {
    let disk = Double::default();
    let wal = open(&disk);
    for i in 0..4 {
        put(&wal.group(2), entry(2, 1, i, 30_000));
        put(&wal.group(0), entry(0, 1, i, 100));
    }
    let wanted: Vec<_> = (0..4).map(|i| entry(2, 1, i, 30_000)).collect();
    assert_eq!(entries(&wal.group(2)), wanted);
    drop(wal);
    let wal = open(&disk);
    assert_eq!(entries(&wal.group(2)), wanted);
    driver::purge(&wal.group(2), id(1, 3)).unwrap();
    (4..80).for_each(|i| put(&wal.group(0), entry(0, 1, i, 1_000)));
    drop(wal);
    assert_eq!(entries(&open(&disk).group(0)).len(), 80);
}

/// [K3] A replica goes from a node and comes back: what its first life had purged must not reach into its second, although the
/// segment that tells of its first end is dead and one from before that is alive. Both lives are in one term, so that log ids compare
/// by their indices.
#[test]
fn a_second_life_of_a_group_keeps_its_entries_when_only_the_segment_before_its_first_end_is_left() {
    let disk = Double::default();
    let wal = open(&disk);
    let filler = wal.group(2);
    let mut filled = 0;
    // More than a segment holds, so that another one is begun; nothing of it is kept.
    let mut begin_a_segment = || {
        (0..5).for_each(|i| put(&filler, entry(2, 1, filled + i, 1_000)));
        filled += 5;
        driver::purge(&filler, id(1, filled - 1)).unwrap();
    };
    // Pins the first segment, in which the first life ends at index 26.
    put(&wal.group(0), entry(0, 1, 0, 10));
    let log = wal.group(1);
    put(&log, entry(1, 1, 0, 10));
    driver::purge(&log, id(1, 26)).unwrap();
    begin_a_segment();
    driver::forget(&log).unwrap();
    (0..3).for_each(|i| put(&log, entry(1, 1, i, 10)));
    driver::purge(&log, id(1, 1)).unwrap();
    begin_a_segment();
    (3..6).for_each(|i| put(&log, entry(1, 1, i, 10)));
    driver::purge(&log, id(1, 2)).unwrap();
    // Its head does not name the dead ones any more.
    begin_a_segment();
    drop(wal);

    let log = open(&disk).group(1);
    assert_eq!(state(&log), (Some(id(1, 2)), Some(id(1, 5))));
    assert_eq!(entries(&log), (3..6).map(|i| entry(1, 1, i, 10)).collect::<Vec<_>>());
}

#[test]
fn dead_segments_are_used_again_and_their_old_frames_are_invisible() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    for i in 0..600 {
        put(&log, entry(0, 1, i, 500));
        if i % 10 == 9 {
            driver::purge(&log, id(1, i - 5)).unwrap();
        }
    }
    let stats = wal.stats();
    assert!(stats.bytes > 30 * options().segment_bytes, "{stats:?}");
    assert!(stats.segments <= 3, "{stats:?}");
    drop(wal);
    let files = disk.names().len();
    assert!(files <= 3 + READY_MAX, "{files} files");
    let recycled =
        disk.names().iter().filter(|name| disk.bytes(name).windows(6).any(|bytes| bytes == b"0/1/1/")).count();
    let wal = open(&disk);
    assert_eq!(entries(&wal.group(0)), (595..600).map(|i| entry(0, 1, i, 500)).collect::<Vec<_>>());
    assert_eq!(recycled, 0, "the first segments were overwritten");
}

#[test]
fn an_idle_group_costs_its_own_segment_and_is_named_when_too_many_are_alive() {
    let disk = Double::default();
    let wal = open(&disk);
    put(&wal.group(2), entry(2, 1, 0, 100));
    for i in 0..200 {
        put(&wal.group(0), entry(0, 1, i, 500));
        if i % 10 == 9 {
            driver::purge(&wal.group(0), id(1, i)).unwrap();
        }
    }
    put(&wal.group(1), entry(1, 1, 0, 100));
    assert!(wal.stats().segments <= 3, "{:?}", wal.stats());
    assert_eq!(wal.pinning_group(), None);
    let mut i = 200;
    while wal.stats().segments as usize <= PINNED_SEGMENTS_MAX {
        put(&wal.group(0), entry(0, 1, i, 500));
        i += 1;
    }
    assert_eq!(wal.pinning_group(), Some(2));
    driver::purge(&wal.group(2), id(1, 0)).unwrap();
    driver::purge(&wal.group(0), id(1, i - 1)).unwrap();
    put(&wal.group(1), entry(1, 1, 1, 100));
    assert_eq!(wal.pinning_group(), None);
    drop(wal);
    let wal = open(&disk);
    assert_eq!(state(&wal.group(2)), (Some(id(1, 0)), Some(id(1, 0))));
    assert_eq!(entries(&wal.group(1)), [entry(1, 1, 0, 100), entry(1, 1, 1, 100)]);
}

/// Purging while somebody reads: the read sees the entries or does not, but never an error or a stranger's bytes.
#[test]
fn a_reader_of_old_entries_does_not_meet_a_recycled_file() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    let reader = log.clone();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = done.clone();
    let reading = std::thread::spawn(move || {
        let mut reads = 0;
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            let found = entries(&reader);
            for pair in found.windows(2) {
                assert_eq!(pair[0].log_id.index + 1, pair[1].log_id.index);
            }
            for read in &found {
                assert_eq!(*read, entry(0, 1, read.log_id.index, 500));
            }
            reads += 1;
        }
        reads
    });
    for i in 0..1_500 {
        put(&log, entry(0, 1, i, 500));
        if i % 16 == 15 {
            driver::purge(&log, id(1, i - 8)).unwrap();
        }
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reading.join().unwrap() > 0);
}

#[test]
fn the_cache_stays_below_its_cap_and_reads_go_on_from_the_files() {
    let disk = Double::default();
    let cap = 20_000;
    let wal = Wal::open_on(Arc::new(disk.clone()), crate::log::WalOptions { cache_bytes: cap, ..options() }).unwrap();
    for i in 0..100 {
        (0..GROUPS).for_each(|group| put(&wal.group(group), entry(group, 1, i, 400)));
        assert!(wal.stats().cached_bytes <= cap, "{:?}", wal.stats());
    }
    assert!(wal.stats().cached_bytes > cap / 2, "it is used: {:?}", wal.stats());
    for group in 0..GROUPS {
        assert_eq!(entries(&wal.group(group)), (0..100).map(|i| entry(group, 1, i, 400)).collect::<Vec<_>>());
    }
}

#[test]
fn reads_take_any_range_and_the_limited_one_stops_at_its_bytes() {
    let disk = Double::default();
    let wal = open(&disk);
    let mut log = wal.group(0);
    (0..6).for_each(|i| put(&log, entry(0, 1, i, 600_000)));
    driver::purge(&log, id(1, 0)).unwrap();
    let mut indexes = |range: std::ops::Range<u64>| -> Vec<u64> {
        block_on(log.try_get_log_entries(range)).unwrap().iter().map(|entry| entry.log_id.index).collect()
    };
    assert_eq!(indexes(0..3), [1, 2]);
    assert_eq!(indexes(4..100), [4, 5]);
    assert_eq!(indexes(6..100), [0; 0]);
    assert_eq!(indexes(3..3), [0; 0]);
    let mut log = wal.group(0);
    assert_eq!(block_on(log.try_get_log_entries(2..=3)).unwrap().len(), 2);
    assert_eq!(block_on(log.limited_get_log_entries(1, 6)).unwrap().len(), 1, "at least one");
    let _ = block_on(log.get_log_reader());
}

#[test]
fn bytes_since_an_index_tell_when_to_snapshot() {
    let disk = Double::default();
    let wal = open(&disk);
    (0..10).for_each(|i| put(&wal.group(0), entry(0, 1, i, 100)));
    let all = wal.bytes_since(0, None);
    assert!((1_000..2_000).contains(&all), "{all}");
    assert_eq!(wal.bytes_since(0, Some(4)), all / 2);
    assert_eq!(wal.bytes_since(0, Some(9)), 0);
    assert_eq!(wal.bytes_since(1, None), 0);
    drop(wal);
    assert_eq!(open(&disk).bytes_since(0, None), all);
}

/// A committed pointer may be ahead of the entries that a crash left.
#[test]
fn a_committed_pointer_never_leads_beyond_the_last_entry_after_an_open() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    (0..3).for_each(|i| put(&log, entry(0, 1, i, 10)));
    driver::save_committed(&log, Some(id(1, 9)));
    wal.close().unwrap();
    let wal = open(&disk);
    assert_eq!(wal.group(0).committed(), Some(id(1, 2)));
    // What is appended afterwards was never committed.
    (3..12).for_each(|i| put(&wal.group(0), entry(0, 2, i, 10)));
    drop(wal);
    assert_eq!(open(&disk).group(0).committed(), Some(id(1, 2)));
}
