//! A replica that has ended by itself is started again.
//!
//! Raft ends a group when something in it cannot go on: a read of the log that failed, a broken assertion. Log and rows are
//! as they were, so it begins again from there, as after a restart of the process, and the other shards of the node never
//! notice. What concerns the whole node (the log takes no more, the store is damaged) stops the node elsewhere, and nothing
//! is mended then. A node that is alone has nobody who could take over while a replica fails again and again: it stops.

use super::replica::Parts;
use super::shard::ShardInner;
use crate::state::Stop;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two looks, and the first wait before a replica is started again.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait; it doubles with each failure until the replica has lived longer than the wait.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Failures in a row after which a node that is alone stops.
const FAILURES_MAX_ALONE: u32 = 3;

#[derive(Default)]
struct Failures {
    in_a_row: u32,
    tried: Option<Instant>,
}

pub async fn run(slots: Vec<Arc<ShardInner>>, parts: Arc<Parts>, stop: Stop) {
    let mut clock = tokio::time::interval(LOOK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut all: HashMap<u32, Failures> = HashMap::new();
    loop {
        clock.tick().await;
        for slot in slots.iter().filter(|slot| slot.replica().is_some_and(|replica| replica.has_ended())) {
            let shard = slot.id.0;
            let failures = all.entry(shard).or_default();
            let waited = failures.tried.map(|at| at.elapsed());
            let wait = wait_after(failures.in_a_row);
            if waited.is_some_and(|waited| waited < wait) {
                continue;
            }
            failures.in_a_row =
                if waited.is_some_and(|waited| waited > 2 * WAIT_MAX) { 1 } else { failures.in_a_row + 1 };
            failures.tried = Some(Instant::now());
            if parts.options.alone && failures.in_a_row > FAILURES_MAX_ALONE {
                stop.because(format!("shard {shard} fails again and again"));
                continue;
            }
            match slot.mend(&parts).await {
                Ok(false) => {}
                Ok(true) => {
                    parts.counters.restarts.fetch_add(1, Relaxed);
                    tracing::warn!(
                        shard,
                        times = failures.in_a_row,
                        "a replica had ended by itself and was started again"
                    );
                }
                Err(error) => tracing::error!(shard, %error, "a replica that had ended could not be started again"),
            }
        }
    }
}

fn wait_after(failures: u32) -> Duration {
    LOOK.saturating_mul(1 << failures.min(16)).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let waits: Vec<_> = [0, 1, 2, 5, 6, 99].map(|failures| wait_after(failures).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 32, 60, 60]);
    }
}
