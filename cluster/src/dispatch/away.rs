//! A silo that has lost the others keeps no workers.
//!
//! It can give them no work and take no outcome, and their leases run out meanwhile at those who own the attempts. So their
//! sessions end, and new ones are refused, until it is back: they find a silo that has a majority behind it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// So long it waits for the others. Added to the mesh's own deadline for the silence of a peer; far below a lease.
const AWAY_AFTER_MS: u64 = 5_000;

#[derive(Default)]
pub(super) struct Away {
    /// Since when the others are out of reach, on the monotonic clock.
    since_ms: Mutex<Option<u64>>,
    is_away: AtomicBool,
}

impl Away {
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire)
    }

    /// True if the workers are to be sent away now.
    pub(super) fn look(&self, is_apart: bool, now_ms: u64) -> bool {
        let mut since = self.since_ms.lock();
        if !is_apart {
            *since = None;
            self.is_away.store(false, Ordering::Release);
            return false;
        }
        let begun = *since.get_or_insert(now_ms);
        now_ms.saturating_sub(begun) >= AWAY_AFTER_MS && !self.is_away.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [K7] Looks, one after the other: whether the others are out of reach, when, what follows, and whether it is away then.
    #[test]
    fn workers_are_sent_away_once_and_are_welcome_again_afterwards() {
        let away = Away::default();
        let looks = [
            (false, 0, false, false),
            (true, 1_000, false, false),
            (true, 5_999, false, false),
            // One word from the others and it counts anew.
            (false, 6_500, false, false),
            (true, 7_000, false, false),
            (true, 12_000, true, true),
            (true, 13_000, false, true),
            (false, 14_000, false, false),
            (true, 15_000, false, false),
            (true, 20_000, true, true),
        ];
        for (is_apart, now, sends, is_away) in looks {
            assert_eq!((away.look(is_apart, now), away.is_away()), (sends, is_away), "at {now}");
        }
    }
}
