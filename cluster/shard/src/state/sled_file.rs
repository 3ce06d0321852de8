//! Reads sled's file once before sled does, because sled takes a damaged message for the end of its segment: the rows behind
//! it come back as they were some time ago, and nothing says so.
//!
//! The file is a row of segments, each a header (checksum, position in the log, and up to where the log was synced when the
//! segment was begun) and messages (checksum, kind, length, segment number, page, body). What lies below the highest synced
//! position must be whole; above it a crash may have torn the tail, which sled cuts, and then the shard's stamp stands lower
//! than its checkpoint, which [`crate::raft`] notices. The form is that of sled 0.34.7, to which the manifest pins us; it is
//! read from that version's source.

use crate::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// sled's own default, which we leave as it is.
const SEGMENT_BYTES: usize = 512 * 1024;
const SEGMENT_HEADER_BYTES: usize = 20;
/// Where less room than this is left in a segment, no message begins.
const MESSAGE_HEADER_BYTES_MAX: usize = 32;
const CAP: u8 = 2;
const KINDS: std::ops::RangeInclusive<u8> = 1..=11;

const NAME: &str = "db";

/// # Errors
/// [`Error::Damaged`] with the place of the first message or header that is not what was written; [`Error::Storage`] if the
/// file cannot be read. A folder without the file is whole: sled begins it.
pub fn check(dir: &Path) -> Result<(), Error> {
    let io = |error: std::io::Error| Error::Storage(format!("sled state store: {error}"));
    let file = match File::open(dir.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    let length = file.metadata().map_err(io)?.len();
    let mut segments = Vec::new();
    for base in (0..length).step_by(SEGMENT_BYTES) {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        if read_up_to(&file, &mut header, base).map_err(io)? == SEGMENT_HEADER_BYTES && header != [0; 20] {
            let header = Header::read(&header).ok_or_else(|| damaged(base, "the header of a segment"))?;
            segments.push((base, header));
        }
    }
    let synced = segments.iter().map(|(_, header)| header.synced).max().unwrap_or_default();
    let mut segment = vec![0; SEGMENT_BYTES];
    for (base, header) in segments {
        let read = read_up_to(&file, &mut segment, base).map_err(io)?;
        messages(&segment[..read], header.position, synced)
            .map_err(|at| damaged(base + at as u64, "a message of the log"))?;
    }
    Ok(())
}

fn damaged(offset: u64, what: &str) -> Error {
    Error::Damaged { file: format!("sled state store: {NAME}"), offset, what: format!("{what} is damaged") }
}

/// Fills `into` from `at`, or as much of it as the file has.
fn read_up_to(file: &File, into: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], at + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

struct Header {
    position: i64,
    /// -1 before the first sync.
    synced: i64,
}

impl Header {
    fn read(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Option<Self> {
        let number = |at: usize| Some(i64::from_le_bytes(bytes[at..at + 8].try_into().ok()?) ^ i64::MAX);
        let crc = u32::from_le_bytes(bytes[..4].try_into().ok()?);
        (crc == !crc32fast::hash(&bytes[4..])).then_some(Self { position: number(4)?, synced: number(12)? })
    }
}

/// Walks the messages of a segment that lies at `position` of the log, up to `synced`. The error is where one is damaged.
fn messages(segment: &[u8], position: i64, synced: i64) -> Result<(), usize> {
    let number = position as u64 / SEGMENT_BYTES as u64;
    let mut at = SEGMENT_HEADER_BYTES;
    while at + MESSAGE_HEADER_BYTES_MAX <= SEGMENT_BYTES && position.saturating_add(at as i64) < synced {
        let (kind, bytes) = message(segment.get(at..).unwrap_or_default(), number).ok_or(at)?;
        if kind == CAP {
            return Ok(());
        }
        at += bytes;
    }
    Ok(())
}

/// The kind and the length of the message that `bytes` begin with, if it is whole and belongs to the segment.
fn message(bytes: &[u8], segment: u64) -> Option<(u8, usize)> {
    let (crc, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, mut rest) = rest.split_first().filter(|(kind, _)| KINDS.contains(*kind))?;
    let length = usize::try_from(varint(&mut rest)?).ok()?;
    let said = varint(&mut rest)?;
    varint(&mut rest)?;
    let body = rest.get(..length)?;
    let header = bytes.len() - rest.len();
    let mut sum = crc32fast::Hasher::new();
    sum.update(body);
    sum.update(&bytes[4..header]);
    (said == segment && !sum.finalize() == u32::from_le_bytes(*crc)).then_some((*kind, header + length))
}

/// sled's numbers: one byte up to 240, two up to 2287, three up to 67823, then a count of bytes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    let (value, used) = match u64::from(*first) {
        small @ 0..=240 => (small, 0),
        two @ 241..=248 => (240 + 256 * (two - 241) + u64::from(*rest.first()?), 1),
        249 => (2288 + 256 * u64::from(*rest.first()?) + u64::from(*rest.get(1)?), 2),
        more => {
            let used = more as usize - 247;
            let mut number = [0; 8];
            number[..used].copy_from_slice(rest.get(..used)?);
            (u64::from_le_bytes(number), used)
        }
    };
    *bytes = &rest[used..];
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sled::SledStore;
    use crate::state::store::{Change, StateStore};
    use std::fs;

    const STAMP: [u8; 3] = [0xff; 3];
    const ROUNDS: u8 = 60;

    /// Rounds of rows here and there, each with a stamp behind it, as the writer does it.
    fn written(dir: &Path) {
        let store = SledStore::open(dir, 4 << 20).unwrap();
        for round in 0..ROUNDS {
            for n in 0..200_u32 {
                let key = (n * 7919 + u32::from(round) * 104_729) % 3000;
                let value = vec![round; 40 + key as usize * 7 % 900];
                store.write(&[Change::Put(&(key as u16).to_be_bytes(), &value)]).unwrap();
            }
            store.write(&[Change::Put(&STAMP, &[round])]).unwrap();
            store.sync().unwrap();
        }
    }

    /// The rows, or why they cannot be read; sled may panic.
    fn rows(dir: &Path) -> Result<Vec<[Vec<u8>; 2]>, String> {
        std::panic::catch_unwind(|| {
            let store = SledStore::open(dir, 4 << 20).map_err(|error| error.to_string())?;
            let mut rows = Vec::new();
            let all = store.scan(&[], &[0xff; 4], &mut |key, value| {
                rows.push([key.to_vec(), value.to_vec()]);
                true
            });
            all.map(|()| rows).map_err(|error| error.to_string())
        })
        .unwrap_or_else(|_| Err("panicked".into()))
    }

    /// [FR-083] Wherever a byte is flipped: it is noticed, or it cost nothing, or it cost the newest rows and the stamp with
    /// them. sled alone gives old rows behind the newest stamp.
    #[test]
    fn a_flipped_byte_is_noticed_before_sled_gives_old_rows() {
        let dir = tempfile::tempdir().unwrap();
        let origin = dir.path().join("origin");
        written(&origin);
        check(&origin).unwrap();
        let before = rows(&origin).unwrap();
        check(&origin).unwrap();
        let whole = fs::read(origin.join(NAME)).unwrap();
        let conf = fs::read(origin.join("conf")).unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        assert!(end > 3 * SEGMENT_BYTES, "{end} bytes are too few to mean anything");
        let (mut noticed, mut stale) = (0, 0);
        for part in 0..80 {
            let copy = dir.path().join(part.to_string());
            fs::create_dir(&copy).unwrap();
            fs::write(copy.join("conf"), &conf).unwrap();
            let mut bytes = whole.clone();
            bytes[end * part / 80] ^= 0x10;
            fs::write(copy.join(NAME), bytes).unwrap();
            let checked = check(&copy);
            let after = rows(&copy);
            let stamped = after.as_ref().is_ok_and(|after| after.last() == before.last());
            let old = stamped && after != Ok(before.clone());
            match checked {
                Ok(()) => assert!(!old, "part {part}: old rows, and nothing says so"),
                Err(Error::Damaged { .. }) => noticed += 1,
                Err(other) => panic!("part {part}: {other}"),
            }
            stale += usize::from(old);
        }
        println!("{noticed} of 80 noticed; sled alone gives old rows for {stale}");
        assert!(noticed > 20, "{noticed}");
    }

    #[test]
    fn numbers_are_read_as_sled_writes_them() {
        let read = |bytes: &[u8]| {
            let mut rest = bytes;
            varint(&mut rest).map(|value| (value, rest.len()))
        };
        assert_eq!(read(&[240]), Some((240, 0)));
        assert_eq!(read(&[241, 0]), Some((240, 0)));
        assert_eq!(read(&[248, 255, 9]), Some((2287, 1)));
        assert_eq!(read(&[249, 0, 0]), Some((2288, 0)));
        assert_eq!(read(&[250, 1, 2, 3]), Some((0x03_02_01, 0)));
        assert_eq!(read(&[255, 1, 0, 0, 0, 0, 0, 0, 0x80]), Some((0x8000_0000_0000_0001, 0)));
        for short in [&[255, 1, 0][..], &[241], &[]] {
            assert_eq!(read(short), None);
        }
    }

    /// Any file is read without a panic and within its length.
    #[test]
    fn garbage_is_no_store() {
        let dir = tempfile::tempdir().unwrap();
        check(dir.path()).unwrap();
        for length in [0, 1, 19, 20, 33, SEGMENT_BYTES - 1, SEGMENT_BYTES + 25] {
            for fill in [0, 1, 0xff] {
                fs::write(dir.path().join(NAME), vec![fill; length]).unwrap();
                assert_eq!(check(dir.path()).is_ok(), fill == 0 || length < 20, "{length} bytes of {fill}");
            }
        }
    }
}
