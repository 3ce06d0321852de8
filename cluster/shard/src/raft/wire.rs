//! What replicas say to each other, as bytes: a version, then fields in order, numbers big-endian. An entry lies in a message
//! as it lies in the log, checksum and all, and is taken out without copying its payload.
//!
//! Whoever sends is a node of the cluster, but it may be a newer one, or broken: every length is checked against what is
//! there, and what does not fit is an error that names it.

use super::types::{Entry, LeaderTerm, LogId, Proposal, TypeConfig, Vote};
use crate::log::record::{self, Kind};
use bytes::Bytes;
use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};

/// Version of every message here. A change of any of them is a new one.
const VERSION: u8 = 1;
/// Entries that one append may bring.
const ENTRIES_MAX: u32 = 65_536;

pub type Read<T> = Result<T, String>;

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

// ---- parts ----

fn begin() -> Vec<u8> {
    vec![VERSION]
}

fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    out.extend_from_slice(&vote.leader_id.term.to_be_bytes());
    out.extend_from_slice(&vote.leader_id.voted_for.to_be_bytes());
    out.push(vote.committed.into());
}

fn put_id(out: &mut Vec<u8>, id: Option<LogId>) {
    out.push(id.is_some().into());
    if let Some(id) = id {
        out.extend_from_slice(&id.leader_id.term.to_be_bytes());
        out.extend_from_slice(&id.index.to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn begin(body: &'a Bytes) -> Read<Self> {
        let mut reader = Self(body);
        match reader.u8()? {
            VERSION => Ok(reader),
            other => Err(format!("Expected a message of version {VERSION}, but found {other}")),
        }
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("Expected more bytes, but found the end")?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("Expected 0 or 1, but found {other}")),
        }
    }

    fn vote(&mut self) -> Read<Vote> {
        let (term, voted_for) = (self.u64()?, self.u64()?);
        Ok(Vote { leader_id: LeaderId { term, voted_for }, committed: self.flag()? })
    }

    fn id(&mut self) -> Read<Option<LogId>> {
        if !self.flag()? {
            return Ok(None);
        }
        let (term, index) = (self.u64()?, self.u64()?);
        Ok(Some(LogId { leader_id: LeaderTerm { term }, index }))
    }

    fn entry(&mut self, group: u32, body: &Bytes) -> Read<Entry> {
        let (found, size) = record::read(self.0)?;
        if found.group != group {
            return Err(format!("Expected an entry of shard {group}, but found one of shard {}", found.group));
        }
        let entry = match found.kind {
            // A part of the message itself, which lives as long as the entry does.
            Kind::Normal => {
                Entry { log_id: found.log_id, payload: EntryPayload::Normal(Proposal(body.slice_ref(found.payload))) }
            }
            _ => record::entry(&found).ok_or_else(|| format!("Expected an entry, but found {:?}", found.kind))??,
        };
        self.0 = &self.0[size..];
        Ok(entry)
    }

    fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("Expected the end, but found {} more bytes", self.0.len())) }
    }
}
