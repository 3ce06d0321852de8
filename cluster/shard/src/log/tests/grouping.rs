//! One sync serves all who wait, and small things ride along.

use super::driver::{self, GROUPS, acked, append, entry, id, open, put};
use crate::log::Checkpoint;
use crate::testing::Double;
use std::time::{Duration, Instant};

/// [K3]
#[test]
fn appends_of_all_groups_that_wait_share_one_sync() {
    let disk = Double::default();
    let wal = open(&disk);
    (0..GROUPS).for_each(|group| put(&wal.group(group), entry(group, 1, 0, 10)));
    disk.hold_syncs();
    let first = append(&wal.group(0), vec![entry(0, 1, 1, 10)]);
    disk.await_held_sync();
    let before = wal.stats();
    let mut waiting = vec![first];
    for i in 1..60 {
        for group in 0..GROUPS {
            let index = if group == 0 { i + 1 } else { i };
            waiting.push(append(&wal.group(group), vec![entry(group, 1, index, 10)]));
        }
    }
    disk.release_syncs();
    let count = waiting.len() as u64;
    assert!(waiting.into_iter().map(acked).all(|result| result.is_ok()));
    let after = wal.stats();
    // The one that was held, and one for all the others, or two if they fill a segment.
    assert!(after.syncs - before.syncs <= 3, "{before:?} {after:?}");
    assert_eq!(after.requests - before.requests, count);
}

#[test]
fn a_committed_pointer_makes_no_sync_of_its_own_while_others_write() {
    let disk = Double::default();
    let wal = open(&disk);
    let log = wal.group(0);
    let begun = Instant::now();
    let before = wal.stats().syncs;
    for i in 0..50 {
        put(&log, entry(0, 1, i, 10));
        driver::save_committed(&log, Some(id(1, i)));
        wal.checkpoint(1, Checkpoint { extra: vec![i as u8], ..Default::default() });
    }
    let syncs = wal.stats().syncs - before;
    let allowed = 50 + begun.elapsed().as_millis() as u64 / 500 + 1;
    assert!(syncs <= allowed, "{syncs} syncs, {allowed} allowed");
    // What rode along with the last append is on disk; the very last pointer waits.
    let wal = open(&disk.copy());
    assert!(wal.group(0).committed() >= Some(id(1, 48)), "{:?}", wal.group(0).committed());
    assert!(wal.group(1).checkpoint().is_some_and(|checkpoint| checkpoint.extra >= vec![48]));
}

#[test]
fn a_pointer_that_finds_no_batch_is_written_after_a_while() {
    let disk = Double::default();
    let wal = open(&disk);
    put(&wal.group(0), entry(0, 1, 0, 10));
    let before = wal.stats().syncs;
    driver::save_committed(&wal.group(0), Some(id(1, 0)));
    let deadline = Instant::now() + Duration::from_secs(30);
    while wal.stats().syncs == before {
        assert!(Instant::now() < deadline, "the pointer was never written");
        std::thread::yield_now();
    }
    assert_eq!(open(&disk.copy()).group(0).committed(), Some(id(1, 0)));
    // And then it is quiet.
    assert_eq!(wal.stats().syncs, before + 1);
}
