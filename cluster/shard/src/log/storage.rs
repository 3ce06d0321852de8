//! One group's log as openraft wants it.

use super::{Checkpoint, Entry, LogId, Vote};
use crate::raft::types::TypeConfig;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;

/// Handle of one group; clones share the same log.
#[derive(Clone)]
pub struct GroupLog {
    pub(super) group: u32,
}

impl GroupLog {
    pub fn id(&self) -> u32 {
        self.group
    }

    /// As read at open or written later.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        None
    }

    /// As read at open or saved later; never beyond the last entry.
    pub fn committed(&self) -> Option<LogId> {
        None
    }
}

impl RaftLogReader<TypeConfig> for GroupLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        _range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        Ok(vec![])
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(None)
    }
}

impl RaftLogStorage<TypeConfig> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState::default())
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, _vote: &Vote) -> Result<(), io::Error> {
        Ok(())
    }

    async fn save_committed(&mut self, _committed: Option<LogId>) -> Result<(), io::Error> {
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.committed())
    }

    async fn append<I>(&mut self, _entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        callback.io_completed(Err(io::Error::other("in work")));
        Ok(())
    }

    async fn truncate_after(&mut self, _last: Option<LogId>) -> Result<(), io::Error> {
        Ok(())
    }

    async fn purge(&mut self, _upto: LogId) -> Result<(), io::Error> {
        Ok(())
    }
}
