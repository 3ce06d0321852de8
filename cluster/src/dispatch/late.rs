//! When an assignment is too old to be handed out.
//!
//! A silo that stands still after a commit wakes with an assignment in hand whose lease may have ended since: another silo has
//! taken the shard over, has seen nobody renew, and somebody else does the step. It cannot tell whether that was so without
//! asking, but it can tell that it was away. So what was claimed too long ago is given back as never started, wherever it
//! lies: with the owner, between the nodes, or in front of the worker's stream. Whoever owns the attempt by then refuses that
//! word if the lease is over, and offers the attempt again if it is not.

use super::pool::Taking;
use super::{Dispatch, Places};
use crate::Moment;
use crate::sabotage::Sabotage;

/// The part of a lease's time after which an assignment is too old to be handed out; in the rest of it the worker renews.
const LATE_PART: u64 = 3;

pub(super) fn is_late(age_ms: u64, lease_ms: u64) -> bool {
    age_ms > lease_ms / LATE_PART
}

impl Dispatch {
    pub(super) fn moment(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    /// `since`: before the lease was committed.
    pub(super) fn is_late(&self, since: Moment, now: Moment) -> bool {
        let hub = self.hub.upgrade();
        let is_blind = hub.is_some_and(|hub| hub.options.sabotage == Some(Sabotage::LateHandedOut));
        !is_blind && is_late(now.since(since), self.tenants.lease_ms())
    }

    pub(super) fn taking(&self, place: bool, since: Moment) -> Taking {
        Taking { place, since, is_late: self.is_late(since, self.moment()) }
    }
}

impl Places {
    /// Before the turn that takes them, so before its commit.
    pub(super) fn since(&self) -> Moment {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::is_late;

    #[test]
    fn a_third_of_the_lease_is_still_in_time() {
        for (age_ms, late) in [(0, false), (15_000, false), (15_001, true), (45_000, true), (u64::MAX, true)] {
            assert_eq!(is_late(age_ms, 45_000), late, "{age_ms} ms");
        }
    }
}
