//! The log of all groups of a node: one file family, one committer thread. (face; bodies in work)

mod storage;

pub use storage::GroupLog;

use crate::Error;
use crate::raft::types::TypeConfig;
use std::path::Path;
use std::sync::Arc;

pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;

#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Size of one segment file. At least 8 KiB, at most 1 GiB.
    pub segment_bytes: u64,
    /// Bytes of entries of all groups that are kept in memory. Entries not yet on disk are kept beyond it.
    pub cache_bytes: u64,
    /// Groups are numbered from 0 to `groups - 1`.
    pub groups: u32,
}

/// How far a group's written-behind state is on disk: openraft replays from behind it after an unclean stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub last_applied: Option<LogId>,
    /// The stored membership, as JSON, at that entry.
    pub membership_json: Vec<u8>,
    /// Whatever else the state machine needs at that point (counters); not looked into here.
    pub extra: Vec<u8>,
}

/// The shared log of a node.
pub struct Wal {}

impl Wal {
    /// Opens or makes the log in `dir`, which must be locked by the caller. Blocks while it reads everything.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`], [`Error::WrongFolder`] (a group beyond `groups`), [`Error::Storage`].
    pub fn open(_dir: &Path, _options: WalOptions) -> Result<Arc<Self>, Error> {
        Err(Error::Closed)
    }

    /// The log of one group, for openraft.
    ///
    /// # Panics
    /// If `id` is not below `options.groups`: the caller's own shard count made it.
    pub fn group(&self, id: u32) -> GroupLog {
        GroupLog { group: id }
    }

    /// Keeps a checkpoint. Durable with the next batch, at the latest after half a second; a later one replaces it.
    pub fn checkpoint(&self, _group: u32, _checkpoint: Checkpoint) {}

    /// Log bytes of the entries behind `index` (of all entries if `None`).
    pub fn bytes_since(&self, _group: u32, _index: Option<u64>) -> u64 {
        0
    }

    /// The group that holds the oldest segment while more than `PINNED_SEGMENTS_MAX` are alive: snapshot and purge it.
    pub fn pinning_group(&self) -> Option<u32> {
        None
    }

    /// Writes what waits and the marker of a clean end, and stops the threads. Blocks for some milliseconds. Idempotent.
    pub fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    /// `Some(why)` after a failed write or sync: nothing is acknowledged any more.
    pub fn stopped(&self) -> Option<String> {
        None
    }

    /// Whether the last process ended without [`Wal::close`]. A new folder is clean.
    pub fn unclean(&self) -> bool {
        false
    }
}
