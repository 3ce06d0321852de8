//! An owner that stands still while the others go on.

use super::*;
use crate::raft::types::TypeConfig;
use openraft::RaftMetrics;
use std::sync::mpsc;

/// What the frozen node is told to do next.
enum Step {
    Freeze(mpsc::Receiver<()>),
    End,
}

/// [FR-001] [FR-063] [K5] A node with a runtime of its own is stopped as a whole, as a stopped process is. When it wakes, the
/// very first thing it does is to confirm and to commit under its old epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_frozen_fails_from_its_first_instruction_on() {
    let mut cluster = Cluster::empty(StateBackend::Memory);
    for node in [2, 3] {
        cluster.open(node).await;
        cluster.hosts[&node].start_replica(SHARD).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let options = options_of(&cluster.net, 1, dir.path(), StateBackend::Memory);
    let (steps, mut taken) = tokio::sync::mpsc::channel(1);
    let (found, mut results) = tokio::sync::mpsc::channel(1);
    let net = cluster.net.clone();
    let node = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let host = Host::open(options).await.unwrap();
            host.start_replica(SHARD).await.unwrap();
            net.attach(&host);
            found.send(None).await.unwrap();
            while let Some(Step::Freeze(woken)) = taken.recv().await {
                let owner = Owner::of(&host, 0).await;
                owner.commit("r", 0, puts([row(1, "n", "before")])).await.unwrap();
                owner.shard.confirm(owner.epoch).await.unwrap();
                found.send(None).await.unwrap();
                // The only thread of this runtime.
                woken.recv().unwrap();
                let confirmed = owner.shard.confirm(owner.epoch).await;
                let committed = owner.commit("r", 1, puts([row(1, "n", "frozen")])).await;
                found.send(Some((confirmed, committed))).await.unwrap();
            }
            net.detach(1);
            host.close().await.unwrap();
        });
    });
    results.recv().await.unwrap();
    cluster.hosts[&2].found(SHARD, ids([1, 2, 3])).await.unwrap();
    let (leader, owner) = tokio::select! {
        found = cluster.owner() => found,
        () = tokio::time::sleep(PATIENCE) => panic!("nobody leads"),
    };
    // Lead the frozen one to be.
    owner.shard.transfer_leadership(1).await.unwrap_or_else(|error| panic!("{leader}: {error}"));
    let (wake, woken) = mpsc::channel();
    steps.send(Step::Freeze(woken)).await.unwrap_or_else(|_| panic!("the node has ended"));
    results.recv().await.unwrap();

    let (_, next) = cluster.owner().await;
    next.commit("r", 1, puts([row(1, "n", "after")])).await.unwrap();
    wake.send(()).unwrap();
    let (confirmed, committed) = results.recv().await.unwrap().unwrap();
    assert!(matches!(confirmed, Err(Error::NotLeader { .. } | Error::Fenced { .. })), "{confirmed:?}");
    assert!(
        matches!(committed, Err(Error::NotLeader { .. } | Error::Fenced { .. } | Error::Unknown(_))),
        "{committed:?}"
    );
    cluster.commit("r").await;
    let (_, now) = cluster.owner().await;
    assert_eq!(now.shard.grain(&grain("r")).unwrap().revision, Revision(3));
    steps.send(Step::End).await.unwrap_or_else(|_| panic!("the node has ended"));
    tokio::task::spawn_blocking(|| node.join().unwrap()).await.unwrap();
    cluster.end().await;
}

/// Waits until a replica's Raft says so. Indexes change without a word to the group's watch.
async fn metrics(cluster: &Cluster, node: NodeId, what: impl Fn(&RaftMetrics<TypeConfig>) -> bool + Send + Sync) {
    let replica = cluster.shard(node).inner.replica().expect("hosts the shard");
    let seen = replica.raft.wait(Some(PATIENCE)).metrics(what, "metrics").await;
    seen.unwrap_or_else(|error| panic!("node {node}: {error}"));
}

/// [FR-001] Answers of long ago come late, as they do to a process that slept: with the first an entry is committed and the
/// peers are told so, with the second one of them seems to have heard that. It has not, and has another leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_long_ago_does_not_count_for_what_was_sent_since() {
    let cluster = Cluster::of(3).await;
    let (old, owner) = cluster.owner().await;
    let [first, second] = cluster.others(old)[..] else { panic!("three nodes") };
    owner.commit("r", 0, puts([row(1, "n", "before")])).await.unwrap();
    cluster.agree_all().await;

    cluster.net.hold(first, old);
    cluster.net.hold(second, old);
    let before = cluster.group(old).last_log;
    let slow = Owner { shard: owner.shard.clone(), epoch: owner.epoch };
    let slow = tokio::spawn(async move { slow.commit("r", 1, puts([row(1, "n", "slow")])).await });
    for node in [first, second] {
        metrics(&cluster, node, |now| now.last_log_index > Some(before)).await;
    }
    cluster.net.cut_off(old);
    let (_, next) = cluster.owner_among([first, second]).await;
    next.commit("r", 2, puts([row(1, "n", "after")])).await.unwrap();

    let told = cluster.net.sent(old, second);
    cluster.net.release(first, old);
    metrics(&cluster, old, |now| now.last_applied.is_some_and(|id| id.index > before)).await;
    let told_again = async {
        while cluster.net.sent(old, second) == told {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, told_again).await.expect("a leader tells what is committed");
    cluster.net.release(second, old);
    // It acknowledges for `second` now, or asks it again because the later one was never answered; and so on until that one's
    // time is over.
    let asked = cluster.net.sent(old, second);
    let over = async {
        loop {
            let confirmed = owner.shard.confirm(owner.epoch).await;
            assert!(matches!(confirmed, Err(Error::NotLeader { .. })), "{confirmed:?}");
            let matched = cluster.group(old).replicas.get(&second).and_then(|replica| replica.matched);
            if matched > Some(before) || cluster.net.sent(old, second) > asked + 3 {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("an answer is acted upon");
    let confirmed = owner.shard.confirm(owner.epoch).await;
    assert!(matches!(confirmed, Err(Error::NotLeader { .. })), "{confirmed:?}");

    cluster.net.heal();
    // Whether it was committed was not known to whoever asked, or it was: it is in the log of all.
    let slow = slow.await.unwrap();
    assert!(matches!(slow, Ok(_) | Err(Error::Unknown(_) | Error::NotLeader { .. })), "{slow:?}");
    cluster.agree_all().await;
    cluster.end().await;
}
