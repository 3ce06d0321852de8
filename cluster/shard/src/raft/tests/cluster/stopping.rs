//! A replica is removed, and the process ends at any point of that.

use super::members::fill;
use super::*;
use crate::raft::folder::Folder;
use crate::raft::snapshot::SnapshotFolder;

/// Where the process may end on the way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Point {
    Stamped,
    LogForgotten,
    RowsGone,
}

/// [K8] From the stamp on nothing of the replica counts, and the next open removes what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_was_cut_short_is_finished_at_the_next_open() {
    for point in [Point::Stamped, Point::LogForgotten, Point::RowsGone] {
        for state in BACKENDS {
            let mut cluster = Cluster::empty(state);
            (cluster.snapshot_log_bytes, cluster.keep_log) = (8 << 10, 5);
            let mut cluster = Cluster::founded(cluster, 3).await;
            let (leader, owner) = cluster.owner().await;
            let leaving = cluster.others(leader)[0];
            fill(&owner, 120).await;
            cluster.agree_all().await;
            let rest = ids([1, 2, 3].into_iter().filter(|node| *node != leaving));
            owner.shard.change_voters(rest).await.unwrap();
            let vote = cluster.voted(leaving).await;

            end_at(&cluster, leaving, point).await;
            cluster.crash(leaving).await;
            if point == Point::Stamped {
                // Without the log's own part: the folder alone was written.
                let options = options_of(&cluster.net, leaving, cluster.dir(leaving), state);
                Folder::open(&options).unwrap().host(SHARD.0, false).unwrap();
            }
            cluster.open(leaving).await;
            assert!(cluster.hosts[&leaving].hosted().is_empty(), "{point:?} {state:?}");
            let snapshot = SnapshotFolder::new(&cluster.dir(leaving).join("snapshots"), SHARD.0);
            assert!(!snapshot.path().exists(), "{point:?} {state:?}");

            cluster.hosts[&leaving].start_replica(SHARD).await.unwrap();
            let back = cluster.group(leaving);
            assert_eq!((back.last_log, back.applied), (0, 0), "{point:?} {state:?}");
            assert!(vote > 0 && cluster.voted(leaving).await >= vote, "the vote is kept");
            assert_eq!(cluster.shard(leaving).grain(&grain("fill-1")).unwrap(), Default::default());
            let (_, owner) = cluster.owner().await;
            owner.shard.add_learner(leaving).await.unwrap();
            cluster.agree_all().await;
            cluster.end().await;
        }
    }
}

async fn end_at(cluster: &Cluster, node: NodeId, point: Point) {
    let host = &cluster.hosts[&node];
    let inner = cluster.shard(node).inner;
    if point == Point::Stamped {
        return;
    }
    host.inner.stamp(|folder| folder.host(SHARD.0, false)).await.unwrap();
    inner.take().unwrap().end().await;
    inner.wal.group(SHARD.0).forget().await.unwrap();
    if point == Point::RowsGone {
        let (hold, _) = inner.overlay.hold().await.unwrap();
        hold.written().await.unwrap();
        crate::state::store::wipe_shard(&*hold.overlay().store, SHARD.0).unwrap();
    }
}

/// Commits of other shards go on while one is removed, and their rows stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_shards_of_a_node_do_not_notice() {
    let mut cluster = Cluster::founded(Cluster::empty(StateBackend::Sled), 3).await;
    let other = ShardId(1);
    for node in 1..=3 {
        cluster.hosts[&node].start_replica(other).await.unwrap();
    }
    cluster.hosts[&1].found(other, ids([1, 2, 3])).await.unwrap();
    let shards = join_all((1..=3).map(|node| {
        let shard = cluster.hosts[&node].shard(other).unwrap();
        async move { shard }
    }));
    let shards = shards.await;
    let owner = select_all(shards.into_iter().map(|shard| {
        Box::pin(async move {
            let epoch = shard.leadership().wait_for(|now| now.epoch.is_some()).await.unwrap().epoch.unwrap();
            Owner { shard, epoch }
        })
    }));
    let owner = tokio::time::timeout(PATIENCE, owner).await.unwrap().0;
    fill(&owner, 20).await;
    let (leader, first) = cluster.owner().await;
    let leaving = cluster.others(leader)[0];
    first.shard.change_voters(ids([1, 2, 3].into_iter().filter(|node| *node != leaving))).await.unwrap();
    let (stopped, ()) = tokio::join!(cluster.hosts[&leaving].stop_replica(SHARD), fill(&owner, 20));
    stopped.unwrap();
    let rows = owner.shard.grain(&grain("fill-3")).unwrap();
    assert_eq!(cluster.hosts[&leaving].hosted(), [other]);
    cluster.crash(leaving).await;
    cluster.open(leaving).await;
    let back = cluster.hosts[&leaving].shard(other).unwrap();
    let applied = back.inner.replica().unwrap();
    let upto = owner.shard.group().last_log;
    applied.raft.wait(Some(PATIENCE)).applied_index_at_least(Some(upto), "back").await.unwrap();
    assert_eq!(back.grain(&grain("fill-3")).unwrap(), rows);
    cluster.end().await;
}
