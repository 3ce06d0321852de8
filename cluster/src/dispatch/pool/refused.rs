//! Workers of other nodes that an attempt was refused for.
//!
//! What is refused is offered again, and the room that was told before would take it to the same worker: a commit and a hop
//! each time, every few milliseconds, until word comes. So such a worker has no room here until its node says anew that it
//! has, or until a pause is over that grows from refusal to refusal. Workers of other nodes are not concerned.

use super::{Action, Delivered, Pool, Seat};
use std::sync::Arc;

/// The first pause, and the longest. Seen to be over at the lease clock's next look.
const PAUSE_MS_MIN: u64 = 100;
const PAUSE_MS_MAX: u64 = 5_000;

/// Of one worker at its node.
#[derive(Default, Debug)]
pub(super) struct Refusals {
    /// Pauses since one was placed, or since the worker was first heard of.
    pauses: u32,
    until_ms: Option<u64>,
}

impl Refusals {
    pub(super) fn is_pausing(&self) -> bool {
        self.until_ms.is_some()
    }

    pub(super) fn answered(&mut self, answer: Delivered, now_ms: u64) {
        match answer {
            Delivered::Placed { .. } => *self = Self::default(),
            // Of several under way each is refused, for the one reason.
            Delivered::Refused { .. } | Delivered::NotSent if self.is_pausing() => {}
            Delivered::Refused { .. } | Delivered::NotSent => {
                let pause = PAUSE_MS_MIN.saturating_mul(1 << self.pauses.min(32)).min(PAUSE_MS_MAX);
                self.pauses = self.pauses.saturating_add(1);
                self.until_ms = Some(now_ms.saturating_add(pause));
            }
            // The place is not free: the worker may have it.
            Delivered::Unknown => {}
        }
    }

    /// Its node has told its room since. What comes of that decides whether the next pause is longer.
    pub(super) fn heard(&mut self) {
        self.until_ms = None;
    }

    /// `true`: a pause ends now.
    fn is_over(&mut self, now_ms: u64) -> bool {
        self.until_ms.take_if(|until_ms| *until_ms <= now_ms).is_some()
    }
}

impl Pool {
    pub(super) fn end_pauses(&mut self) -> Vec<Action> {
        let now_ms = self.now_ms;
        let over = self.workers.iter_mut().filter_map(|(id, worker)| match &mut worker.seat {
            Seat::Far(far) => far.refusals.is_over(now_ms).then(|| id.clone()),
            _ => None,
        });
        let over: Vec<Arc<str>> = over.collect();
        over.iter().flat_map(|id| self.has_room_again(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Event {
        Answered(Delivered),
        Heard,
        Looked,
    }
    use Event::{Answered, Heard, Looked};

    /// What happens when, one after the other, and whether the worker pauses then.
    #[test]
    fn a_refused_worker_pauses_until_its_node_tells_or_a_growing_while() {
        let refused = || Answered(Delivered::Refused { room: 3, stamp: 1 });
        let placed = || Answered(Delivered::Placed { room: 3, stamp: 1 });
        let events = [
            (0, refused(), true),
            (50, refused(), true),
            (99, Looked, true),
            (100, Looked, false),
            (1_000, Answered(Delivered::NotSent), true),
            (1_199, Looked, true),
            (1_200, Looked, false),
            (2_000, refused(), true),
            (2_001, Heard, false),
            (2_002, refused(), true),
            (2_801, Looked, true),
            (2_802, Looked, false),
            (3_000, placed(), false),
            (3_000, refused(), true),
            (3_100, Looked, false),
            (3_200, Answered(Delivered::Unknown), false),
            (3_200, refused(), true),
            (3_201, placed(), false),
        ];
        let mut refusals = Refusals::default();
        for (now_ms, event, is_pausing) in events {
            match event {
                Answered(answer) => refusals.answered(answer, now_ms),
                Heard => refusals.heard(),
                Looked => drop(refusals.is_over(now_ms)),
            }
            assert_eq!(refusals.is_pausing(), is_pausing, "at {now_ms}: {refusals:?}");
        }
    }

    #[test]
    fn no_pause_is_longer_than_the_longest() {
        let mut refusals = Refusals::default();
        let mut now_ms = 0;
        for _ in 0..100 {
            refusals.answered(Delivered::NotSent, now_ms);
            now_ms += PAUSE_MS_MAX;
            assert!(refusals.is_over(now_ms), "{refusals:?}");
        }
        refusals.answered(Delivered::NotSent, u64::MAX);
        assert!(refusals.is_over(u64::MAX));
    }
}
