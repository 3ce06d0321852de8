//! One file of the log.
//!
//! A segment's number is in its name and in the checksum of each frame's head, so a recycled file is renamed and its old
//! content is void. The header never changes after the file was made: magic, format, checksum. A file gets its name only
//! when header and zeros are durable, so a file by that name without a header is damage.

use super::disk::DiskFile;
use crate::Error;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"GRANWAL\n";
/// Version of everything in these files: header, frames and records.
pub const FORMAT: u32 = 1;
/// Frames begin here: the header has a page of its own.
pub const DATA_AT: u64 = 4096;

pub struct Segment {
    pub number: u64,
    pub file: Arc<dyn DiskFile>,
    /// Size of the zero-filled file. One batch that is larger makes its file grow.
    pub capacity: u64,
}

pub fn name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number in a file's name, if it is a segment's.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() >= 12).then(|| digits.parse().ok()).flatten()
}

/// The first page of a file that is made for `capacity` bytes.
pub fn header(capacity: u64) -> Vec<u8> {
    let mut page = vec![0; DATA_AT as usize];
    page[0..8].copy_from_slice(MAGIC);
    page[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    page[12..20].copy_from_slice(&capacity.to_le_bytes());
    let crc = crc32c::crc32c(&page[0..20]);
    page[20..24].copy_from_slice(&crc.to_le_bytes());
    page
}

/// The capacity of the file that has `bytes`, or what is wrong with its header. A file never gets shorter than it was
/// made, so a shorter one has lost its end, and what was acknowledged with it.
pub fn read_header(bytes: &[u8], label: &str) -> Result<u64, Error> {
    let damaged = |what: &str| Error::Damaged { file: label.to_owned(), offset: 0, what: what.to_owned() };
    let head = bytes.get(..DATA_AT as usize).ok_or_else(|| damaged("the segment's header is cut short"))?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if &head[0..8] != MAGIC {
        return Err(damaged("the segment's header is not there"));
    }
    if crc32c::crc32c(&head[0..20]) != word(20) {
        return Err(damaged("the checksum of the segment's header is wrong"));
    }
    if word(8) != FORMAT {
        return Err(Error::NewerFormat { known: FORMAT, found: word(8) });
    }
    let capacity = u64::from(word(12)) | u64::from(word(16)) << 32;
    if (bytes.len() as u64) < capacity {
        let what = format!("Expected {capacity} bytes, but found {}: the file is cut short", bytes.len());
        return Err(Error::Damaged { file: label.to_owned(), offset: bytes.len() as u64, what });
    }
    Ok(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_number_and_other_files_have_none() {
        for n in [1, 42, 999_999_999_999, 1_000_000_000_000] {
            assert_eq!(number(&name(n)), Some(n));
        }
        for other in ["fill.tmp", "1.log", "00000000000x.log", "000000000001.log.bak", ""] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn a_header_is_right_or_damaged_or_newer() {
        let good = header(4_100).into_iter().chain([0; 4]).collect::<Vec<_>>();
        assert!(matches!(read_header(&good, "f"), Ok(4_100)));
        for at in 0..24 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(matches!(read_header(&bad, "f"), Err(Error::Damaged { offset: 0, .. })), "byte {at}");
        }
        let mut newer = good.clone();
        newer[8..12].copy_from_slice(&7u32.to_le_bytes());
        let crc = crc32c::crc32c(&newer[0..20]);
        newer[20..24].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(read_header(&newer, "f"), Err(Error::NewerFormat { known: 1, found: 7 })));
        assert!(matches!(read_header(&good[..4_099], "f"), Err(Error::Damaged { offset: 4_099, .. })), "one byte less");
        assert!(matches!(read_header(&[], "f"), Err(Error::Damaged { offset: 0, .. })), "zero-length file");
    }
}
