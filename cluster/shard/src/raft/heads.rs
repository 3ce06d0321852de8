//! A bounded memory of grain heads, so that a busy grain's turn reads nothing.
//!
//! Two generations: when the young one is full it becomes the old one, and what was in the old one is forgotten.

use granary_proto::storage::GrainHead;
use std::collections::HashMap;

/// Heads in one generation, a shard. About 200 bytes each.
pub const HEADS_MAX: usize = 4_096;

#[derive(Default)]
pub struct Heads {
    young: HashMap<Vec<u8>, GrainHead>,
    old: HashMap<Vec<u8>, GrainHead>,
}

impl Heads {
    pub fn take(&mut self, grain: &[u8]) -> Option<GrainHead> {
        self.young.remove(grain).or_else(|| self.old.remove(grain))
    }

    pub fn put(&mut self, grain: Vec<u8>, head: GrainHead) {
        if self.young.len() >= HEADS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(grain, head);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest_and_stays_bounded() {
        let mut heads = Heads::default();
        let key = |n: usize| n.to_be_bytes().to_vec();
        for n in 0..3 * HEADS_MAX {
            heads.put(key(n), GrainHead { revision: n as u64, ..GrainHead::default() });
        }
        assert!(heads.young.len() + heads.old.len() <= 2 * HEADS_MAX);
        assert_eq!(heads.take(&key(0)), None);
        let newest = 3 * HEADS_MAX - 1;
        assert_eq!(heads.take(&key(newest)).map(|head| head.revision), Some(newest as u64));
        assert_eq!(heads.take(&key(newest)), None);
    }
}
