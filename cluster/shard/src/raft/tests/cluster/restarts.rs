//! Nodes that end and begin again.

use super::members::fill;
use super::*;
use uuid::Uuid;

/// [K3] [FR-122]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_end_of_all_nodes_everything_acknowledged_is_there() {
    for state in [StateBackend::Sled, StateBackend::Memory] {
        let mut cluster = Cluster::founded(Cluster::empty(state), 3).await;
        for round in 0..3 {
            let (_, owner) = cluster.owner().await;
            fill(&owner, 25).await;
            let epoch = owner.epoch;
            let committed = cluster.commit("r").await;
            let before = cluster.agree_all().await;
            for node in 1..=3 {
                if round % 2 == 0 { cluster.crash(node).await } else { cluster.close(node).await }
            }
            for node in 1..=3 {
                cluster.open(node).await;
            }
            let (_, owner) = cluster.owner().await;
            assert!(owner.epoch > epoch);
            assert_eq!(owner.shard.grain(&grain("r")).unwrap().revision, committed.revision);
            assert_eq!(cluster.agree_all().await.tables, before.tables, "{state:?} {round}");
        }
        cluster.end().await;
    }
}

/// [K3] One after the other, under work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing() {
    let mut cluster = Cluster::of(3).await;
    let mut revision = 0;
    for node in [1, 2, 3, 1, 2, 3] {
        revision = cluster.commit("r").await.revision.0.max(revision + 1);
        cluster.crash(node).await;
        revision = cluster.commit("r").await.revision.0.max(revision + 1);
        cluster.open(node).await;
        cluster.agree_all().await;
    }
    let (_, owner) = cluster.owner().await;
    assert!(owner.shard.grain(&grain("r")).unwrap().revision.0 >= revision);
    cluster.end().await;
}

/// [K8] Number, cluster and replicas are the folder's.
#[tokio::test]
async fn a_host_remembers_who_it_is_and_what_it_hosts() {
    let mut cluster = Cluster::empty(StateBackend::Memory);
    cluster.open(5).await;
    let host = &cluster.hosts[&5];
    assert_eq!((host.node_id(), host.cluster_id(), host.hosted()), (5, None, vec![]));
    let id = Uuid::new_v4();
    host.adopt(id).await.unwrap();
    host.adopt(id).await.unwrap();
    assert!(matches!(host.adopt(Uuid::new_v4()).await, Err(Error::WrongFolder { .. })));
    host.start_replica(ShardId(1)).await.unwrap();
    cluster.crash(5).await;
    cluster.open(5).await;
    let host = &cluster.hosts[&5];
    assert_eq!((host.cluster_id(), host.hosted()), (Some(id), vec![ShardId(1)]));
    // It has not founded anything by itself.
    assert_eq!(host.shard(ShardId(1)).unwrap().group().role, Role::Learner);
    let leader = host.shard(ShardId(1)).unwrap().leadership();
    assert_eq!(*leader.borrow(), Default::default());
    cluster.end().await;
}
