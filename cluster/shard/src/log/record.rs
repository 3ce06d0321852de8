//! The records inside a frame: what happened to one group.
//!
//! ```text
//! length u32 of what follows the checksum | CRC32C u32 | kind u8 | group u32 | index u64 | term u64 | payload
//! ```
//!
//! A record has its own checksum, though the frame has one, because a single entry is read back alone.

use super::bounds::RECORD_BYTES_MAX;
use super::{Checkpoint, Entry, LeaderTerm, LogId, Vote};
use crate::raft::types::Proposal;
use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;
use std::io;

pub const HEAD_BYTES: usize = 29;

/// Stands where a record points to no entry.
pub const NOWHERE: LogId = LogId { leader_id: LeaderTerm { term: 0 }, index: 0 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Blank = 1,
    Normal = 2,
    Membership = 3,
    Vote = 4,
    Truncate = 5,
    Purge = 6,
    Committed = 7,
    Checkpoint = 8,
    /// In the first frame of a segment: the group's last entry so far.
    Last = 9,
    /// First record of a segment: which older segments are alive, and where each ends.
    Segments = 10,
    /// A process has opened the log.
    Opened = 11,
    /// A process has closed it; nothing follows but the next opening.
    Closed = 12,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        [Blank, Normal, Membership, Vote, Truncate, Purge, Committed, Checkpoint, Last, Segments, Opened, Closed]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub kind: Kind,
    pub group: u32,
    /// Of an entry its own; of a pointer the one it points to.
    pub log_id: LogId,
    pub payload: &'a [u8],
}

/// Appends a record and returns its size.
pub fn push(buffer: &mut Vec<u8>, kind: Kind, group: u32, log_id: LogId, payload: &[&[u8]]) -> usize {
    let start = buffer.len();
    let length = HEAD_BYTES - 8 + payload.iter().map(|part| part.len()).sum::<usize>();
    buffer.extend_from_slice(&(length as u32).to_le_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.push(kind as u8);
    buffer.extend_from_slice(&group.to_le_bytes());
    buffer.extend_from_slice(&log_id.index.to_le_bytes());
    buffer.extend_from_slice(&log_id.leader_id.term.to_le_bytes());
    payload.iter().for_each(|part| buffer.extend_from_slice(part));
    let crc = crc32c::crc32c(&buffer[start + 8..]);
    buffer[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    8 + length
}

/// The record at the start of `bytes` and its size.
pub fn read(bytes: &[u8]) -> Result<(Record<'_>, usize), &'static str> {
    let head = bytes.get(..HEAD_BYTES).ok_or("a record is cut short")?;
    let length = u32::from_le_bytes(array(head, 0)) as usize;
    let content = bytes.get(8..8 + length).filter(|c| c.len() >= HEAD_BYTES - 8).ok_or("a record's length is wrong")?;
    if crc32c::crc32c(content) != u32::from_le_bytes(array(head, 4)) {
        return Err("the checksum of a record is wrong");
    }
    let record = Record {
        kind: Kind::from_byte(content[0]).ok_or("a record is of an unknown kind")?,
        group: u32::from_le_bytes(array(content, 1)),
        log_id: LogId {
            leader_id: LeaderTerm { term: u64::from_le_bytes(array(content, 13)) },
            index: u64::from_le_bytes(array(content, 5)),
        },
        payload: &content[HEAD_BYTES - 8..],
    };
    Ok((record, 8 + length))
}

/// Callers have checked the length.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub fn push_entry(buffer: &mut Vec<u8>, group: u32, entry: &Entry) -> io::Result<usize> {
    let json;
    let (kind, payload): (_, &[u8]) = match &entry.payload {
        EntryPayload::Blank => (Kind::Blank, &[]),
        EntryPayload::Normal(proposal) => (Kind::Normal, &proposal.0),
        EntryPayload::Membership(membership) => {
            json = serde_json::to_vec(membership).map_err(io::Error::other)?;
            (Kind::Membership, &json)
        }
    };
    if payload.len() > RECORD_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("Expected an entry of at most {RECORD_BYTES_MAX} bytes, but found {}", payload.len()),
        ));
    }
    Ok(push(buffer, kind, group, entry.log_id, &[payload]))
}

/// `None` if the record is not an entry.
pub fn entry(record: &Record<'_>) -> Option<Result<Entry, String>> {
    let payload = match record.kind {
        Kind::Blank => EntryPayload::Blank,
        Kind::Normal => EntryPayload::Normal(Proposal(record.payload.to_vec().into())),
        Kind::Membership => match serde_json::from_slice(record.payload) {
            Ok(membership) => EntryPayload::Membership(membership),
            Err(error) => return Some(Err(format!("a membership entry does not parse: {error}"))),
        },
        _ => return None,
    };
    Some(Ok(Entry { log_id: record.log_id, payload }))
}

pub fn push_vote(buffer: &mut Vec<u8>, group: u32, vote: &Vote) {
    let at = LogId { leader_id: LeaderTerm { term: vote.leader_id.term }, index: 0 };
    push(buffer, Kind::Vote, group, at, &[&[u8::from(vote.committed)], &vote.leader_id.voted_for.to_le_bytes()]);
}

pub fn vote(record: &Record<'_>) -> Option<Vote> {
    let node = u64::from_le_bytes(array(record.payload.get(1..9)?, 0));
    let leader_id = LeaderId { term: record.log_id.leader_id.term, voted_for: node };
    Some(Vote { leader_id, committed: record.payload[0] == 1 })
}

/// A record that points to an entry, or to before the first.
pub fn push_pointer(buffer: &mut Vec<u8>, kind: Kind, group: u32, to: Option<LogId>) {
    push(buffer, kind, group, to.unwrap_or(NOWHERE), &[&[u8::from(to.is_some())]]);
}

pub fn pointer(record: &Record<'_>) -> Option<LogId> {
    (record.payload.first() == Some(&1)).then_some(record.log_id)
}

/// First index and last entry of a group.
pub fn push_last(buffer: &mut Vec<u8>, group: u32, first: Option<u64>, last: Option<LogId>) {
    let first = first.unwrap_or(u64::MAX).to_le_bytes();
    push(buffer, Kind::Last, group, last.unwrap_or(NOWHERE), &[&[u8::from(last.is_some())], &first]);
}

/// The first index in a record of the last entry.
pub fn first(record: &Record<'_>) -> Option<u64> {
    let bytes = record.payload.get(1..9)?;
    Some(u64::from_le_bytes(array(bytes, 0))).filter(|first| *first != u64::MAX)
}

pub fn push_checkpoint(buffer: &mut Vec<u8>, group: u32, checkpoint: &Checkpoint) {
    let at = checkpoint.last_applied;
    let length = (checkpoint.membership_json.len() as u32).to_le_bytes();
    let payload: [&[u8]; 4] = [&[u8::from(at.is_some())], &length, &checkpoint.membership_json, &checkpoint.extra];
    push(buffer, Kind::Checkpoint, group, at.unwrap_or(NOWHERE), &payload);
}

pub fn checkpoint(record: &Record<'_>) -> Option<Checkpoint> {
    let length = u32::from_le_bytes(record.payload.get(1..5)?.try_into().ok()?) as usize;
    let rest = &record.payload[5..];
    Some(Checkpoint {
        last_applied: pointer(record),
        membership_json: rest.get(..length)?.to_vec(),
        extra: rest[length..].to_vec(),
    })
}

/// The list of alive segments with their ends.
pub fn push_segments(buffer: &mut Vec<u8>, ends: &[(u64, u64)]) {
    let payload: Vec<u8> =
        ends.iter().flat_map(|(number, end)| [number.to_le_bytes(), end.to_le_bytes()]).flatten().collect();
    push(buffer, Kind::Segments, 0, NOWHERE, &[&payload]);
}

pub fn segments(record: &Record<'_>) -> Vec<(u64, u64)> {
    record
        .payload
        .chunks_exact(16)
        .map(|pair| (u64::from_le_bytes(array(pair, 0)), u64::from_le_bytes(array(pair, 8))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::Membership;
    use std::collections::BTreeSet;

    fn id(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderTerm { term }, index }
    }

    #[test]
    fn entries_come_back_as_they_went() {
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])], []);
        for payload in [
            EntryPayload::Blank,
            EntryPayload::Normal(Proposal(vec![].into())),
            EntryPayload::Normal(Proposal(vec![7; 3000].into())),
            EntryPayload::Membership(membership),
        ] {
            let before = Entry { log_id: id(3, u64::MAX), payload };
            let mut buffer = vec![];
            let size = push_entry(&mut buffer, 31, &before).unwrap();
            assert_eq!(size, buffer.len());
            buffer.push(0xff);
            let (record, read_size) = read(&buffer).unwrap();
            assert_eq!((record.group, read_size), (31, size));
            assert_eq!(entry(&record).unwrap().unwrap(), before);
        }
    }

    #[test]
    fn pointers_votes_checkpoints_and_lists_come_back() {
        let mut buffer = vec![];
        let first = Checkpoint::default();
        let second =
            Checkpoint { last_applied: Some(id(2, 8)), membership_json: b"{}".to_vec(), extra: b"more".to_vec() };
        push_pointer(&mut buffer, Kind::Purge, 1, Some(id(0, 0)));
        push_pointer(&mut buffer, Kind::Truncate, 1, None);
        push_vote(&mut buffer, 2, &Vote { leader_id: LeaderId { term: 5, voted_for: 6 }, committed: true });
        push_checkpoint(&mut buffer, 3, &first);
        push_checkpoint(&mut buffer, 3, &second);
        push_segments(&mut buffer, &[(1, 4096), (9, 70_000)]);
        let mut at = 0;
        let mut next = || {
            let (record, size) = read(&buffer[at..]).unwrap();
            at += size;
            record
        };
        assert_eq!(pointer(&next()), Some(id(0, 0)));
        assert_eq!(pointer(&next()), None);
        assert_eq!(vote(&next()), Some(Vote { leader_id: LeaderId { term: 5, voted_for: 6 }, committed: true }));
        assert_eq!(checkpoint(&next()), Some(first));
        assert_eq!(checkpoint(&next()), Some(second));
        assert_eq!(segments(&next()), [(1, 4096), (9, 70_000)]);
        assert_eq!(at, buffer.len());
    }

    #[test]
    fn broken_records_are_refused_and_never_panic() {
        let mut good = vec![];
        push_checkpoint(&mut good, 3, &Checkpoint { membership_json: b"abc".to_vec(), ..Default::default() });
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x81;
            assert!(read(&bad).is_err(), "byte {at}");
        }
        let mut short = vec![];
        push(&mut short, Kind::Checkpoint, 0, id(1, 1), &[&[1, 9, 0, 0, 0]]);
        assert_eq!(checkpoint(&read(&short).unwrap().0), None);
    }
}
