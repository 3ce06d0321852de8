//! Who leads, with a majority and without.

use super::*;

/// [K3] [K5]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_is_on_every_replica() {
    for state in BACKENDS {
        let cluster = Cluster::founded(Cluster::empty(state), 3).await;
        let (leader, owner) = cluster.owner().await;
        super::picture::work(&owner, 7, 60).await;
        let here = super::picture::picture(&owner.shard).unwrap();
        cluster.agree_all().await;
        for node in cluster.others(leader) {
            assert_eq!(super::picture::picture(&cluster.shard(node)).unwrap(), here, "{state:?} node {node}");
            assert_eq!(cluster.group(node).leader, Some(leader));
            // Event readers read where they are.
            let outbox = cluster.shard(node).outbox_watch();
            assert_eq!(*outbox.borrow(), owner.shard.outbox_bounds().0);
        }
        cluster.end().await;
    }
}

/// [K5] [FR-063] A leader in a minority takes no commit and confirms no read, and what it was told is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_commits_nothing_and_confirms_nothing() {
    let cluster = Cluster::of(3).await;
    let (old, owner) = cluster.owner().await;
    owner.commit("r", 0, puts([row(1, "n", "first")])).await.unwrap();
    owner.shard.confirm(owner.epoch).await.unwrap();
    cluster.net.cut_off(old);

    // Sent before anybody can know: the answer may be that nobody knows, but never that it is done.
    let sent = owner.commit("r", 1, puts([row(1, "n", "lost")])).await;
    assert!(matches!(sent, Err(Error::Unknown(_) | Error::NotLeader { .. })), "{sent:?}");
    let confirmed = owner.shard.confirm(owner.epoch).await;
    assert!(matches!(confirmed, Err(Error::NotLeader { .. })), "{confirmed:?}");
    let again = owner.commit("r", 1, puts([row(1, "n", "lost")])).await;
    assert!(matches!(again, Err(Error::NotLeader { .. } | Error::Unknown(_))), "{again:?}");

    let (new, next) = cluster.owner_among(cluster.others(old)).await;
    assert!(next.epoch > owner.epoch && new != old);
    assert_eq!(next.shard.grain(&grain("r")).unwrap().rows, [row(1, "n", "first")]);
    next.commit("r", 1, puts([row(1, "n", "second")])).await.unwrap();
    assert!(owner.shard.confirm(owner.epoch).await.is_err());

    cluster.net.heal();
    cluster.sees(old, |group| group.role == Role::Follower && group.term >= next.epoch).await;
    cluster.agree_all().await;
    assert_eq!(cluster.shard(old).grain(&grain("r")).unwrap().rows, [row(1, "n", "second")]);
    let late = owner.commit("r", 2, puts([row(1, "n", "late")])).await;
    assert!(matches!(late, Err(Error::NotLeader { .. })), "{late:?}");
    cluster.end().await;
}

/// Requests arrive but no answers, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_deaf_direction_is_as_good_as_a_cut() {
    let cluster = Cluster::of(3).await;
    for answers in [true, false] {
        let (old, owner) = cluster.owner().await;
        cluster.commit("r").await;
        for other in cluster.others(old) {
            if answers { cluster.net.cut(other, old) } else { cluster.net.cut(old, other) }
        }
        // Deaf it keeps the others quiet with what it sends, or it does not; it never commits or confirms.
        let confirmed = owner.shard.confirm(owner.epoch);
        let stuck = tokio::time::timeout(PATIENCE, async {
            let mut confirmed = confirmed.await;
            while confirmed.is_ok() {
                confirmed = owner.shard.confirm(owner.epoch).await;
            }
        });
        stuck.await.expect("the lease ends");
        let refused = owner.commit("r", 1, Turn::default()).await;
        assert!(refused.is_err(), "{refused:?}");
        cluster.net.heal();
        cluster.commit("r").await;
        cluster.agree_all().await;
    }
    cluster.end().await;
}

/// [FR-197] [FR-147] After each of twenty cuts there is a working leader, and each commit that was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flapping_leader_never_leaves_the_shard_without_one() {
    let mut cluster = Cluster::empty(StateBackend::Memory);
    // Snapshots all the time.
    (cluster.snapshot_log_bytes, cluster.keep_log) = (4 << 10, 20);
    cluster.timing = Timing::default();
    let cluster = Cluster::founded(cluster, 3).await;
    let mut revision = 0;
    for round in 0..20 {
        let (leader, _) = cluster.owner().await;
        cluster.net.cut_off(leader);
        let committed = cluster.commit_among("r", cluster.others(leader)).await;
        assert!(committed.revision.0 > revision, "round {round}");
        revision = committed.revision.0;
        cluster.net.heal();
        for _ in 0..5 {
            let committed = cluster.commit("r").await;
            assert!(committed.revision.0 > revision, "round {round}");
            revision = committed.revision.0;
        }
    }
    cluster.agree_all().await;
    let (_, owner) = cluster.owner().await;
    assert!(owner.shard.grain(&grain("r")).unwrap().revision.0 >= revision);
    cluster.end().await;
}

/// [L4]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_repetition_and_delay_only_cost_time() {
    let cluster = Cluster::of(3).await;
    cluster.net.lose_one_in(9);
    cluster.net.delay(Duration::from_millis(3));
    for n in 1..=40 {
        assert_eq!(cluster.commit("r").await.revision.0.min(n), n);
    }
    cluster.net.heal();
    cluster.agree_all().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_handover_moves_the_leadership_and_a_hopeless_one_gives_it_back() {
    let cluster = Cluster::of(3).await;
    let (first, owner) = cluster.owner().await;
    owner.commit("r", 0, Turn::default()).await.unwrap();
    let others = cluster.others(first);
    owner.shard.transfer_leadership(first).await.unwrap();
    assert!(matches!(owner.shard.transfer_leadership(9).await, Err(Error::Change { .. })));

    owner.shard.transfer_leadership(others[0]).await.unwrap();
    let (second, next) = cluster.owner_among([others[0]]).await;
    assert!(next.epoch > owner.epoch);
    next.commit("r", 1, Turn::default()).await.unwrap();
    let refused = owner.shard.transfer_leadership(others[1]).await;
    assert!(matches!(refused, Err(Error::NotLeader { leader: Some(leader), .. }) if leader == second), "{refused:?}");

    // #1747: to one that cannot be reached.
    cluster.net.cut_off(others[1]);
    assert!(matches!(next.shard.transfer_leadership(others[1]).await, Err(Error::Change { .. })));
    cluster.commit_among("r", vec![first, second]).await;
    cluster.net.heal();
    cluster.commit("r").await;
    cluster.agree_all().await;
    cluster.end().await;
}
