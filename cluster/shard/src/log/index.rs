//! Where each entry of one group lies.
//!
//! Forty bytes an entry, from the first one not purged to the last one appended. Segments rise with the index.

use super::alive::Counts;
use super::{LeaderTerm, LogId};
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub segment: u64,
    pub offset: u32,
    pub bytes: u32,
}

struct Slot {
    leader: LeaderTerm,
    /// Log bytes of the group from its beginning to the end of this entry.
    upto: u64,
    /// Segment 0 stands for "not on disk yet".
    place: Place,
}

#[derive(Default)]
pub struct Index {
    first: u64,
    slots: VecDeque<Slot>,
}

impl Index {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Index of the first entry, or 0.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Index behind the last entry. Equals `first` if there is none.
    pub fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub fn last(&self) -> Option<LogId> {
        self.slots.back().map(|slot| LogId { leader_id: slot.leader, index: self.end() - 1 })
    }

    pub fn get(&self, index: u64) -> Option<(LogId, Place)> {
        let slot = self.slot(index)?;
        Some((LogId { leader_id: slot.leader, index }, slot.place))
    }

    pub fn is_on_disk(&self, index: u64) -> bool {
        self.slot(index).is_some_and(|slot| slot.place.segment != 0)
    }

    /// The segment of the first entry, if it is on disk.
    pub fn first_segment(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.place.segment).filter(|segment| *segment != 0)
    }

    /// Adds an entry that is not on disk yet. The caller has checked that it follows the last.
    pub fn push(&mut self, id: LogId, bytes: u32) {
        self.push_at(id, Place { segment: 0, offset: 0, bytes });
    }

    pub fn push_at(&mut self, id: LogId, place: Place) {
        if self.slots.is_empty() {
            self.first = id.index;
        }
        debug_assert_eq!(id.index, self.end(), "entries of a log have no holes");
        let before = self.slots.back().map_or(0, |slot| slot.upto);
        self.slots.push_back(Slot { leader: id.leader_id, upto: before + u64::from(place.bytes), place });
    }

    /// Says where an entry lies, unless another one has taken its index meanwhile. Tells where it lay before.
    pub fn locate(&mut self, id: LogId, segment: u64, offset: u32) -> Option<Option<u64>> {
        let at = id.index.checked_sub(self.first)?;
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.leader == id.leader_id)?;
        let before = Some(slot.place.segment).filter(|segment| *segment != 0);
        (slot.place.segment, slot.place.offset) = (segment, offset);
        Some(before)
    }

    /// Drops the entries from `index` on; tells which segments lose how many.
    pub fn truncate_from(&mut self, index: u64) -> Counts {
        let keep = index.saturating_sub(self.first).min(self.slots.len() as u64) as usize;
        count(self.slots.drain(keep..))
    }

    /// Drops the entries up to `index`; tells which segments lose how many.
    pub fn purge_upto(&mut self, index: u64) -> Counts {
        let drop = (index + 1).saturating_sub(self.first).min(self.slots.len() as u64);
        self.first += drop;
        count(self.slots.drain(..drop as usize))
    }

    /// Log bytes of the entries behind `index`; of all if `None`.
    pub fn bytes_behind(&self, index: Option<u64>) -> u64 {
        let Some(last) = self.slots.back() else { return 0 };
        let before_first = self.slots[0].upto - u64::from(self.slots[0].place.bytes);
        let upto = match index {
            Some(index) if index >= self.first => self.slot(index).map_or(last.upto, |slot| slot.upto),
            _ => before_first,
        };
        last.upto - upto
    }

    /// The last index with more than so many log bytes behind it; 0 if there is none.
    pub fn with_behind(&self, bytes: u64) -> u64 {
        let Some(last) = self.slots.back() else { return 0 };
        let far = self.slots.partition_point(|slot| last.upto - slot.upto > bytes);
        if far == 0 { 0 } else { self.first + far as u64 - 1 }
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index.checked_sub(self.first)? as usize)
    }
}

/// Entries a segment, of those that are on disk.
fn count(slots: impl Iterator<Item = Slot>) -> Counts {
    let mut counts: Counts = Vec::new();
    for segment in slots.map(|slot| slot.place.segment).filter(|segment| *segment != 0) {
        match counts.last_mut() {
            Some((last, entries)) if *last == segment => *entries += 1,
            _ => counts.push((segment, 1)),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderTerm { term }, index }
    }

    fn filled(range: std::ops::Range<u64>) -> Index {
        let mut index = Index::default();
        range.for_each(|i| index.push(id(1, i), 10));
        index
    }

    #[test]
    fn entries_are_found_between_first_and_last() {
        let index = filled(5..9);
        assert_eq!((index.first(), index.end(), index.last()), (5, 9, Some(id(1, 8))));
        assert_eq!(index.get(4), None);
        assert_eq!(index.get(9), None);
        assert_eq!(index.get(5), Some((id(1, 5), Place { segment: 0, offset: 0, bytes: 10 })));
    }

    #[test]
    fn a_place_is_taken_by_the_entry_that_is_there_now_only() {
        let mut index = filled(0..3);
        index.truncate_from(2);
        index.push(id(2, 2), 10);
        assert_eq!(index.locate(id(1, 2), 7, 100), None, "the entry was replaced");
        assert_eq!(index.locate(id(1, 9), 7, 100), None, "it is gone");
        assert_eq!(index.locate(id(2, 2), 7, 100), Some(None));
        assert_eq!(index.locate(id(2, 2), 8, 50), Some(Some(7)), "written again");
        assert!(index.is_on_disk(2) && !index.is_on_disk(1));
    }

    #[test]
    fn dropped_entries_are_counted_by_segment() {
        let mut index = filled(1..11);
        (1..=4).for_each(|i| assert!(index.locate(id(1, i), 3, 0).is_some()));
        (5..=8).for_each(|i| assert!(index.locate(id(1, i), 4, 0).is_some()));
        assert_eq!(index.truncate_from(8), [(4, 1)], "those not on disk belong to no segment");
        assert_eq!(index.purge_upto(5), [(3, 4), (4, 1)]);
        assert_eq!((index.first(), index.end()), (6, 8));
        assert_eq!(index.purge_upto(100), [(4, 2)]);
        assert_eq!((index.is_empty(), index.last()), (true, None));
        index.push(id(3, 200), 10);
        assert_eq!((index.first(), index.end()), (200, 201));
    }

    #[test]
    fn bytes_behind_an_index_do_not_depend_on_what_was_purged() {
        let mut index = filled(1..11);
        for (behind, bytes) in [(None, 100), (Some(0), 100), (Some(1), 90), (Some(9), 10), (Some(10), 0), (Some(99), 0)]
        {
            assert_eq!(index.bytes_behind(behind), bytes, "{behind:?}");
        }
        index.purge_upto(4);
        for (behind, bytes) in [(None, 60), (Some(2), 60), (Some(4), 60), (Some(5), 50), (Some(10), 0)] {
            assert_eq!(index.bytes_behind(behind), bytes, "{behind:?}");
        }
    }
}
