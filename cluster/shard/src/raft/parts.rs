//! What the messages of `wire` are made of. Reading trusts nothing: every length is checked against what is there.

use super::types::{Entry, LeaderTerm, LogId, Proposal, Vote, is_sound};
use crate::log::record::{self, Kind};
use bytes::Bytes;
use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;

/// Version of every message here. A change of any of them is a new one.
const VERSION: u8 = 1;
/// Terms and indexes that can be counted up from for ever. Nobody gets there by counting.
const NUMBER_MAX: u64 = 1 << 62;

pub type Read<T> = Result<T, String>;

pub fn begin() -> Vec<u8> {
    vec![VERSION]
}

pub fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    out.extend_from_slice(&vote.leader_id.term.to_be_bytes());
    out.extend_from_slice(&vote.leader_id.voted_for.to_be_bytes());
    out.push(vote.committed.into());
}

pub fn put_id(out: &mut Vec<u8>, id: Option<LogId>) {
    out.push(id.is_some().into());
    if let Some(id) = id {
        out.extend_from_slice(&id.leader_id.term.to_be_bytes());
        out.extend_from_slice(&id.index.to_be_bytes());
    }
}

pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn begin(body: &'a Bytes) -> Read<Self> {
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

    pub fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A term or an index.
    fn number(&mut self) -> Read<u64> {
        match self.u64()? {
            number if number <= NUMBER_MAX => Ok(number),
            other => Err(format!("Expected a number up to {NUMBER_MAX}, but found {other}")),
        }
    }

    pub fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("Expected 0 or 1, but found {other}")),
        }
    }

    pub fn vote(&mut self) -> Read<Vote> {
        let (term, voted_for) = (self.number()?, self.u64()?);
        Ok(Vote { leader_id: LeaderId { term, voted_for }, committed: self.flag()? })
    }

    pub fn id(&mut self) -> Read<Option<LogId>> {
        if !self.flag()? {
            return Ok(None);
        }
        let (term, index) = (self.number()?, self.number()?);
        Ok(Some(LogId { leader_id: LeaderTerm { term }, index }))
    }

    pub fn entry(&mut self, group: u32, body: &Bytes) -> Read<Entry> {
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
        if let EntryPayload::Membership(membership) = &entry.payload
            && !is_sound(membership)
        {
            return Err(format!("Expected members who vote, but found {membership}"));
        }
        self.0 = &self.0[size..];
        Ok(entry)
    }

    pub fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("Expected the end, but found {} more bytes", self.0.len())) }
    }
}
