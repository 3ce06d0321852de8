//! Replicas join and leave.

use super::*;

/// [K2] [K8]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_as_a_learner_catches_up_votes_and_another_leaves() {
    let mut cluster = Cluster::of(3).await;
    for _ in 0..20 {
        cluster.commit("r").await;
    }
    cluster.open(4).await;
    let (leader, owner) = cluster.owner().await;
    let leaving = cluster.others(leader)[0];
    // Without a replica it refuses, and says so.
    assert!(!cluster.shard(4).hosted());
    assert!(matches!(cluster.shard(4).grain(&grain("r")), Err(Error::NotHosted { shard: 0 })));
    let refused = Owner { shard: cluster.shard(4), epoch: owner.epoch }.commit("r", 20, Turn::default()).await;
    assert!(matches!(refused, Err(Error::NotLeader { leader: None, .. })), "{refused:?}");
    assert!(matches!(owner.shard.change_voters(ids([1, 2, 4])).await, Err(Error::Change { .. })), "no member yet");

    cluster.hosts[&4].start_replica(SHARD).await.unwrap();
    cluster.hosts[&4].start_replica(SHARD).await.unwrap();
    owner.shard.add_learner(4).await.unwrap();
    owner.shard.add_learner(4).await.unwrap();
    cluster.sees(4, |group| group.role == Role::Learner && group.learners == ids([4])).await;
    cluster.agree_all().await;
    let after: BTreeSet<_> = ids([1, 2, 3, 4]).into_iter().filter(|node| *node != leaving).collect();
    owner.shard.change_voters(after.clone()).await.unwrap();
    owner.shard.change_voters(after.clone()).await.unwrap();
    let group = cluster.sees(4, |group| group.voters == after && group.settled).await;
    assert!(group.learners.is_empty(), "a voter that was removed is no learner");
    assert_eq!(owner.shard.group().lag(4).map(|lag| lag < 1_000), Some(true));

    cluster.hosts[&leaving].stop_replica(SHARD).await.unwrap();
    cluster.hosts[&leaving].stop_replica(SHARD).await.unwrap();
    assert!(cluster.hosts[&leaving].hosted().is_empty());
    assert_eq!(*cluster.shard(leaving).outbox_watch().borrow(), 1);
    cluster.commit("r").await;
    cluster.agree(after).await;
    cluster.end().await;
}

/// [K8] The leader itself is removed: another one takes over, and it commits the change first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_removed_hands_over() {
    let cluster = Cluster::of(3).await;
    let (leader, owner) = cluster.owner().await;
    let rest = ids(cluster.others(leader));
    owner.shard.change_voters(rest.clone()).await.unwrap();
    let (_, next) = cluster.owner_among(rest.clone()).await;
    assert_eq!(next.shard.group().voters, rest);
    cluster.hosts[&leader].stop_replica(SHARD).await.unwrap();
    next.commit("r", 0, Turn::default()).await.unwrap();
    cluster.end().await;
}

/// [FR-122] A volume is lost: the node comes back under its name with a new number and takes the place of the old one, which
/// nobody waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_volume_is_replaced_by_a_new_number() {
    let mut cluster = Cluster::of(3).await;
    cluster.commit("r").await;
    let (leader, _) = cluster.owner().await;
    let lost = cluster.others(leader)[0];
    cluster.crash(lost).await;
    let (_, owner) = cluster.owner().await;
    cluster.open(7).await;
    cluster.hosts[&7].start_replica(SHARD).await.unwrap();
    owner.shard.add_learner(7).await.unwrap();
    let voters: BTreeSet<_> = cluster.hosts.keys().copied().collect();
    owner.shard.change_voters(voters.clone()).await.unwrap();
    cluster.commit("r").await;
    cluster.agree(voters.clone()).await;
    assert_eq!(cluster.group(7).voters, voters);
    cluster.end().await;
}

/// [FR-121] Removing a node that is dead while it needs a snapshot holds nobody up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_follower_that_needs_a_snapshot_is_removed_at_once() {
    let mut cluster = Cluster::empty(StateBackend::Memory);
    (cluster.snapshot_log_bytes, cluster.keep_log) = (16 << 10, 10);
    let mut cluster = Cluster::founded(cluster, 4).await;
    let (leader, _) = cluster.owner().await;
    let dead = cluster.others(leader)[0];
    cluster.crash(dead).await;
    let (_, owner) = cluster.owner().await;
    fill(&owner, 400).await;
    let rest: BTreeSet<_> = cluster.hosts.keys().copied().collect();
    owner.shard.change_voters(rest.clone()).await.unwrap();
    assert_eq!(owner.shard.group().voters, rest);
    cluster.commit("r").await;
    cluster.end().await;
}

/// A change of members without a majority is not done, and is not waited for without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_members_stay_as_they_are() {
    let cluster = Cluster::of(3).await;
    let (leader, owner) = cluster.owner().await;
    cluster.net.cut_off(leader);
    let refused = owner.shard.change_voters(ids([leader])).await;
    assert!(matches!(refused, Err(Error::Unknown(_) | Error::NotLeader { .. })), "{refused:?}");
    let (_, next) = cluster.owner_among(cluster.others(leader)).await;
    cluster.net.heal();
    cluster.sees(leader, |group| group.role == Role::Follower && group.term >= next.epoch).await;
    cluster.commit("r").await;
    cluster.agree_all().await;
    assert_eq!(cluster.group(leader).voters, ids([1, 2, 3]));
    cluster.end().await;
}

/// A replica that was removed and wiped keeps its vote, and comes back as a learner that knows nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_comes_and_goes_and_comes_back_under_one_number() {
    let cluster = Cluster::of(3).await;
    for round in 0..3 {
        let (leader, owner) = cluster.owner().await;
        let moving = cluster.others(leader)[0];
        fill(&owner, 30).await;
        let rest: BTreeSet<_> = ids([1, 2, 3]).into_iter().filter(|node| *node != moving).collect();
        let vote = cluster.voted(moving).await;
        owner.shard.change_voters(rest).await.unwrap();
        cluster.hosts[&moving].stop_replica(SHARD).await.unwrap();
        fill(&owner, 30).await;
        cluster.hosts[&moving].start_replica(SHARD).await.unwrap();
        let back = cluster.group(moving);
        assert!(back.voters.is_empty() && back.last_log == 0, "{back:?}");
        assert!(
            vote > 0 && cluster.voted(moving).await >= vote,
            "round {round}: the vote is a promise given to others"
        );
        owner.shard.add_learner(moving).await.unwrap();
        owner.shard.change_voters(ids([1, 2, 3])).await.unwrap();
        cluster.agree_all().await;
    }
    cluster.end().await;
}

/// [K2] Twice, by two, and with others: the first one counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_founded_once() {
    let cluster = Cluster::of(3).await;
    cluster.commit("r").await;
    for node in 1..=3 {
        cluster.hosts[&node].found(SHARD, ids([node])).await.unwrap();
    }
    cluster.commit("r").await;
    let (_, owner) = cluster.owner().await;
    assert_eq!(owner.shard.group().voters, ids([1, 2, 3]));
    cluster.end().await;

    let mut cluster = Cluster::empty(StateBackend::Memory);
    cluster.open(1).await;
    assert!(matches!(cluster.hosts[&1].found(SHARD, ids([1])).await, Err(Error::NotHosted { .. })));
    cluster.hosts[&1].start_replica(SHARD).await.unwrap();
    assert!(matches!(cluster.hosts[&1].found(SHARD, ids([2, 3])).await, Err(Error::Change { .. })));
    assert!(matches!(cluster.hosts[&1].start_replica(ShardId(99)).await, Err(Error::NotHosted { shard: 99 })));
    cluster.end().await;
}

pub async fn fill(owner: &Owner, commits: u64) {
    for n in 0..commits {
        let key = format!("fill-{}", n % 7);
        let revision = owner.shard.grain(&grain(&key)).unwrap().revision.0;
        let turn = puts([row(1, &format!("{}", n % 5), vec![n as u8; 300])]);
        owner.commit(&key, revision, Turn { outbox: vec![event("e")], ..turn }).await.unwrap();
    }
}
