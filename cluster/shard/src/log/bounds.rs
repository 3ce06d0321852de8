//! Every bound of the log that has a name. Bytes are bytes.

use std::time::Duration;

/// Requests that go into one batch, and so under one sync.
pub const BATCH_REQUESTS_MAX: usize = 4_096;
/// Bytes that go into one batch, beyond the first request.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// One request; a longer append is sent as several, acknowledged with the last.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;
/// One record. Above the largest entry that a shard proposes, with room for a membership or a checkpoint.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes that may wait for the committer; an append beyond it waits before it is taken.
pub const QUEUE_BYTES_MAX: usize = 128 << 20;
/// How long a committed pointer or a checkpoint may wait for a batch to ride on.
pub const LAZY_WAIT_MAX: Duration = Duration::from_millis(500);
/// Zero-filled segments, counting the active one, that exist before the log serves.
pub const SEGMENTS_AT_OPEN: usize = 3;
/// Ready segments below which the helper fills another.
pub const READY_MIN: usize = 2;
/// Ready segments that the helper keeps at most; dead segments beyond it are removed.
pub const READY_MAX: usize = 4;
/// Alive segments above which the group that holds the oldest should be snapshotted.
pub const PINNED_SEGMENTS_MAX: usize = 4;
/// One step of filling a segment with zeros.
pub const FILL_STEP_BYTES: usize = 1 << 20;
/// Bytes of entries that one limited read returns, beyond the first entry.
pub const READ_BYTES_MAX: u64 = 1 << 20;
/// Sizes that a segment may have.
pub const SEGMENT_BYTES_MIN: u64 = 8 << 10;
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
