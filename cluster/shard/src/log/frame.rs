//! The outer frame: what one sync makes durable.
//!
//! All records of one batch lie in one frame, and a batch is synced before the next is written. So at most one frame of
//! the whole log can be half on disk, and it is the last one: a whole frame behind a bad one proves damage, not a crash.
//!
//! The head carries its own checksum over the segment's number and the frame's place. A frame left over from an earlier
//! life of a recycled file, or a copy of one inside somebody's payload, is therefore no frame here, and the search behind
//! a bad frame costs one comparison a place, whatever the bytes are.
//!
//! ```text
//! magic u32 | body length u32 | CRC32C of body u32 | CRC32C of (segment u64, offset u64, the three before) u32 | body | zeros to 8
//! ```

use std::fmt;

const MAGIC: u32 = 0x4c57_5247;
pub const HEAD_BYTES: usize = 16;
/// Frames start at multiples of this.
pub const ALIGN: usize = 8;

/// Why there is no frame at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFrame {
    /// The end of the file, or no head: what the end of a log looks like.
    Absent,
    /// The magic is there, but the head does not hold.
    BadHead,
    /// The head holds, but the file ends before the body.
    Short,
    BadBody,
}

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "no batch begins here",
            Self::BadHead => "the checksum of a batch's head is wrong",
            Self::Short => "the file ends inside a batch",
            Self::BadBody => "the checksum of a batch is wrong",
        })
    }
}

/// Size in the file of a frame with such a body.
pub fn size(body_bytes: usize) -> usize {
    (HEAD_BYTES + body_bytes).next_multiple_of(ALIGN)
}

/// Turns a buffer of `HEAD_BYTES` reserved bytes and the body into a frame for that place.
pub fn seal(buffer: &mut Vec<u8>, segment: u64, offset: u64) {
    let length = (buffer.len() - HEAD_BYTES) as u32;
    let body_crc = crc32c::crc32c(&buffer[HEAD_BYTES..]);
    buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[4..8].copy_from_slice(&length.to_le_bytes());
    buffer[8..12].copy_from_slice(&body_crc.to_le_bytes());
    let head_crc = head_crc(&buffer[0..12], segment, offset);
    buffer[12..16].copy_from_slice(&head_crc.to_le_bytes());
    buffer.resize(buffer.len().next_multiple_of(ALIGN), 0);
}

/// The body of the frame at `at` and the place behind the frame. `bytes` is the whole file of that segment.
pub fn read(bytes: &[u8], segment: u64, at: usize) -> Result<(&[u8], usize), NoFrame> {
    let head = bytes.get(at..at + HEAD_BYTES).ok_or(NoFrame::Absent)?;
    if word(head, 0) != MAGIC {
        return Err(NoFrame::Absent);
    }
    if word(head, 12) != head_crc(&head[0..12], segment, at as u64) {
        return Err(NoFrame::BadHead);
    }
    let length = word(head, 4) as usize;
    let body = bytes.get(at + HEAD_BYTES..at + HEAD_BYTES + length).ok_or(NoFrame::Short)?;
    if crc32c::crc32c(body) != word(head, 8) {
        return Err(NoFrame::BadBody);
    }
    Ok((body, at + size(length)))
}

/// The first whole frame behind the place `at`.
///
/// It looks at every place of a file at each open, so it is written for speed without an optimizer too: blocks of zeros,
/// most of a fresh file, are passed over at once.
pub fn first_behind(bytes: &[u8], segment: u64, at: usize) -> Option<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let magic = MAGIC.to_le_bytes();
    let mut place = (at + 1).next_multiple_of(ALIGN);
    while place + HEAD_BYTES <= bytes.len() {
        if place.is_multiple_of(ZEROS.len()) && bytes[place..].starts_with(&ZEROS) {
            place += ZEROS.len();
            continue;
        }
        if bytes[place] == magic[0] && bytes[place..].starts_with(&magic) && read(bytes, segment, place).is_ok() {
            return Some(place);
        }
        place += ALIGN;
    }
    None
}

fn head_crc(head: &[u8], segment: u64, offset: u64) -> u32 {
    let crc = crc32c::crc32c(&segment.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &offset.to_le_bytes()), head)
}

fn word(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8], segment: u64, offset: usize) -> Vec<u8> {
        let mut buffer = vec![0; HEAD_BYTES];
        buffer.extend_from_slice(body);
        seal(&mut buffer, segment, offset as u64);
        let mut file = vec![0; offset];
        file.extend(buffer);
        file
    }

    #[test]
    fn a_frame_is_read_at_its_own_place_in_its_own_segment_only() {
        for (body, segment, offset) in [(&b""[..], 1, 0), (b"x", 1, 8), (b"12345678", 7, 4096), (&[0; 5000], 9, 16)] {
            let file = framed(body, segment, offset);
            assert_eq!(file.len() % ALIGN, 0);
            assert_eq!(read(&file, segment, offset), Ok((body, offset + size(body.len()))));
            assert_eq!(read(&file, segment + 1, offset), Err(NoFrame::BadHead), "stale life of a recycled file");
            assert_eq!(read(&[vec![0; 8], file.clone()].concat(), segment, offset + 8), Err(NoFrame::BadHead), "moved");
        }
    }

    #[test]
    fn every_flipped_byte_is_seen_and_named() {
        let good = framed(b"some body of a batch", 3, 8);
        for at in 8..8 + HEAD_BYTES + 20 {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let wanted = match at - 8 {
                0..4 => NoFrame::Absent,
                4..16 => NoFrame::BadHead,
                _ => NoFrame::BadBody,
            };
            assert_eq!(read(&bad, 3, 8), Err(wanted), "byte {at}");
        }
        assert_eq!(read(&good[..30], 3, 8), Err(NoFrame::Short));
        assert_eq!(read(&good[..20], 3, 8), Err(NoFrame::Absent));
        assert_eq!(read(&good, 3, good.len()), Err(NoFrame::Absent));
    }

    #[test]
    fn the_search_behind_a_place_finds_whole_frames_only() {
        let mut file = framed(b"first", 3, 0);
        let second = file.len();
        file = [file, framed(b"second", 3, second)[second..].to_vec()].concat();
        let third = file.len();
        assert_eq!(first_behind(&file, 3, 0), Some(second));
        assert_eq!(first_behind(&file, 3, second), None);
        assert_eq!(first_behind(&file, 4, 0), None);
        file[third - 1] ^= 1;
        assert_eq!(first_behind(&file, 3, 0), Some(second), "padding is not covered");
        file[second + HEAD_BYTES] ^= 1;
        assert_eq!(first_behind(&file, 3, 0), None);
        assert_eq!(first_behind(&[], 3, 0), None);
        for far in [4_096, 8_192, 20_000] {
            assert_eq!(first_behind(&framed(b"far behind zeros", 3, far), 3, 0), Some(far));
        }
    }
}
