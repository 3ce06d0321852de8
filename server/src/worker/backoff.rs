//! Pauses between tries, doubled each time, with jitter: many workers that lost the same silo shall not come back as one.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Self {
        Self { next: FIRST }
    }

    /// Between half and all of the current pause; `luck` is in 0..1.
    pub fn pause(&mut self, luck: f64) -> Duration {
        let pause = self.next.mul_f64(0.5 + luck.clamp(0.0, 1.0) / 2.0);
        self.next = (self.next * 2).min(MOST);
        pause
    }

    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_start_anew() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..10).map(|_| backoff.pause(1.0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.pause(0.0).as_millis(), 25);
    }
}
