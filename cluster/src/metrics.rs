//! Plain counters that the server exports.

use grain_contract::Code;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the commit latency buckets, in microseconds; one more bucket counts what is above the last.
pub const COMMIT_MICROS: [u64; 12] =
    [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 512_000, 2_000_000];

/// All figures of one silo at one moment. Counters rise for the life of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    pub activations: u64,
    pub activations_created: u64,
    pub activations_dropped: u64,
    pub activation_bytes: u64,
    pub calls_in_progress: u64,
    /// Calls that were put to a grain's owner on another node: each hop counts.
    pub hops: u64,
    /// Hops that found no owner there, or whose outcome is not known.
    pub hops_failed: u64,
    /// Calls of other nodes that were taken here.
    pub hops_served: u64,
    pub turns: u64,
    pub turns_reloaded: u64,
    pub commits: u64,
    /// Counts by bucket of [`COMMIT_MICROS`], not cumulated.
    pub commit_latency: [u64; COMMIT_MICROS.len() + 1],
    pub commit_micros_sum: u64,
    /// By `Code::as_str`.
    pub rejections: Vec<(&'static str, u64)>,
    pub reminders_armed: u64,
    pub reminders_fired: u64,
    pub reminders_overdue: u64,
    pub reminder_oldest_overdue_ms: u64,
    pub reminder_scans: u64,
    pub outbox_calls_open: u64,
    pub outbox_calls_delivered: u64,
    pub outbox_retries: u64,
    /// Events between the slowest connected reader and the head.
    pub event_reader_lag: u64,
    pub work_queued: u64,
    /// Attempts that were put to workers connected to other nodes: taken there, refused there, and requests without an answer.
    pub relay_assigned: u64,
    pub relay_refused: u64,
    pub relay_unanswered: u64,
    /// Messages to other nodes about the workers here.
    pub relay_tellings: u64,
    /// Free places of workers connected to other nodes, as told.
    pub relay_far_places: u64,
    pub leases: u64,
    pub leases_expired: u64,
    pub workers: u64,
    pub service_restarts: u64,
}

const CODES: [Code; 12] = Code::ALL;

/// The counters themselves. Gauges of the shards (reminders, outbox) are kept by their rooms and summed at a snapshot.
#[derive(Default)]
pub(crate) struct Metrics {
    pub activations_created: AtomicU64,
    pub activations_dropped: AtomicU64,
    pub activation_bytes: AtomicU64,
    pub hops: AtomicU64,
    pub hops_failed: AtomicU64,
    pub hops_served: AtomicU64,
    pub turns: AtomicU64,
    pub turns_reloaded: AtomicU64,
    pub commits: AtomicU64,
    commit_latency: [AtomicU64; COMMIT_MICROS.len() + 1],
    commit_micros_sum: AtomicU64,
    rejections: [AtomicU64; CODES.len()],
    pub reminders_fired: AtomicU64,
    pub reminder_scans: AtomicU64,
    pub outbox_calls_delivered: AtomicU64,
    pub outbox_retries: AtomicU64,
    pub leases_expired: AtomicU64,
    pub relay_assigned: AtomicU64,
    pub relay_refused: AtomicU64,
    pub relay_unanswered: AtomicU64,
    pub relay_tellings: AtomicU64,
    pub service_restarts: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Metrics {
    pub(crate) fn committed(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = COMMIT_MICROS.partition_point(|bound| *bound < micros);
        count(&self.commits);
        count(&self.commit_latency[bucket]);
        self.commit_micros_sum.fetch_add(micros, Relaxed);
    }

    /// One answer to assignments that were put to another node: how many were taken and how many not.
    pub(crate) fn assigned(&self, answer: Result<(u64, u64), ()>) {
        match answer {
            Ok((placed, refused)) => {
                self.relay_assigned.fetch_add(placed, Relaxed);
                self.relay_refused.fetch_add(refused, Relaxed);
            }
            Err(()) => count(&self.relay_unanswered),
        }
    }

    pub(crate) fn rejected(&self, code: Code) {
        if let Some(at) = CODES.iter().position(|c| *c == code) {
            count(&self.rejections[at]);
        }
    }

    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let (created, dropped) = (read(&self.activations_created), read(&self.activations_dropped));
        MetricsSnapshot {
            activations: created.saturating_sub(dropped),
            activations_created: created,
            activations_dropped: dropped,
            activation_bytes: read(&self.activation_bytes),
            hops: read(&self.hops),
            hops_failed: read(&self.hops_failed),
            hops_served: read(&self.hops_served),
            turns: read(&self.turns),
            turns_reloaded: read(&self.turns_reloaded),
            commits: read(&self.commits),
            commit_latency: std::array::from_fn(|at| read(&self.commit_latency[at])),
            commit_micros_sum: read(&self.commit_micros_sum),
            rejections: CODES.iter().zip(&self.rejections).map(|(code, n)| (code.as_str(), read(n))).collect(),
            reminders_fired: read(&self.reminders_fired),
            reminder_scans: read(&self.reminder_scans),
            outbox_calls_delivered: read(&self.outbox_calls_delivered),
            outbox_retries: read(&self.outbox_retries),
            leases_expired: read(&self.leases_expired),
            relay_assigned: read(&self.relay_assigned),
            relay_refused: read(&self.relay_refused),
            relay_unanswered: read(&self.relay_unanswered),
            relay_tellings: read(&self.relay_tellings),
            service_restarts: read(&self.service_restarts),
            ..MetricsSnapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_first_bucket_that_holds_it() {
        let metrics = Metrics::default();
        for micros in [250, 251, 3_000_000] {
            metrics.committed(Duration::from_micros(micros));
        }
        let latency = metrics.snapshot().commit_latency;
        assert_eq!((latency[0], latency[1], latency[COMMIT_MICROS.len()]), (1, 1, 1));
    }
}
