//! The clocks of a simulated node: the strand's own for what must not step back, and a wall clock that stands wrong, drifts and
//! may be set.

use cluster::Clock;
use futures::future::BoxFuture;
use grain_contract::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// True time at the beginning of every simulation, in milliseconds since 1970.
pub const EPOCH_MS: i64 = 1_790_000_000_000;

#[derive(Clone)]
pub struct NodeClock {
    zero: Instant,
    /// Wall clock at `zero`.
    wall: i64,
    /// What it was set by since.
    set_by: Arc<AtomicI64>,
}

impl NodeClock {
    /// `wall`: what the wall clock shows at `zero` of the strand's clock.
    pub fn new(zero: Instant, wall: i64, set_by: Arc<AtomicI64>) -> Self {
        Self { zero, wall, set_by }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(millis(self.zero.elapsed())).unwrap_or(i64::MAX);
        Timestamp(self.wall + self.set_by.load(Relaxed) + since)
    }

    fn monotonic_ms(&self) -> u64 {
        millis(self.zero.elapsed())
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(by))
    }
}
