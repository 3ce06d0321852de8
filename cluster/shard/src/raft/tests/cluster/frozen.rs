//! An owner that stands still while the others go on.

use super::*;
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
