//! Followers that were away.

use super::members::fill;
use super::*;

/// Small snapshots and a short tail, so that a follower that was away is soon far behind.
async fn short_logs(state: StateBackend) -> Cluster {
    let mut cluster = Cluster::empty(state);
    (cluster.snapshot_log_bytes, cluster.keep_log) = (16 << 10, 10);
    Cluster::founded(cluster, 3).await
}

/// Commits until the leader has let go of the log that this index lies in.
async fn until_purged(cluster: &Cluster, index: u64) {
    let (leader, _) = cluster.owner().await;
    until_purged_at(cluster, leader, index).await;
}

async fn until_purged_at(cluster: &Cluster, leader: NodeId, index: u64) {
    let (_, owner) = cluster.owner_among([leader]).await;
    let replica = owner.shard.inner.replica().unwrap();
    let purged = || {
        use openraft::async_runtime::WatchReceiver;
        replica.raft.metrics().borrow_watched().purged.map(|id| id.index)
    };
    let filling = async {
        while purged() <= Some(index) {
            fill(&owner, 20).await;
        }
    };
    tokio::time::timeout(PATIENCE, filling).await.expect("the log is let go");
}

/// [K3] [K8] #1828, #1706 of openraft.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_far_behind_gets_the_snapshot_also_when_it_is_cut_in_the_middle() {
    for state in BACKENDS {
        let mut cluster = short_logs(state).await;
        let (leader, _) = cluster.owner().await;
        let away = cluster.others(leader)[0];
        let index = cluster.group(away).last_log;
        cluster.crash(away).await;
        until_purged(&cluster, index + 400).await;
        cluster.net.cut_snapshots_after(1);
        cluster.open(away).await;
        let begun = async {
            while cluster.net.snapshots() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.expect("snapshots are tried again");
        cluster.net.heal();
        cluster.commit("r").await;
        cluster.agree_all().await;
        assert!(no_leftovers(cluster.dir(away)), "{state:?}");
        // And what came by snapshot outlives a crash.
        cluster.crash(away).await;
        cluster.open(away).await;
        cluster.commit("r").await;
        cluster.agree_all().await;
        cluster.end().await;
    }
}

fn no_leftovers(dir: &Path) -> bool {
    let mut names = std::fs::read_dir(dir.join("snapshots")).unwrap().map(|entry| entry.unwrap().file_name());
    !names.any(|name| name.to_string_lossy().contains(".in-"))
}

/// Within the kept tail the log is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_away_for_a_moment_gets_the_log() {
    let mut cluster = Cluster::empty(StateBackend::Memory);
    (cluster.snapshot_log_bytes, cluster.keep_log) = (64 << 10, 5_000);
    let mut cluster = Cluster::founded(cluster, 3).await;
    let (leader, _) = cluster.owner().await;
    let away = cluster.others(leader)[0];
    cluster.crash(away).await;
    let (_, owner) = cluster.owner().await;
    fill(&owner, 300).await;
    cluster.open(away).await;
    cluster.agree_all().await;
    assert_eq!(cluster.net.snapshots(), 0);
    cluster.end().await;
}

/// A new replica of a group whose log has long gone begins with the snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_of_an_old_group_begins_with_the_snapshot() {
    let mut cluster = short_logs(StateBackend::Sled).await;
    until_purged(&cluster, 100).await;
    cluster.open(4).await;
    cluster.hosts[&4].start_replica(SHARD).await.unwrap();
    let (_, owner) = cluster.owner().await;
    owner.shard.add_learner(4).await.unwrap();
    cluster.agree_all().await;
    assert!(cluster.net.snapshots() > 0);
    // Its outbox goes on where the others' does.
    let next = owner.shard.outbox_bounds().0;
    assert_eq!(*cluster.shard(4).outbox_watch().borrow(), next);
    cluster.end().await;
}

/// [FR-145] A change of members that was never committed dies with the log that a snapshot replaces: the node that proposed
/// it cannot elect itself with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_membership_that_was_never_committed_does_not_outlive_a_snapshot() {
    let cluster = short_logs(StateBackend::Memory).await;
    let (old, owner) = cluster.owner().await;
    cluster.net.cut_off(old);
    let alone = owner.shard.change_voters(ids([old])).await;
    assert!(matches!(alone, Err(Error::Unknown(_))), "{alone:?}");
    assert_eq!(cluster.group(old).voters, ids([1, 2, 3]), "both sides of the change");
    assert!(!cluster.group(old).settled);
    let (next, _) = cluster.owner_among(cluster.others(old)).await;
    let index = cluster.group(next).last_log;
    until_purged_at(&cluster, next, index + 400).await;
    cluster.net.heal();
    cluster.commit("r").await;
    cluster.agree_all().await;
    assert!(cluster.net.snapshots() > 0);
    let group = cluster.sees(old, |group| group.settled).await;
    assert_eq!(group.voters, ids([1, 2, 3]));
    let (leader, _) = cluster.owner().await;
    if leader == old {
        owner.shard.transfer_leadership(next).await.unwrap();
    }
    cluster.net.cut_off(old);
    // Asking nobody first: with the lost membership its own vote would be enough.
    owner.shard.inner.replica().unwrap().raft.trigger().elect(false).await.unwrap();
    cluster.sees(old, |group| group.role == Role::Candidate).await;
    cluster.commit_among("r", cluster.others(old)).await;
    assert_eq!(cluster.shard(old).leadership().borrow().epoch, None);
    cluster.net.heal();
    cluster.commit("r").await;
    cluster.agree_all().await;
    cluster.end().await;
}

/// A snapshot that is not one ends the request and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_bytes_of_a_peer_are_refused_and_change_nothing() {
    use crate::link::{LinkError, RaftFrame, RaftKind};
    use bytes::Bytes;
    let cluster = Cluster::of(3).await;
    cluster.commit("r").await;
    let before = cluster.agree_all().await;
    let (leader, _) = cluster.owner().await;
    let host = &cluster.hosts[&cluster.others(leader)[0]];
    for kind in [RaftKind::Append, RaftKind::Vote, RaftKind::PreVote, RaftKind::Transfer] {
        for length in 0..200 {
            for version in [0, 1, 2] {
                let mut body = vec![0xA5; length];
                if let Some(first) = body.first_mut() {
                    *first = version;
                }
                let answer = host.raft_request(leader, RaftFrame { shard: SHARD, kind, body: body.into() }).await;
                assert!(matches!(answer, Err(LinkError::Refused(_))), "{kind:?} {length}: {answer:?}");
            }
        }
    }
    let nowhere = RaftFrame { shard: ShardId(1), kind: RaftKind::Vote, body: Bytes::new() };
    assert!(matches!(host.raft_request(leader, nowhere).await, Err(LinkError::Refused(_))), "not hosted");
    assert!(host.receive_snapshot(leader, SHARD, Bytes::from_static(b"?")).await.is_err());
    let vote = {
        use openraft::async_runtime::WatchReceiver;
        let replica = cluster.shard(leader).inner.replica().unwrap();
        replica.raft.metrics().borrow_watched().vote
    };
    let head = crate::raft::wire::SnapshotHead { vote, file_bytes: 20 }.write();
    assert!(host.receive_snapshot(99, SHARD, head.clone()).await.is_err(), "in another's name");
    let mut receiver = host.receive_snapshot(leader, SHARD, head.clone()).await.unwrap();
    receiver.write(Bytes::from_static(b"twenty bytes of none")).await.unwrap();
    assert!(receiver.write(Bytes::from_static(b"more")).await.is_err());
    assert!(receiver.finish().await.is_err());
    drop(host.receive_snapshot(leader, SHARD, head).await.unwrap());
    assert_eq!(host.stopped(), None);
    assert_eq!(cluster.agree_all().await, before);
    cluster.end().await;
}
