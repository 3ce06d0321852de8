//! What the file says so far, group by group, and the head of a new segment that repeats it.
//!
//! A group's memory is ahead of the file, so the committer keeps its own account of the small things. With them at the
//! head of each segment, an older segment matters for its entries alone and may die when it has none.

use super::record::{self, Kind};
use super::{Checkpoint, LogId, Vote};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    /// Index of the first entry ever, as long as nothing was purged.
    pub first: Option<u64>,
    /// Last entry, or the purged one if there is none behind it.
    pub last: Option<LogId>,
    pub committed: Option<LogId>,
    pub checkpoint: Option<Checkpoint>,
}

impl Written {
    pub fn append(&mut self, entries: &[(LogId, u32)]) {
        if self.last.is_none() {
            self.first = entries.first().map(|(id, _)| id.index);
        }
        self.last = entries.last().map(|(id, _)| *id).or(self.last);
    }

    pub fn truncate(&mut self, after: Option<LogId>) {
        self.last = after.max(self.purged);
    }

    /// Older segments may still say otherwise, so it is said at the head of each new one that there is nothing.
    pub fn forget(&mut self) {
        *self = Self { vote: self.vote, checkpoint: Some(Checkpoint::default()), ..Self::default() };
    }

    pub fn purge(&mut self, upto: LogId) {
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(self.purged);
    }
}

/// Writes the head of a segment: the older ones with their ends, and every group.
pub fn push_head(buffer: &mut Vec<u8>, older: &[(u64, u64)], groups: &[Written]) {
    record::push_segments(buffer, older);
    for (group, written) in (0u32..).zip(groups) {
        if let Some(vote) = &written.vote {
            record::push_vote(buffer, group, vote);
        }
        // Also if there is none: an older segment may still tell of one from before the group was forgotten.
        record::push_pointer(buffer, Kind::Purge, group, written.purged);
        record::push_last(buffer, group, written.first, written.last);
        // Also if there is none: an older segment may still say otherwise.
        record::push_pointer(buffer, Kind::Committed, group, written.committed);
        if let Some(checkpoint) = &written.checkpoint {
            record::push_checkpoint(buffer, group, checkpoint);
        }
    }
}
