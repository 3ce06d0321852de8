//! Plain counters that the server exports.

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
    pub leases: u64,
    pub leases_expired: u64,
    pub workers: u64,
    pub service_restarts: u64,
}
