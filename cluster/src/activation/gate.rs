//! Admission to one activation: a counter of the messages inside and a "closed" bit, in one word.
//!
//! An actor's mailbox is unbounded, so the bound stands in front of it. The same word decides deactivation: it may only
//! happen when nobody is inside, and nobody may get in once it has begun; being one word, the two cannot cross.

use std::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

#[derive(Default)]
pub(crate) struct Gate(AtomicU32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl Gate {
    pub(crate) fn enter(&self, limit: usize) -> Result<(), Refused> {
        let admit = |word: u32| (word & CLOSED == 0 && (word as usize) < limit).then_some(word + 1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, admit) {
            Ok(_) => Ok(()),
            Err(word) if word & CLOSED != 0 => Err(Refused::Closed),
            Err(_) => Err(Refused::Full),
        }
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Closes if nobody is inside; says whether it did.
    pub(crate) fn close_if_idle(&self) -> bool {
        self.0.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes whoever is inside: they still leave one by one.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_opens_again_when_one_leaves() {
        let gate = Gate::default();
        assert_eq!((gate.enter(2), gate.enter(2), gate.enter(2)), (Ok(()), Ok(()), Err(Refused::Full)));
        gate.leave();
        assert_eq!(gate.enter(2), Ok(()));
    }

    #[test]
    fn nobody_enters_a_closed_gate_and_a_busy_gate_does_not_close_as_idle() {
        let gate = Gate::default();
        assert_eq!(gate.enter(9), Ok(()));
        assert!(!gate.close_if_idle());
        gate.leave();
        assert!(gate.close_if_idle());
        assert_eq!(gate.enter(9), Err(Refused::Closed));
    }

    #[test]
    fn those_inside_still_leave_after_a_forced_close() {
        let gate = Gate::default();
        assert_eq!(gate.enter(9), Ok(()));
        gate.close();
        gate.leave();
        assert_eq!(gate.enter(9), Err(Refused::Closed));
        assert!(!gate.is_idle());
    }
}
