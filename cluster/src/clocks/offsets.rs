//! What was measured, and what follows from it: pure.

use shard::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// A measurement is replaced by a worse one only when it is older than this: an answer that took long says little.
const GOOD_FOR_MS: u64 = 30_000;

/// One other silo's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offset {
    /// Ahead of this silo's clock is positive.
    pub ms: i64,
    /// The true offset is at most this far from `ms`: half the time that question and answer took together.
    pub within_ms: u64,
}

impl Offset {
    /// From the wall clock before the question, the time until the answer, and what the other clock said.
    pub(super) fn of(asked_at_ms: i64, took_ms: u64, told_ms: i64) -> Self {
        let half = i64::try_from(took_ms / 2).unwrap_or(i64::MAX);
        Self { ms: told_ms.saturating_sub(asked_at_ms.saturating_add(half)), within_ms: took_ms.div_ceil(2) }
    }
}

#[derive(Default)]
pub(super) struct Offsets(BTreeMap<NodeId, (Offset, u64)>);

impl Offsets {
    /// `now_ms`: monotonic.
    pub(super) fn put(&mut self, node: NodeId, offset: Offset, now_ms: u64) {
        let is_better = |(known, at): &(Offset, u64)| {
            offset.within_ms <= known.within_ms || now_ms.saturating_sub(*at) > GOOD_FOR_MS
        };
        // A clock that was set meanwhile shows itself even by a bad measurement.
        let was_set = |(known, _): &(Offset, u64)| {
            offset.ms.abs_diff(known.ms) > offset.within_ms.saturating_add(known.within_ms)
        };
        if self.0.get(&node).is_none_or(|known| is_better(known) || was_set(known)) {
            self.0.insert(node, (offset, now_ms));
        }
    }

    pub(super) fn keep_only(&mut self, nodes: &BTreeSet<NodeId>) {
        self.0.retain(|node, _| nodes.contains(node));
    }

    pub(super) fn all(&self) -> Vec<(NodeId, Offset)> {
        self.0.iter().map(|(node, (offset, _))| (*node, *offset)).collect()
    }

    pub(super) fn off_ms(&self) -> Option<i64> {
        if self.0.is_empty() {
            return None;
        }
        // Of an even number the one that is nearer to this silo's own clock: of two clocks nobody knows which is wrong, and
        // both stay.
        let mut all: Vec<i64> = self.0.values().map(|(offset, _)| offset.ms).chain([0]).collect();
        all.sort_unstable();
        let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
        let middle = if low.unsigned_abs() <= high.unsigned_abs() { low } else { high };
        Some(middle.saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(ms: i64) -> Offset {
        Offset { ms, within_ms: 0 }
    }

    #[test]
    fn the_middle_between_question_and_answer_is_taken() {
        for (asked, took, told, wanted) in [
            (1_000, 0, 1_000, exact(0)),
            (1_000, 100, 1_050, Offset { ms: 0, within_ms: 50 }),
            (1_000, 101, 301_050, Offset { ms: 300_000, within_ms: 51 }),
            (1_000, 10, 0, Offset { ms: -1_005, within_ms: 5 }),
        ] {
            assert_eq!(Offset::of(asked, took, told), wanted);
        }
    }

    /// [FR-017] The others' clocks, and how far this one is off.
    #[test]
    fn who_differs_from_the_middle_of_all_is_off() {
        let cases: [(&[i64], Option<i64>); 7] = [
            (&[], None),
            (&[3, -2], Some(0)),
            // One other is wrong.
            (&[300_000, 1], Some(-1)),
            // This one is wrong.
            (&[300_000, 300_001], Some(-300_000)),
            (&[-300_000, -600_000], Some(300_000)),
            // One ahead, one behind, this one in the middle.
            (&[300_000, -300_000], Some(0)),
            // Two clocks: nobody knows.
            (&[300_000], Some(0)),
        ];
        for (others, wanted) in cases {
            let mut offsets = Offsets::default();
            others.iter().zip(2..).for_each(|(ms, node)| offsets.put(node, exact(*ms), 0));
            assert_eq!(offsets.off_ms(), wanted, "{others:?}");
        }
    }

    #[test]
    fn a_worse_measurement_counts_when_the_better_one_is_old_or_plainly_wrong() {
        let mut offsets = Offsets::default();
        let bad = |ms, within_ms| Offset { ms, within_ms };
        offsets.put(2, bad(10, 1), 0);
        offsets.put(2, bad(40, 100), 1_000);
        assert_eq!(offsets.all(), [(2, bad(10, 1))]);
        offsets.put(2, bad(40, 100), 31_000);
        assert_eq!(offsets.all(), [(2, bad(40, 100))]);
        offsets.put(2, bad(5_000, 400), 32_000);
        assert_eq!(offsets.all(), [(2, bad(5_000, 400))], "it was set");
        offsets.keep_only(&BTreeSet::from([3]));
        assert_eq!(offsets.all(), []);
    }
}
