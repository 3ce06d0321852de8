//! The head of a grain, and why replay decides every entry the same way again.
//!
//! Apply accepts a turn if the grain's revision is the one the turn was decided on, so it *reads* the head. State is
//! written behind: after a crash the log is replayed from the last checkpoint C, but the store may hold rows that entries
//! behind C wrote before the crash. All other rows are blind puts and deletes whose keys and values follow from the entry,
//! the head and the shard's counters alone; replaying them in log order ends in the same state whatever was there. The head
//! is the exception: read from the future, it would fence an entry that was accepted (its revision is already gone by), or
//! delete the wrong reminder row. The counters (outbox number, trim mark) are not rows at all; they travel in the
//! checkpoint.
//!
//! So a head row in the store holds two heads: `current`, written by the entry `applied_index`, and `base`, the head as it
//! was at the durable checkpoint before. The writer keeps one rule: *a batch is begun only when the checkpoint of the batch
//! before is durable*. With D the newest durable checkpoint, the row written is (current: the new head, base: [`at`] of the
//! row that is there, D).
//!
//! Claim: for every grain and every durable checkpoint D that recovery can find, `at(row, D)` is the head at D. By
//! induction over the batches. (1) If the batch after D does not touch the grain, the row was written by a batch at or
//! before D, so `current.applied_index <= D` and `current` is the last head at or before D. (2) If it does, the row's
//! `base` was computed as `at(old row, D)`, which is the head at D by (1) or, for a row left over from before a crash, by
//! the claim of the earlier life: such a row has `current.applied_index > D` and its grain had no accepted entry between
//! its `base` and D, or the replay up to D would have put the head into the batch that D stands for. No third batch can be
//! on disk, by the writer's rule.
//!
//! Apply of the entry with index i therefore reads `at(row, i - 1)` where neither overlay nor cache holds the head: a row
//! with `current.applied_index >= i` is from a former life and gives its `base`; if an entry between D and i had changed
//! the grain, replay would have left the newer head in overlay or store already. Accepted entries stay accepted and fenced
//! ones fenced; outbox numbers come out as before.

use granary_proto::storage::GrainHead;
use prost::Message;

use super::value;
use crate::Error;

/// The head as it was when the entry `index` had been applied.
pub fn at(row: GrainHead, index: u64) -> Option<GrainHead> {
    if row.applied_index <= index { Some(GrainHead { base: None, ..row }) } else { row.base.map(|base| *base) }
}

/// What the writer puts into the store in place of `old`, `durable` being the newest durable checkpoint, if any.
pub fn with_base(current: GrainHead, old: Option<GrainHead>, durable: Option<u64>) -> GrainHead {
    let base = durable.and_then(|durable| at(old?, durable));
    GrainHead { base: base.map(Box::new), ..current }
}

pub fn read(key: &[u8], row: &[u8]) -> Result<GrainHead, Error> {
    GrainHead::decode(row).map_err(|error| value::damaged("state store", key, &format!("a grain's head: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(revision: u64, applied_index: u64) -> GrainHead {
        GrainHead { revision, applied_index, ..GrainHead::default() }
    }

    #[test]
    fn the_head_at_a_checkpoint_is_found_whatever_was_written_behind_it() {
        let first = with_base(head(1, 10), None, None);
        assert_eq!(at(first.clone(), 20), Some(head(1, 10)));
        assert_eq!(at(first.clone(), 9), None);
        let second = with_base(head(4, 33), Some(first.clone()), Some(20));
        assert_eq!(at(second.clone(), 20), Some(head(1, 10)));
        assert_eq!(at(second.clone(), 32), Some(head(1, 10)));
        assert_eq!(at(second.clone(), 33), Some(head(4, 33)));
        // A crash, replay from 20 with other batch limits: the left-over current (33) does not become the base.
        let replayed = with_base(head(2, 25), Some(second), Some(20));
        assert_eq!(at(replayed, 20), Some(head(1, 10)));
    }
}
