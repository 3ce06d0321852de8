//! Which segments still hold an entry that some group needs.
//!
//! Each segment dies by itself, not in order, so a group that is never purged costs the segments with its own entries and
//! no more. What else a segment held (votes, pointers, checkpoints) is written again at the head of every new segment,
//! and a truncation that died with its segment is made up for at open, see `rebuild`.

use super::segment::Segment;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Alive {
    segments: Mutex<BTreeMap<u64, Life>>,
}

struct Life {
    segment: Arc<Segment>,
    /// Behind the last synced frame.
    end: u64,
    /// Entries in it that their group's index points to.
    entries: u64,
}

/// Entries that a segment has gained or lost.
pub type Counts = Vec<(u64, u64)>;

impl Alive {
    pub fn add(&self, segment: Arc<Segment>, end: u64, entries: u64) {
        self.segments.lock().insert(segment.number, Life { segment, end, entries });
    }

    pub fn get(&self, number: u64) -> Option<Arc<Segment>> {
        self.segments.lock().get(&number).map(|life| life.segment.clone())
    }

    pub fn count(&self) -> usize {
        self.segments.lock().len()
    }

    pub fn oldest(&self) -> Option<u64> {
        self.segments.lock().keys().next().copied()
    }

    /// Numbers and ends, in order.
    pub fn ends(&self) -> Vec<(u64, u64)> {
        self.segments.lock().iter().map(|(number, life)| (*number, life.end)).collect()
    }

    /// Takes in a synced batch; hands out the segments that nobody needs any more. After that no reader can find them.
    pub fn settle(&self, active: u64, end: u64, gained: &Counts, lost: &Counts) -> Vec<Arc<Segment>> {
        let mut segments = self.segments.lock();
        if let Some(life) = segments.get_mut(&active) {
            life.end = end;
        }
        for (number, entries) in gained {
            if let Some(life) = segments.get_mut(number) {
                life.entries += entries;
            }
        }
        for (number, entries) in lost {
            if let Some(life) = segments.get_mut(number) {
                debug_assert!(life.entries >= *entries, "segment {number} loses more entries than it had");
                life.entries = life.entries.saturating_sub(*entries);
            }
        }
        segments
            .extract_if(.., |number, life| *number != active && life.entries == 0)
            .map(|(_, life)| life.segment)
            .collect()
    }
}
