//! One group's part of the log, as memory has it.

use super::cache::Cache;
use super::index::Index;
use super::{Checkpoint, LogId, Vote};

/// Ahead of the disk by what waits for the committer, but for the vote, which is shown when it is durable.
#[derive(Default)]
pub struct Group {
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    pub index: Index,
    pub cache: Cache,
    pub committed: Option<LogId>,
    pub checkpoint: Option<Checkpoint>,
    pub committed_waits: bool,
    pub checkpoint_waits: bool,
}

impl Group {
    /// The last entry, or the purged one if there is none behind it.
    pub fn last(&self) -> Option<LogId> {
        self.index.last().or(self.purged)
    }

    /// The only index that an append may begin with; `None` if any will do.
    pub fn next(&self) -> Option<u64> {
        self.last().map(|id| id.index + 1)
    }
}
