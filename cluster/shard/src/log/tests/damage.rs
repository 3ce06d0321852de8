//! What a crash can do is repaired, what it cannot do is refused with its place.

use super::driver::{self, append, entries, entry, id, open, options, put};
use crate::Error;
use crate::log::{Wal, WalOptions, frame, segment};
use crate::testing::Double;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn try_open(disk: &Double) -> Result<Arc<Wal>, Error> {
    Wal::open_on(Arc::new(disk.clone()), options())
}

/// The frames of a segment's file.
fn frames(bytes: &[u8], number: u64) -> Vec<Range<usize>> {
    let mut found = vec![];
    let mut at = segment::DATA_AT as usize;
    while let Ok((_, next)) = frame::read(bytes, number, at) {
        found.push(at..next);
        at = next;
    }
    found
}

/// One segment with the opening and five entries, each in a frame of its own.
fn small() -> (Double, String, Vec<Range<usize>>) {
    let disk = Double::default();
    let wal = open(&disk);
    (0..5).for_each(|i| put(&wal.group(0), entry(0, 1, i, 20)));
    drop(wal);
    let name = segment::name(1);
    let frames = frames(&disk.bytes(&name), 1);
    assert_eq!(frames.len(), 6);
    (disk, name, frames)
}

/// Several segments; tells their numbers, the last of them the newest with a frame.
fn large() -> (Double, Vec<u64>) {
    let disk = Double::default();
    let wal = open(&disk);
    for i in 0..40 {
        put(&wal.group(i % 2), entry(i % 2, 1, u64::from(i / 2), 600));
    }
    // The helper makes the files behind the newest: without one, nothing would tell that the newest is lost.
    let is_there = |n: &u64| disk.names().contains(&segment::name(*n));
    let is_used = |n: &u64| is_there(n) && !frames(&disk.bytes(&segment::name(*n)), *n).is_empty();
    let used = (1..).take_while(is_used).collect::<Vec<_>>();
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there(&(used.len() as u64 + 1)) {
        assert!(Instant::now() < until, "no file behind {used:?}");
        std::thread::yield_now();
    }
    drop(wal);
    assert!(used.len() >= 4, "{used:?}");
    (disk, used)
}

/// [FR-083]
#[test]
fn a_flipped_byte_anywhere_cuts_the_last_batch_or_is_refused_with_its_place() {
    let (disk, name, frames) = small();
    let good = disk.bytes(&name);
    let last = frames.last().unwrap().clone();
    for at in (0..24).chain(segment::DATA_AT as usize..last.end + 16) {
        let disk = disk.copy();
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        disk.replace(&name, bad);
        let frame = frames.iter().find(|frame| frame.contains(&at));
        let offset = frame.map_or(0, |frame| frame.start as u64);
        match (try_open(&disk), frame) {
            // Padding is not covered, and what lies behind the end is nobody's.
            (Ok(wal), _) if at >= last.end || entries(&wal.group(0)).len() == 5 => {
                let padding = frame.is_none_or(|frame| at + frame::ALIGN > frame.end);
                assert!(padding, "byte {at} was not noticed");
            }
            (Ok(wal), Some(frame)) => {
                assert_eq!(*frame, last, "byte {at}");
                assert_eq!(entries(&wal.group(0)), (0..4).map(|i| entry(0, 1, i, 20)).collect::<Vec<_>>());
                // The cut log goes on, and nothing of the cut batch comes back.
                put(&wal.group(0), entry(0, 2, 4, 5));
                drop(wal);
                assert_eq!(entries(&open(&disk).group(0)).last(), Some(&entry(0, 2, 4, 5)));
            }
            (Err(Error::Damaged { file, offset: found, .. }), frame) => {
                assert_ne!(frame, Some(&last), "byte {at}: a crash can do that");
                assert_eq!((file, found), (name.clone(), offset), "byte {at}");
            }
            (Ok(_), None) => panic!("byte {at} of the header was not noticed"),
            (Err(other), _) => panic!("byte {at}: {other}"),
        }
    }
}

/// [FR-083] A file is never shorter than it was made; what was in the missing part may have been acknowledged.
#[test]
fn a_file_cut_short_or_emptied_is_refused() {
    let (disk, name, frames) = small();
    let good = disk.bytes(&name);
    for length in [0, 1, 24, 4_095, 4_096, frames[2].start, frames[2].start + 5, frames[5].end, good.len() - 1] {
        let disk = disk.copy();
        disk.replace(&name, good[..length].to_vec());
        match try_open(&disk) {
            Err(Error::Damaged { file, .. }) => assert_eq!(file, name),
            other => panic!("cut to {length}: {:?}", other.err()),
        }
    }
}

/// [FR-083]
#[test]
fn a_file_that_was_only_half_made_is_removed() {
    let (disk, _, _) = small();
    disk.replace("fill.tmp", vec![1, 2, 3]);
    disk.replace("notes.txt", vec![]);
    assert_eq!(entries(&open(&disk).group(0)).len(), 5);
    assert!(!disk.names().contains(&"fill.tmp".to_owned()));
    assert!(disk.names().contains(&"notes.txt".to_owned()), "not ours");
}

#[test]
fn the_end_of_an_older_segment_is_no_torn_tail() {
    let (disk, used) = large();
    for number in &used {
        let name = segment::name(*number);
        let good = disk.bytes(&name);
        let last = frames(&good, *number).last().unwrap().clone();
        let mut bad = good.clone();
        bad[last.start + frame::HEAD_BYTES + 3] ^= 1;
        let disk = disk.copy();
        disk.replace(&name, bad);
        match try_open(&disk) {
            Ok(_) => assert_eq!(Some(number), used.last()),
            Err(Error::Damaged { file, offset, .. }) => assert_eq!((file, offset), (name, last.start as u64)),
            Err(other) => panic!("{other}"),
        }
    }
}

/// The first frame of the newest segment may be torn: then the segment before it is the newest.
#[test]
fn a_torn_first_batch_of_a_segment_leaves_the_one_before_as_the_newest() {
    let (disk, used) = large();
    let newest = *used.last().unwrap();
    let name = segment::name(newest);
    let mut bytes = disk.bytes(&name);
    let frames = frames(&bytes, newest);
    // Only its first frame is there, and torn.
    bytes[frames[0].end..].fill(0);
    bytes[frames[0].end - 9] ^= 1;
    disk.replace(&name, bytes);
    let wal = open(&disk);
    let found: usize = (0..2).map(|group| entries(&wal.group(group)).len()).sum();
    assert!((30..40).contains(&found), "{found}");
    for group in 0..2 {
        let next = entries(&wal.group(group)).len() as u64;
        (next..next + 20).for_each(|i| put(&wal.group(group), entry(group, 2, i, 600)));
    }
    drop(wal);
    let wal = open(&disk);
    assert_eq!((0..2).map(|group| entries(&wal.group(group)).len()).sum::<usize>(), found + 40);
}

#[test]
fn a_lost_file_is_noticed() {
    let (disk, used) = large();
    for number in &used {
        let disk = disk.copy();
        crate::log::disk::Disk::remove(&disk, &segment::name(*number)).unwrap();
        match try_open(&disk) {
            Err(Error::Damaged { what, .. }) => assert!(what.contains("missing") || what.contains("before"), "{what}"),
            other => panic!("segment {number}: {:?}", other.err()),
        }
    }
}

/// No hole tells of it: the group has nothing behind. The head of the newest segment knows.
#[test]
fn a_lost_file_with_the_end_of_a_group_is_noticed() {
    let disk = Double::default();
    let wal = open(&disk);
    // One segment each.
    put(&wal.group(0), entry(0, 1, 0, 3_000));
    put(&wal.group(2), entry(2, 1, 0, 3_000));
    put(&wal.group(0), entry(0, 1, 1, 3_000));
    drop(wal);
    assert!(disk.bytes(&segment::name(2)).windows(6).any(|bytes| bytes == b"2/1/0/"));
    crate::log::disk::Disk::remove(&disk, &segment::name(2)).unwrap();
    let error = try_open(&disk).err().unwrap();
    assert!(error.to_string().contains("Expected entries of group 2 up to 1, but found them up to 0"), "{error}");
}

#[test]
fn a_newer_format_and_another_number_of_groups_are_told_apart_from_damage() {
    let (disk, name, _) = small();
    let mut newer = disk.bytes(&name);
    newer[8..12].copy_from_slice(&9u32.to_le_bytes());
    let crc = crc32c::crc32c(&newer[0..20]);
    newer[20..24].copy_from_slice(&crc.to_le_bytes());
    let copy = disk.copy();
    copy.replace(&name, newer);
    assert!(matches!(try_open(&copy), Err(Error::NewerFormat { known: 1, found: 9 })));

    put(&open(&disk).group(2), entry(2, 1, 0, 10));
    let fewer = Wal::open_on(Arc::new(disk.clone()), WalOptions { groups: 2, ..options() });
    assert!(matches!(fewer, Err(Error::WrongFolder { .. })), "{:?}", fewer.err());
}

/// Somebody's payload may be a copy of this very file.
#[test]
fn frames_inside_a_payload_are_not_taken_for_frames_behind_a_torn_one() {
    let (disk, name, frames) = small();
    let copy_of_log = disk.bytes(&name)[frames[0].start..frames[5].end].to_vec();
    let wal = open(&disk);
    let last = crate::log::Entry {
        payload: openraft::EntryPayload::Normal(crate::raft::types::Proposal(copy_of_log.into())),
        log_id: id(1, 5),
    };
    put(&wal.group(0), last.clone());
    drop(wal);
    assert_eq!(entries(&open(&disk.copy()).group(0)).last(), Some(&last));
    let mut bytes = disk.bytes(&name);
    let torn = self::frames(&bytes, 1).last().unwrap().clone();
    bytes[torn.start + frame::HEAD_BYTES] ^= 1;
    disk.replace(&name, bytes);
    assert_eq!(entries(&open(&disk).group(0)).len(), 5);
}

/// At run time too: a wrong byte is an error, never another entry.
#[test]
fn an_entry_that_rotted_on_disk_is_an_error_when_it_is_read() {
    let (disk, name, frames) = small();
    let wal = open(&disk);
    let mut bytes = disk.bytes(&name);
    bytes[frames[3].end - 12] ^= 1;
    let file = crate::log::disk::Disk::open(&disk, &name).unwrap();
    file.write_at(&bytes, 0).unwrap();
    use openraft::RaftLogReader;
    let error = futures::executor::block_on(wal.group(0).try_get_log_entries(0..9)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains(&name), "{error}");
    assert!(driver::acked(append(&wal.group(0), vec![entry(0, 1, 5, 10)])).is_ok());
}
