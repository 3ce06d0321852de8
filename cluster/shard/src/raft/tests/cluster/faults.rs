//! One replica fails, or one thing on its disk, and the node goes on.

use super::members::fill;
use super::*;

/// [K5] A group that ends by itself on its leader's node is led elsewhere or again, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_ends_by_itself_is_started_again_and_the_node_goes_on() {
    let cluster = Cluster::of(3).await;
    let (leader, owner) = cluster.owner().await;
    fill(&owner, 20).await;
    owner.shard.inner.replica().unwrap().raft.shutdown().await.unwrap();
    let refused = owner.commit("r", 0, Turn::default()).await;
    assert!(matches!(refused, Err(Error::Unknown(_) | Error::NotLeader { .. })), "{refused:?}");
    assert_eq!(cluster.hosts[&leader].stopped(), None);
    // Another one leads, or the same one in a later epoch when it is back.
    cluster.commit("r").await;
    assert!(cluster.owner().await.1.epoch > owner.epoch);
    cluster.sees(leader, |group| group.leader.is_some()).await;
    assert_eq!(cluster.hosts[&leader].restarts(), 1);
    cluster.commit("r").await;
    cluster.agree_all().await;
    cluster.end().await;
}

/// A snapshot that cannot be written costs log that stays, and nothing else; later ones are written again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_cannot_be_written_stops_nothing() {
    for once_before in [false, true] {
        let mut cluster = Cluster::empty(StateBackend::Memory);
        (cluster.snapshot_log_bytes, cluster.keep_log) = (8 << 10, 10);
        let cluster = Cluster::founded(cluster, 3).await;
        let (leader, owner) = cluster.owner().await;
        let inner = &owner.shard.inner;
        let taken = || {
            use openraft::async_runtime::WatchReceiver;
            let replica = inner.replica().unwrap();
            replica.raft.metrics().borrow_watched().snapshot.map(|id| id.index)
        };
        let until = async |what: &dyn Fn() -> bool| {
            let filling = async {
                while !what() {
                    fill(&owner, 10).await;
                }
            };
            tokio::time::timeout(PATIENCE, filling).await.expect("it comes to that");
        };
        if once_before {
            until(&|| taken().is_some()).await;
        }
        let (folder, aside) = (cluster.dir(leader).join("snapshots"), cluster.dir(leader).join("aside"));
        std::fs::rename(&folder, &aside).unwrap();
        std::fs::write(&folder, "a file where the folder should be").unwrap();
        let failed = *inner.snapshots.borrow();
        until(&|| *inner.snapshots.borrow() > failed + 1).await;
        assert_eq!(cluster.hosts[&leader].stopped(), None);
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(&aside, &folder).unwrap();
        let before = taken();
        until(&|| taken() > before).await;
        cluster.agree_all().await;
        cluster.end().await;
    }
}
