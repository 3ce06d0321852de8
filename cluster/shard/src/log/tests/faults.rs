//! After the first failure nothing is acknowledged; what was acknowledged before is there afterwards.

use super::driver::{self, acked, append, entries, entry, id, open, put, vote};
use crate::testing::Double;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Fault = fn(&Double, bool);

#[test]
fn after_a_failed_write_or_sync_nothing_is_acknowledged_although_the_disk_recovers() {
    let faults: [(&str, Fault); 2] = [
        ("sync", |disk, on| disk.fail_syncs(on)),
        ("write", |disk, on| {
            if on {
                disk.tear_next_write()
            }
        }),
    ];
    for (name, fault) in faults {
        let disk = Double::default();
        let wal = open(&disk);
        let log = wal.group(0);
        (0..3).for_each(|i| put(&log, entry(0, 1, i, 10)));
        disk.hold_syncs();
        let before = append(&log, vec![entry(0, 1, 3, 10)]);
        disk.await_held_sync();
        fault(&disk, true);
        let waiting: Vec<_> = (4..10).map(|i| append(&log, vec![entry(0, 1, i, 10)])).collect();
        disk.release_syncs();
        let first = acked(before);
        let refused: Vec<_> = waiting.into_iter().map(acked).collect();
        assert!(refused.iter().all(Result::is_err), "{name}");
        assert_eq!(first.is_ok(), name == "write", "the first batch was written before the write failed");
        fault(&disk, false);
        assert!(wal.stopped().is_some_and(|why| why.contains(name)), "{name}: {:?}", wal.stopped());
        assert!(acked(append(&log, vec![entry(0, 1, 10, 10)])).is_err());
        assert!(acked(append(&wal.group(1), vec![entry(1, 1, 0, 10)])).is_err(), "all groups stop");
        assert!(driver::save_vote(&log, vote(9, 9, false)).is_err());
        assert!(driver::purge(&log, id(1, 1)).is_err());
        assert!(wal.close().is_err());
        drop(wal);

        let wal = open(&disk);
        assert!(wal.unclean());
        let found = entries(&wal.group(0));
        let kept = if first.is_ok() { 4 } else { 3 };
        assert!(found.len() >= kept, "{name}: {}", found.len());
        assert!(found.iter().zip(0..).all(|(found, i)| *found == entry(0, 1, i, 10)));
        assert_eq!(driver::read_vote(&wal.group(0)), None);
        assert_eq!(wal.stopped(), None);
    }
}

/// A failed sync leaves a frame that can be read but is not on disk. Whoever opens next must not build on it as it is.
#[test]
fn a_frame_left_by_a_failed_sync_is_made_durable_before_anything_follows_it() {
    for seed in 0..10 {
        let disk = Double::default();
        let wal = open(&disk);
        put(&wal.group(0), entry(0, 1, 0, 5_000));
        disk.fail_syncs(true);
        assert!(acked(append(&wal.group(0), vec![entry(0, 1, 1, 5_000)])).is_err());
        drop(wal);
        disk.fail_syncs(false);
        let wal = open(&disk);
        let next = entries(&wal.group(0)).len() as u64;
        put(&wal.group(0), entry(0, 1, next, 5_000));
        let mut rng = SmallRng::seed_from_u64(seed);
        let after = disk.after_cut(&mut |n| rng.random_range(0..n));
        drop(wal);
        assert_eq!(entries(&open(&after).group(0)).len() as u64, next + 1);
    }
}

/// [FR-083]
#[test]
fn a_full_disk_stops_the_log_when_it_needs_a_new_file_and_loses_nothing() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    disk.fill(true);
    let mut kept = 0;
    while acked(append(&log, vec![entry(0, 1, kept, 500)])).is_ok() {
        kept += 1;
        assert!(kept < 1_000, "the disk does not run full");
    }
    assert!(kept > 10, "the files that were ready are used: {kept}");
    assert!(wal.stopped().is_some());
    disk.fill(false);
    assert!(acked(append(&log, vec![entry(0, 1, kept, 500)])).is_err(), "not before a new open");
    drop(wal);
    let wal = open(&disk);
    assert_eq!(entries(&wal.group(0)), (0..kept).map(|i| entry(0, 1, i, 500)).collect::<Vec<_>>());
    (kept..kept + 50).for_each(|i| put(&wal.group(0), entry(0, 1, i, 500)));
}

/// [FR-083] Nothing that waits can be written any more, and no segment is filled for it.
#[test]
fn a_log_that_has_stopped_answers_all_that_wait_and_closes_with_the_reason() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    disk.fill(true);
    let waiting: Vec<_> = (0..200).map(|i| append(&log, vec![entry(0, 1, i, 500)])).collect();
    assert!(waiting.into_iter().map(acked).any(|answer| answer.is_err()), "the disk does not run full");
    let why = wal.stopped().unwrap();
    let waiting: Vec<_> = (200..210).map(|i| append(&wal.group(1), vec![entry(1, 1, i, 500)])).collect();
    let error = wal.close().unwrap_err();
    assert!(error.to_string().contains(&why), "{error}");
    assert!(waiting.into_iter().map(acked).all(|answer| answer.is_err()));
    wal.abandon();
}

#[test]
fn a_disk_that_is_full_at_open_says_so() {
    let disk = Double::default();
    disk.fill(true);
    let opened = crate::log::Wal::open_on(std::sync::Arc::new(disk.clone()), driver::options());
    assert!(matches!(opened, Err(crate::Error::Storage(_))), "{:?}", opened.err());
    disk.fill(false);
    put(&open(&disk).group(0), entry(0, 1, 0, 10));
}
