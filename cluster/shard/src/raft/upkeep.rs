//! Snapshots, and letting the log go behind them.
//!
//! By bytes, not by entries: a shard is due when its log since the last snapshot is larger than the option says and larger
//! than the snapshot itself, so that the work stays in proportion; or when its few old entries keep a whole segment of the
//! shared log alive. One at a time. A snapshot that cannot be written costs nothing but log that stays; it is tried again.
//!
//! Behind the snapshot a tail of the log is kept for followers: a fixed number of entries for one that was away for a
//! moment, and more for one that answers and is still catching up (else it would get a snapshot, be behind again when it
//! has it, and get the next). Both end where the bytes are more than they are worth.

use super::replica::{Parts, Replica};
use super::shard::ShardInner;
use crate::group::GroupView;
use crate::link::NodeId;
use crate::log::Wal;
use openraft::async_runtime::WatchReceiver;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long one snapshot may take before the next shard gets its turn.
const SNAPSHOT_MAX: Duration = Duration::from_secs(120);
/// The least time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// How long a shard is left alone after a snapshot that failed, in looks.
const RETRY_AFTER_LOOKS: u32 = 20;
/// A follower that has answered within this time is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Log that is kept for followers is at most so many times what leads to a snapshot.
const KEEP_TIMES_MAX: u64 = 4;

pub async fn run(slots: Vec<Arc<ShardInner>>, wal: Arc<Wal>, parts: Arc<Parts>) {
    let options = &parts.options;
    let every = options.checkpoint_every.max(LOOK_MIN);
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failed: HashMap<u32, Instant> = HashMap::new();
    loop {
        clock.tick().await;
        for slot in &slots {
            let Some(replica) = slot.replica() else { continue };
            let shard = slot.id.0;
            let behind = {
                let metrics = replica.raft.metrics();
                let metrics = metrics.borrow_watched();
                metrics.snapshot.map(|id| id.index)
            };
            let pins = wal.pinning_group() == Some(shard);
            // The file is asked for its size only where that may matter: this is looked at twice a second for every shard.
            let logged = wal.bytes_since(shard, behind);
            let due = logged > options.snapshot_log_bytes && logged > slot.folder.bytes();
            if !(due || pins) || failed.get(&shard).is_some_and(|at| at.elapsed() < every * RETRY_AFTER_LOOKS) {
                continue;
            }
            match snapshot(slot, &replica, behind).await {
                Some(taken) => {
                    failed.remove(&shard);
                    let bytes_max = options.snapshot_log_bytes.saturating_mul(KEEP_TIMES_MAX);
                    let least = if pins { taken } else { wal.index_with_behind(shard, bytes_max) };
                    let group = replica.group();
                    if let Some(upto) = purge_upto(taken, &group, parts.node, options.keep_log, least) {
                        replica.raft.trigger().purge_log(upto).await.ok();
                    }
                }
                None => drop(failed.insert(shard, Instant::now())),
            }
        }
    }
}

/// Takes a snapshot of everything applied; tells up to where there is one.
async fn snapshot(slot: &ShardInner, replica: &Replica, behind: Option<u64>) -> Option<u64> {
    let applied = slot.overlay.applied()?.index;
    if behind >= Some(applied) {
        return behind;
    }
    let mut tries = slot.snapshots.subscribe();
    tries.borrow_and_update();
    replica.raft.trigger().snapshot().await.ok()?;
    let taken = async {
        let reached = replica.raft.wait(None);
        let reached = reached.metrics(|now| now.snapshot.map(|id| id.index) >= Some(applied), "snapshot");
        tokio::select! {
            reached = reached => reached.ok().and_then(|now| now.snapshot).map(|id| id.index),
            _ = tries.changed() => None,
        }
    };
    let taken = tokio::time::timeout(SNAPSHOT_MAX, taken).await.ok().flatten();
    if taken.is_none() {
        tracing::warn!(shard = slot.id.0, "a snapshot was not finished; the log stays until one is");
    }
    taken
}

/// The last entry that may go, if any. `least`: entries up to there go whoever wants them.
fn purge_upto(snapshot: u64, group: &GroupView, this: NodeId, keep: u64, least: u64) -> Option<u64> {
    let alone = group.voters.len() <= 1 && group.learners.is_empty();
    if alone {
        return Some(snapshot);
    }
    let answering = group
        .replicas
        .iter()
        .filter(|(node, replica)| **node != this && replica.answered.is_some_and(|ago| ago <= ANSWERED_WITHIN));
    let slowest = answering.map(|(_, replica)| replica.matched.unwrap_or(0)).min().unwrap_or(u64::MAX);
    let upto = snapshot.saturating_sub(keep).min(slowest).max(least.min(snapshot));
    (upto > 0).then_some(upto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::ReplicaView;

    fn group(matched: &[(NodeId, u64, u64)]) -> GroupView {
        let replicas = matched.iter().map(|(node, matched, seconds)| {
            let answered = Some(Duration::from_secs(*seconds));
            (*node, ReplicaView { matched: Some(*matched), answered })
        });
        GroupView { voters: [1, 2, 3].into(), replicas: replicas.collect(), ..GroupView::default() }
    }

    #[test]
    fn the_log_is_kept_for_followers_within_bounds() {
        let all_there = group(&[(1, 900, 0), (2, 900, 0), (3, 890, 0)]);
        let catching_up = group(&[(1, 900, 0), (2, 900, 0), (3, 400, 1)]);
        let gone = group(&[(1, 900, 0), (2, 900, 0), (3, 400, 60)]);
        // (group, least, expected)
        let cases = [
            (&all_there, 0, Some(700)),
            (&catching_up, 0, Some(400)),
            (&catching_up, 500, Some(500)),
            (&catching_up, 9_999, Some(800)),
            (&gone, 0, Some(700)),
            (&gone, 750, Some(750)),
        ];
        for (group, least, expected) in cases {
            assert_eq!(purge_upto(800, group, 1, 100, least), expected, "{group:?} {least}");
        }
        assert_eq!(purge_upto(80, &all_there, 1, 100, 0), None);
        let alone = GroupView { voters: [1].into(), ..GroupView::default() };
        assert_eq!(purge_upto(800, &alone, 1, 100, 0), Some(800), "nobody else wants it");
    }
}
