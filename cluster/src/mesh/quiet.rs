//! Warnings that would come again and again: each is said once a minute.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Quiet(Mutex<HashMap<String, Instant>>);

impl Quiet {
    /// True if it is time to say it (again).
    pub(super) fn is_due(&self, what: &str, now: Instant) -> bool {
        let mut said = self.0.lock();
        said.retain(|_, at| now.saturating_duration_since(*at) < EVERY);
        if said.contains_key(what) || said.len() >= KEPT_MAX {
            return false;
        }
        said.insert(what.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_warning_is_said_once_a_minute() {
        let (quiet, now) = (Quiet::default(), Instant::now());
        assert!(quiet.is_due("a", now) && quiet.is_due("b", now));
        assert!(!quiet.is_due("a", now + EVERY / 2));
        assert!(quiet.is_due("a", now + EVERY));
    }
}
