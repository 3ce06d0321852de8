//! A replica whose files are damaged is made again from the others.

use super::*;
use crate::link::{LinkError, RaftFrame, RaftKind};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;

/// Until this node has let go of log of its own, so that only its snapshot reaches back.
async fn until_purged_at(cluster: &Cluster, node: NodeId) {
    let replica = cluster.shard(node).inner.replica().unwrap();
    let filling = async {
        while replica.raft.metrics().borrow_watched().purged.is_none() {
            cluster.commit("fill").await;
        }
    };
    tokio::time::timeout(PATIENCE, filling).await.expect("the log is let go");
}

/// Asks whoever leads until it is done: on a busy machine the leader may be another one from one moment to the next.
async fn ordered(
    cluster: &Cluster,
    nodes: &[NodeId],
    order: impl for<'a> Fn(&'a Shard) -> BoxFuture<'a, Result<(), Error>>,
) {
    let asking = async {
        loop {
            let (_, owner) = cluster.owner_among(nodes.iter().copied()).await;
            if order(&owner.shard).await.is_ok() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("a leader obeys");
}

/// [K3] [FR-083] It is set aside at the open and takes part in nothing; its group votes it out, it is wiped, and it comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_replica_is_set_aside_wiped_and_made_again() {
    for state in [StateBackend::Sled, StateBackend::Memory] {
        let mut cluster = Cluster::empty(state);
        (cluster.snapshot_log_bytes, cluster.keep_log) = (16 << 10, 10);
        let mut cluster = Cluster::founded(cluster, 3).await;
        let (leader, _) = cluster.owner().await;
        let hurt = cluster.others(leader)[0];
        until_purged_at(&cluster, hurt).await;
        cluster.crash(hurt).await;
        let voted = std::fs::read(cluster.dir(hurt).join("folder")).unwrap();
        std::fs::remove_dir_all(cluster.dir(hurt).join("state")).ok();
        let file = cluster.dir(hurt).join("snapshots/shard-0.snap");
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(100).unwrap();

        cluster.open(hurt).await;
        let host = cluster.hosts[&hurt].clone();
        assert_eq!(host.set_aside().into_keys().collect::<Vec<_>>(), [SHARD], "{state:?}");
        let frame = RaftFrame { shard: SHARD, kind: RaftKind::Vote, body: Bytes::new() };
        assert!(matches!(host.raft_request(leader, frame).await, Err(LinkError::Refused(_))), "it votes for nobody");
        let rest = cluster.others(hurt);
        cluster.commit_among("r", rest.clone()).await;

        ordered(&cluster, &rest, |shard| shard.change_voters(ids(cluster.others(hurt))).boxed()).await;
        host.stop_replica(SHARD).await.unwrap();
        assert!(host.set_aside().is_empty() && !file.exists());
        host.start_replica(SHARD).await.unwrap();
        ordered(&cluster, &rest, |shard| shard.add_learner(hurt).boxed()).await;
        cluster.agree_all().await;
        ordered(&cluster, &rest, |shard| shard.change_voters(ids(1..=3)).boxed()).await;
        cluster.commit("r").await;
        cluster.agree_all().await;
        assert_eq!(
            std::fs::read(cluster.dir(hurt).join("folder")).unwrap(),
            voted,
            "the same node, with the same replica"
        );

        // And it is whole after the next start.
        cluster.crash(hurt).await;
        cluster.open(hurt).await;
        assert!(cluster.hosts[&hurt].set_aside().is_empty());
        cluster.agree_all().await;
        cluster.end().await;
    }
}
