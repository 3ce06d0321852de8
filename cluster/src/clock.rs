//! The two clocks of a silo: wall time, which reminders follow, and monotonic time, which leases follow. A step of the wall
//! clock must not end a lease, and a restart must not forget a reminder, so neither can stand in for the other.

use futures::future::BoxFuture;
use grain_contract::Timestamp;
use std::time::Duration;
use tokio::sync::watch;

pub trait Clock: Send + Sync {
    /// Wall time.
    fn now(&self) -> Timestamp;
    /// Milliseconds since some fixed moment of this process; never steps back.
    fn monotonic_ms(&self) -> u64;
    /// Ends once the monotonic clock has moved on by `by`.
    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()>;
}

/// A moment by both clocks.
///
/// A machine that is suspended goes on with the monotonic clock where it stood, and with the wall clock where the world is. A
/// wall clock that is set says too much or too little. So of an age the greater of the two is believed, where to believe too
/// much costs little, and too little is what must not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    pub(crate) monotonic_ms: u64,
    wall: Timestamp,
}

impl Moment {
    pub fn of(clock: &dyn Clock) -> Self {
        Self { monotonic_ms: clock.monotonic_ms(), wall: clock.now() }
    }

    /// Milliseconds from an earlier moment to this one.
    pub fn since(self, earlier: Self) -> u64 {
        let by_wall = u64::try_from(self.wall.0.saturating_sub(earlier.wall.0)).unwrap_or(0);
        self.monotonic_ms.saturating_sub(earlier.monotonic_ms).max(by_wall)
    }

    #[must_use]
    pub(crate) fn earlier_by(self, ms: u64) -> Self {
        let wall = Timestamp(self.wall.0.saturating_sub_unsigned(ms));
        Self { monotonic_ms: self.monotonic_ms.saturating_sub(ms), wall }
    }
}

#[cfg(test)]
impl Moment {
    /// Both clocks show the same.
    pub(crate) fn at(ms: u64) -> Self {
        Self { monotonic_ms: ms, wall: Timestamp(i64::try_from(ms).unwrap_or(i64::MAX)) }
    }
}

/// The machine's clocks.
pub struct SystemClock {
    start: tokio::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(by))
    }
}

/// A clock that moves only when told to: the one driver of time in a test.
#[derive(Clone)]
pub struct ManualClock {
    wall_at_zero: Timestamp,
    elapsed: watch::Sender<u64>,
}

impl ManualClock {
    pub fn at(wall: Timestamp) -> Self {
        Self { wall_at_zero: wall, elapsed: watch::Sender::new(0) }
    }

    /// Moves both clocks and wakes every sleeper that is due.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.elapsed.send_modify(|ms| *ms = ms.saturating_add(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.wall_at_zero.plus_ms(*self.elapsed.borrow())
    }

    fn monotonic_ms(&self) -> u64 {
        *self.elapsed.borrow()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        let mut elapsed = self.elapsed.subscribe();
        let until = self.monotonic_ms().saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
        // The sender lives as long as its clock; once that is dropped nobody waits for the moment any more.
        Box::pin(async move {
            let _ = elapsed.wait_for(|ms| *ms >= until).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;
    use grain_contract::Timestamp;

    /// How far each clock moved, and what the age is.
    #[test]
    fn of_an_age_the_greater_of_both_clocks_is_believed() {
        let at = |monotonic_ms, wall| Moment { monotonic_ms, wall: Timestamp(wall) };
        let earlier = at(1_000, 50_000);
        let cases = [
            ("both alike", at(1_700, 50_700), 700),
            ("suspended", at(1_001, 80_000), 30_000),
            ("set back", at(1_700, 20), 700),
            ("set forward", at(1_700, 90_000), 40_000),
            ("the same", earlier, 0),
            ("before", at(900, 49_000), 0),
        ];
        for (what, now, age) in cases {
            assert_eq!(now.since(earlier), age, "{what}");
            assert_eq!(now.since(now.earlier_by(age)), age, "{what}");
        }
    }
}
