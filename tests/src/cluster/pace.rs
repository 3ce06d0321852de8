//! How long nothing happened.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Remembers the longest time between two signs of progress. Cheap to clone.
#[derive(Clone)]
pub struct Pace {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    last: Instant,
    longest: Duration,
    /// When the longest gap began, since the start.
    at: Duration,
    start: Instant,
    signs: u64,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        let inner = Inner { last: now, longest: Duration::ZERO, at: Duration::ZERO, start: now, signs: 0 };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }
}

impl Pace {
    /// Something went on.
    pub fn sign(&self) {
        self.sign_at(Instant::now());
    }

    fn sign_at(&self, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = now.saturating_duration_since(inner.last);
        if gap > inner.longest {
            inner.longest = gap;
            inner.at = inner.last.saturating_duration_since(inner.start);
        }
        inner.last = inner.last.max(now);
        inner.signs += 1;
    }

    /// Forgets what was: the gap is measured from now on.
    pub fn restart(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last = Instant::now();
        inner.longest = Duration::ZERO;
    }

    /// The longest gap and when it began.
    pub fn longest_gap(&self) -> (Duration, Duration) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.longest, inner.at)
    }

    pub fn signs(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_kept_with_its_beginning() {
        let pace = Pace::default();
        let start = pace.inner.lock().expect("no panic while held").start;
        for second in [1, 2, 5, 6] {
            pace.sign_at(start + Duration::from_secs(second));
        }
        assert_eq!(pace.longest_gap(), (Duration::from_secs(3), Duration::from_secs(2)));
        assert_eq!(pace.signs(), 4);
    }
}
