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
