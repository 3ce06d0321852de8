//! What replicas say to each other, as bytes: a version, then fields in order, numbers big-endian. An entry lies in a message
//! as it lies in the log, checksum and all, and is taken out without copying its payload.
//!
//! Whoever sends is a node of the cluster, but it may be a newer one, or broken: every length is checked against what is
//! there, and what does not fit is an error that names it.

use super::parts::{Read, Reader, begin, put_id, put_vote};
use super::types::{TypeConfig, Vote};
use crate::log::record;
use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};

/// Entries that one append may bring.
const ENTRIES_MAX: u32 = 65_536;

// ---- requests ----

pub fn append(group: u32, request: &AppendEntriesRequest<TypeConfig>) -> std::io::Result<Bytes> {
    let mut out = begin();
    put_vote(&mut out, &request.vote);
    put_id(&mut out, request.prev_log_id);
    put_id(&mut out, request.leader_commit);
    out.extend_from_slice(&(request.entries.len() as u32).to_be_bytes());
    for entry in &request.entries {
        record::push_entry(&mut out, group, entry)?;
    }
    Ok(out.into())
}

pub fn read_append(group: u32, body: &Bytes) -> Read<AppendEntriesRequest<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let (vote, prev_log_id, leader_commit) = (from.vote()?, from.id()?, from.id()?);
    let count = from.u32()?;
    if count > ENTRIES_MAX {
        return Err(format!("Expected at most {ENTRIES_MAX} entries, but found {count}"));
    }
    // Not reserved by what the message says: it may say anything.
    let mut entries = Vec::new();
    let mut next = prev_log_id.map_or(Some(0), |id| id.index.checked_add(1));
    for _ in 0..count {
        let entry = from.entry(group, body)?;
        if Some(entry.log_id.index) != next {
            return Err(format!("Expected entry {next:?}, but found {}", entry.log_id.index));
        }
        let (term, upto) = (entry.log_id.leader_id.term, vote.leader_id.term);
        if term > upto {
            return Err(format!("Expected entries of terms up to {upto}, but found {term}"));
        }
        next = entry.log_id.index.checked_add(1);
        entries.push(entry);
    }
    from.end()?;
    Ok(AppendEntriesRequest { vote, prev_log_id, leader_commit, entries })
}

pub fn vote(request: &VoteRequest<TypeConfig>) -> Bytes {
    let mut out = begin();
    put_vote(&mut out, &request.vote);
    put_id(&mut out, request.last_log_id);
    out.push(request.leadership_transfer.into());
    out.into()
}

pub fn read_vote(body: &Bytes) -> Read<VoteRequest<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let mut request = VoteRequest::new(from.vote()?, from.id()?);
    request.leadership_transfer = from.flag()?;
    from.end()?;
    Ok(request)
}

pub fn transfer(request: &TransferLeaderRequest<TypeConfig>) -> Bytes {
    let mut out = begin();
    put_vote(&mut out, request.from_leader());
    out.extend_from_slice(&request.to_node_id().to_be_bytes());
    put_id(&mut out, request.last_log_id().copied());
    out.into()
}

pub fn read_transfer(body: &Bytes) -> Read<TransferLeaderRequest<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let request = TransferLeaderRequest::new(from.vote()?, from.u64()?, from.id()?);
    from.end()?;
    Ok(request)
}

/// What goes before the bytes of a snapshot file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotHead {
    /// Of the leader that sends it.
    pub vote: Vote,
    pub file_bytes: u64,
}

impl SnapshotHead {
    pub fn write(&self) -> Bytes {
        let mut out = begin();
        put_vote(&mut out, &self.vote);
        out.extend_from_slice(&self.file_bytes.to_be_bytes());
        out.into()
    }

    pub fn read(body: &Bytes) -> Read<Self> {
        let mut from = Reader::begin(body)?;
        let head = Self { vote: from.vote()?, file_bytes: from.u64()? };
        from.end()?;
        Ok(head)
    }
}

// ---- answers ----

const SUCCESS: u8 = 0;
const PARTIAL: u8 = 1;
const CONFLICT: u8 = 2;
const HIGHER_VOTE: u8 = 3;

pub fn append_answer(answer: &AppendEntriesResponse<TypeConfig>) -> Bytes {
    let mut out = begin();
    match answer {
        AppendEntriesResponse::Success => out.push(SUCCESS),
        AppendEntriesResponse::PartialSuccess(upto) => {
            out.push(PARTIAL);
            put_id(&mut out, *upto);
        }
        AppendEntriesResponse::Conflict => out.push(CONFLICT),
        AppendEntriesResponse::HigherVote(vote) => {
            out.push(HIGHER_VOTE);
            put_vote(&mut out, vote);
        }
    }
    out.into()
}

pub fn read_append_answer(body: &Bytes) -> Read<AppendEntriesResponse<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let answer = match from.u8()? {
        SUCCESS => AppendEntriesResponse::Success,
        PARTIAL => AppendEntriesResponse::PartialSuccess(from.id()?),
        CONFLICT => AppendEntriesResponse::Conflict,
        HIGHER_VOTE => AppendEntriesResponse::HigherVote(from.vote()?),
        other => return Err(format!("Expected the answer to an append, but found kind {other}")),
    };
    from.end()?;
    Ok(answer)
}

pub fn vote_answer(answer: &VoteResponse<TypeConfig>) -> Bytes {
    let mut out = begin();
    put_vote(&mut out, &answer.vote);
    put_id(&mut out, answer.last_log_id);
    out.push(answer.vote_granted.into());
    out.into()
}

pub fn read_vote_answer(body: &Bytes) -> Read<VoteResponse<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let answer = VoteResponse { vote: from.vote()?, last_log_id: from.id()?, vote_granted: from.flag()? };
    from.end()?;
    Ok(answer)
}

const TAKEN: u8 = 0;
const VOTE_CHANGED: u8 = 1;
const NOT_FLUSHED: u8 = 2;

pub fn transfer_answer(answer: &TransferLeaderResponse<TypeConfig>) -> Bytes {
    let mut out = begin();
    match answer {
        Ok(()) => out.push(TAKEN),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.push(VOTE_CHANGED);
            put_vote(&mut out, expected);
            put_vote(&mut out, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.push(NOT_FLUSHED);
            put_id(&mut out, *expected);
            put_id(&mut out, *actual);
        }
    }
    out.into()
}

pub fn read_transfer_answer(body: &Bytes) -> Read<TransferLeaderResponse<TypeConfig>> {
    let mut from = Reader::begin(body)?;
    let answer = match from.u8()? {
        TAKEN => Ok(()),
        VOTE_CHANGED => Err(TransferLeaderError::VoteChanged { expected: from.vote()?, actual: from.vote()? }),
        NOT_FLUSHED => Err(TransferLeaderError::LogNotFlushed { expected: from.id()?, actual: from.id()? }),
        other => return Err(format!("Expected the answer to a transfer, but found kind {other}")),
    };
    from.end()?;
    Ok(answer)
}

pub fn snapshot_answer(vote: &Vote) -> Bytes {
    let mut out = begin();
    put_vote(&mut out, vote);
    out.into()
}

pub fn read_snapshot_answer(body: &Bytes) -> Read<Vote> {
    let mut from = Reader::begin(body)?;
    let vote = from.vote()?;
    from.end()?;
    Ok(vote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::{Entry, LeaderTerm, LogId, Proposal};
    use openraft::impls::leader_id_std::LeaderId;
    use openraft::{EntryPayload, Membership};
    use std::collections::{BTreeMap, BTreeSet};

    fn id(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderTerm { term }, index }
    }

    fn of(term: u64, committed: bool) -> Vote {
        Vote { leader_id: LeaderId { term, voted_for: u64::MAX - term }, committed }
    }

    fn request() -> AppendEntriesRequest<TypeConfig> {
        let members: BTreeMap<u64, _> = [(1, Default::default()), (u64::MAX, Default::default())].into();
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(Proposal(Bytes::from_static(b"payload"))),
            EntryPayload::Membership(Membership::new(vec![BTreeSet::from([1, u64::MAX])], members).unwrap()),
            EntryPayload::Normal(Proposal(Bytes::new())),
        ];
        let entries = (8..).zip(payloads).map(|(index, payload)| Entry { log_id: id(3, index), payload });
        AppendEntriesRequest {
            vote: of(3, true),
            prev_log_id: Some(id(2, 7)),
            leader_commit: None,
            entries: entries.collect(),
        }
    }

    /// Every start of a message, and every message with one bit changed, is an error or another message; never a panic.
    fn mangle<T>(body: &Bytes, read: impl Fn(&Bytes) -> Read<T>) {
        assert!(read(body).is_ok());
        for cut in 0..body.len() {
            assert!(read(&body.slice(..cut)).is_err(), "cut at {cut}");
        }
        for bit in 0..8 * body.len() {
            let mut bad = body.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            read(&bad.into()).ok();
        }
        assert!(read(&[body, &b"x"[..]].concat().into()).is_err(), "more than there should be");
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let sent = request();
        let body = append(5, &sent).unwrap();
        let found = read_append(5, &body).unwrap();
        assert_eq!((found.vote, found.prev_log_id, found.leader_commit), (sent.vote, sent.prev_log_id, None));
        assert_eq!(found.entries, sent.entries);
        let EntryPayload::Normal(Proposal(payload)) = &found.entries[1].payload else { panic!("another kind") };
        assert!(body.as_ptr_range().contains(&payload.as_ptr()), "not copied");
        assert!(read_append(6, &body).unwrap_err().contains("shard 5"));
        mangle(&body, |body| read_append(5, body));

        let mut sent = VoteRequest::new(of(9, false), Some(id(8, 100)));
        sent.leadership_transfer = true;
        assert_eq!(read_vote(&vote(&sent)).unwrap(), sent);
        mangle(&vote(&sent), read_vote);
        let sent = TransferLeaderRequest::new(of(9, true), 77, Some(id(9, 4)));
        assert_eq!(read_transfer(&transfer(&sent)).unwrap(), sent);
        mangle(&transfer(&sent), read_transfer);
        let sent = SnapshotHead { vote: of(4, true), file_bytes: 1 << 40 };
        assert_eq!(SnapshotHead::read(&sent.write()).unwrap(), sent);
        mangle(&sent.write(), SnapshotHead::read);
    }

    #[test]
    fn answers_come_back_as_they_were() {
        for sent in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(None),
            AppendEntriesResponse::PartialSuccess(Some(id(1, 2))),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(of(7, false)),
        ] {
            assert_eq!(read_append_answer(&append_answer(&sent)).unwrap(), sent);
            mangle(&append_answer(&sent), read_append_answer);
        }
        for sent in [
            Ok(()),
            Err(TransferLeaderError::VoteChanged { expected: of(1, true), actual: of(2, false) }),
            Err(TransferLeaderError::LogNotFlushed { expected: Some(id(1, 9)), actual: None }),
        ] {
            assert_eq!(read_transfer_answer(&transfer_answer(&sent)).unwrap(), sent);
            mangle(&transfer_answer(&sent), read_transfer_answer);
        }
        let sent = VoteResponse { vote: of(3, false), last_log_id: Some(id(2, 2)), vote_granted: true };
        assert_eq!(read_vote_answer(&vote_answer(&sent)).unwrap(), sent);
        mangle(&vote_answer(&sent), read_vote_answer);
        assert_eq!(read_snapshot_answer(&snapshot_answer(&of(6, true))).unwrap(), of(6, true));
    }

    /// Holes and jumps would meet an assertion further in.
    #[test]
    fn entries_that_do_not_follow_each_other_are_refused() {
        for (at, index) in [(0, 9), (1, 11), (3, 8)] {
            let mut sent = request();
            sent.entries[at].log_id.index = index;
            assert!(read_append(5, &append(5, &sent).unwrap()).is_err(), "{at} {index}");
        }
        let mut last = request();
        last.prev_log_id = Some(id(2, u64::MAX));
        assert!(read_append(5, &append(5, &last).unwrap()).is_err());
        let mut newer = request();
        newer.entries[3].log_id.leader_id.term = 4;
        assert!(read_append(5, &append(5, &newer).unwrap()).is_err(), "of a later term than its leader's");
        let mut nobody = request();
        nobody.entries[2].payload =
            EntryPayload::Membership(serde_json::from_str(r#"{"configs":[[9]],"nodes":{}}"#).unwrap());
        assert!(read_append(5, &append(5, &nobody).unwrap()).is_err(), "a voter who is no member");
        assert!(read_vote(&vote(&VoteRequest::new(of(u64::MAX, false), None))).is_err(), "the last of all terms");
        let mut first = request();
        first.prev_log_id = None;
        assert!(read_append(5, &append(5, &first).unwrap()).is_err());
    }
}
