//! Snapshots, and letting the log go behind them.
//!
//! By bytes, not by entries: a shard is due when its log since the last snapshot is larger than the option says and larger
//! than the snapshot itself, so that the work stays in proportion; or when its few old entries keep a whole segment of the
//! shared log alive. One at a time.

use super::shard::ShardInner;
use crate::log::Wal;
use openraft::async_runtime::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;

/// How long one snapshot may take before the next shard gets its turn.
const SNAPSHOT_MS_MAX: u64 = 120_000;
/// The least time between two looks.
const LOOK_MS_MIN: u64 = 50;

pub async fn run(shards: Vec<Arc<ShardInner>>, wal: Arc<Wal>, every: Duration, log_bytes: u64) {
    let mut clock = tokio::time::interval(every.max(Duration::from_millis(LOOK_MS_MIN)));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        for shard in &shards {
            let behind = {
                let metrics = shard.raft.metrics();
                let metrics = metrics.borrow_watched();
                metrics.snapshot.map(|id| id.index)
            };
            let due = wal.bytes_since(shard.id.0, behind) > log_bytes.max(shard.folder.bytes());
            if due || wal.pinning_group() == Some(shard.id.0) {
                snapshot(shard, behind).await;
            }
        }
    }
}

/// Takes a snapshot of everything applied and lets the log behind it go. Raft says so itself if it cannot.
async fn snapshot(shard: &ShardInner, behind: Option<u64>) {
    let Some(applied) = shard.overlay.applied().map(|id| id.index) else { return };
    if behind < Some(applied) {
        if shard.raft.trigger().snapshot().await.is_err() {
            return;
        }
        let taken = shard.raft.wait(Some(Duration::from_millis(SNAPSHOT_MS_MAX)));
        let taken = taken.metrics(|m| m.snapshot.map(|id| id.index) >= Some(applied), "snapshot").await;
        if let Err(error) = taken {
            tracing::warn!(shard = shard.id.0, %error, "a snapshot was not finished");
            return;
        }
    }
    shard.raft.trigger().purge_log(applied).await.ok();
}
