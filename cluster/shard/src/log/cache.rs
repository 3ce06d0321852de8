//! The newest entries of one group, in memory: always a tail of the log, so two numbers tell what is in it.
//!
//! An entry that is not on disk yet can only be read here, so eviction stops before it, whatever the cap says.

use super::Entry;
use super::index::Index;
use openraft::EntryPayload;
use std::collections::VecDeque;

/// What an entry costs beside its payload.
const OVERHEAD_BYTES: usize = 128;

#[derive(Default)]
pub struct Cache {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Cache {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        let first = self.entries.front()?.log_id.index;
        self.entries.get(index.checked_sub(first)? as usize)
    }

    pub fn push(&mut self, entry: Entry) {
        self.bytes += cost(&entry);
        self.entries.push_back(entry);
    }

    pub fn truncate_from(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= index) {
            let gone = self.entries.pop_back();
            self.bytes -= gone.as_ref().map_or(0, cost);
        }
    }

    pub fn purge_upto(&mut self, index: u64) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= index) {
            self.pop_front();
        }
    }

    /// Drops the oldest entries that are on disk until the cache has at most `bytes`, or none of them is left.
    pub fn shrink_to(&mut self, bytes: usize, index: &Index) {
        while self.bytes > bytes && self.entries.front().is_some_and(|entry| index.is_on_disk(entry.log_id.index)) {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        let gone = self.entries.pop_front();
        self.bytes -= gone.as_ref().map_or(0, cost);
    }
}

fn cost(entry: &Entry) -> usize {
    OVERHEAD_BYTES
        + match &entry.payload {
            EntryPayload::Normal(proposal) => proposal.0.len(),
            EntryPayload::Blank | EntryPayload::Membership(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LeaderTerm, LogId};
    use crate::raft::types::Proposal;

    fn entry(index: u64) -> Entry {
        let log_id = LogId { leader_id: LeaderTerm { term: 1 }, index };
        Entry { log_id, payload: EntryPayload::Normal(Proposal(vec![0; 72].into())) }
    }

    #[test]
    fn eviction_takes_the_oldest_and_stops_at_what_is_not_on_disk() {
        let (mut cache, mut index) = (Cache::default(), Index::default());
        for i in 5..15 {
            cache.push(entry(i));
            index.push(entry(i).log_id, 1);
        }
        assert_eq!(cache.bytes(), 2_000);
        cache.shrink_to(0, &index);
        assert_eq!(cache.bytes(), 2_000);
        (5..12).for_each(|i| assert!(index.locate(entry(i).log_id, 1, 0).is_some()));
        cache.shrink_to(1_000, &index);
        assert_eq!((cache.bytes(), cache.get(9).is_none(), cache.get(10)), (1_000, true, Some(&entry(10))));
        cache.shrink_to(0, &index);
        assert_eq!((cache.bytes(), cache.get(11).is_none(), cache.get(12)), (600, true, Some(&entry(12))));
        cache.truncate_from(13);
        cache.purge_upto(3);
        assert_eq!((cache.bytes(), cache.get(13).is_none()), (200, true));
        cache.purge_upto(12);
        assert_eq!((cache.bytes(), cache.get(12).is_none()), (0, true));
    }
}
