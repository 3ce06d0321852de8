//! Clusters in one process: founding, joining, leaving, and what must not happen. Real Raft, a network in memory.

mod common;
mod toy;

use cluster::membership::Error;
use common::{Settings, TestCluster};
use grain_contract::Code;
use shard::ShardId;
use std::collections::BTreeSet;
use std::time::Duration;

const ABC: [&str; 3] = ["a", "b", "c"];

fn clusters(cluster: &TestCluster) -> BTreeSet<Option<uuid::Uuid>> {
    cluster.nodes.values().map(|node| node.host.cluster_id()).collect()
}

/// Waits until the node was looked at several times more.
async fn looked_at(cluster: &TestCluster, name: &str) {
    let served = || cluster.node(name).port.served.load(std::sync::atomic::Ordering::SeqCst);
    let before = served();
    cluster.until("rounds go by", || async { served() >= before + 4 }).await;
}

/// [K1] Whichever founders meet, there is no cluster before all have, and then there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_halves_never_form_two_clusters() {
    let mut cluster = TestCluster::new(Settings::founders(&ABC));
    cluster.net.cut_only(&[("a", "c"), ("b", "c")]);
    for name in ABC {
        cluster.start(name).await;
    }
    for (cuts, met) in [
        ([("a", "c"), ("b", "c")], "b"),
        ([("a", "b"), ("b", "c")], "c"),
        ([("a", "b"), ("a", "c")], "b"),
        ([("a", "c"), ("b", "c")], "a"),
    ] {
        cluster.net.cut_only(&cuts);
        looked_at(&cluster, met).await;
        assert_eq!(clusters(&cluster), BTreeSet::from([None]), "{cuts:?}");
    }
    assert!(cluster.nodes.values().all(common::Node::is_entering));
    cluster.net.heal();
    for name in ABC {
        cluster.entered(name).await;
    }
    assert_eq!(clusters(&cluster).len(), 1);
    cluster.at_rest(&ABC, 3).await;
}

/// [K1] The first founder dies again and again while it founds; what it has begun it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_founder_that_dies_in_the_middle_goes_on() {
    let mut cluster = TestCluster::new(Settings::founders(&ABC));
    for name in ABC {
        cluster.start(name).await;
    }
    // As soon as it has an id; as soon as another has it; as soon as a group runs.
    let begun = |cluster: &TestCluster, life: usize| match life {
        0 => cluster.node("a").host.cluster_id().is_some(),
        1 => cluster.node("b").host.cluster_id().is_some(),
        _ => cluster.node("b").host.shard(ShardId(0)).expect("a shard").leadership().borrow().leader.is_some(),
    };
    for life in 0..3 {
        cluster.until("the founding has come so far", || async { begun(&cluster, life) }).await;
        cluster.kill("a").await;
        cluster.start("a").await;
    }
    for name in ABC {
        cluster.entered(name).await;
    }
    assert_eq!(clusters(&cluster).len(), 1);
    cluster.at_rest(&ABC, 3).await;
    assert!(!cluster.folder("a").join("founding").exists(), "the notes are gone");
}

/// [K1] An empty first founder that hears of the cluster joins it; one that hears of nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_founder_that_lost_its_disk_founds_no_second_cluster() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    let id = clusters(&cluster);
    cluster.lose_volume("a").await;
    cluster.net.cut("a", "b");
    cluster.net.cut("a", "c");
    cluster.start("a").await;
    assert_eq!(cluster.node("a").host.cluster_id(), None);
    cluster.net.heal();
    cluster.entered("a").await;
    assert_eq!(clusters(&cluster), id);
    cluster.at_rest(&ABC, 3).await;
}

/// [K8] A dead node is replaced when the grace time is over, and not before; when it is back it is a member as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_replaced_after_the_grace_time_only() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.start("d").await;
    cluster.entered("d").await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    let victim = cluster.holder_besides_the_director().await;
    let held = cluster.node(&victim).host.hosted().len();
    assert!(held > 0);
    cluster.kill(&victim).await;
    let left: Vec<String> = cluster.nodes.keys().cloned().collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    cluster.until("all shards are led", || async { cluster.all_led(left[0]).await }).await;
    let before = cluster.voters(left[0]).await;
    cluster.advance(Duration::from_secs(200));
    for name in &left {
        if !cluster.directs(name) {
            looked_at(&cluster, name).await;
        }
    }
    assert_eq!(cluster.voters(left[0]).await, before, "a suspicion moves nothing");
    cluster.advance(Duration::from_secs(301));
    cluster.at_rest(&left, 3).await;
    cluster.start(&victim).await;
    cluster.entered(&victim).await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    assert_eq!(cluster.node(&victim).host.hosted().len(), held, "it has its own again");
}

/// [K1] A folder of another cluster never becomes one of this: the id says so, whatever the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_is_not_taken_in() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    // A cluster of its own, founded while it sees nobody.
    for name in ABC {
        cluster.net.cut("x", name);
    }
    cluster.start_told("x", Settings::founders(&["x"])).await;
    cluster.entered("x").await;
    cluster.net.heal();
    assert_eq!(clusters(&cluster).len(), 2);
    let members = cluster.node("a").directory.view().members.len();
    cluster.restart("x").await;
    assert_eq!((cluster.node("a").directory.view().members.len(), members), (3, 3));
    assert_eq!(cluster.node("x").directory.view().members.len(), 1);
    assert_eq!(clusters(&cluster).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_is_told_to_go() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    cluster.kill("c").await;
    let remove = || async { cluster.node("a").membership().remove_node("c").await.is_ok() };
    cluster.until("told", remove).await;
    cluster.at_rest(&["a", "b"], 2).await;
    cluster.start("c").await;
    let node = cluster.nodes.get_mut("c").expect("started");
    assert!(matches!(node.entered().await, Err(Error::Removed { .. })));
    cluster.kill("c").await;
    std::fs::remove_dir_all(cluster.folder("c")).expect("removed");
    cluster.start("c").await;
    cluster.entered("c").await;
    cluster.at_rest(&ABC, 3).await;
}

/// What people ask for that cannot be: refused with both facts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaderships_are_handed_over_by_name_and_nonsense_is_refused() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    let membership = cluster.node("b").membership();
    for name in ABC {
        cluster.until("handed over", || async { membership.transfer_shard(1, name).await.is_ok() }).await;
        cluster
            .until("led there", || async { cluster.node("a").status().await.shards[1].leader.as_deref() == Some(name) })
            .await;
    }
    let code = |answer: Result<(), grain_contract::Rejection>| answer.expect_err("refused").code;
    assert_eq!(code(membership.transfer_shard(99, "a").await), Code::Invalid);
    assert_eq!(code(membership.transfer_shard(1, "x").await), Code::NotFound);
    assert_eq!(code(membership.drain_node("x", false).await), Code::NotFound);
    membership.drain_node("a", false).await.expect("b and c are up");
    membership.drain_node("b", false).await.expect("c is up");
    assert_eq!(code(membership.drain_node("c", false).await), Code::WrongState);
    assert_eq!(code(membership.remove_node("c").await), Code::WrongState);
}

/// [FR-151] Nobody is ever pushed the book: everybody pulls it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_lost_is_made_good() {
    let mut cluster = TestCluster::new(Settings::founders(&ABC));
    cluster.net.lose("book.learn");
    cluster.start_all(&ABC).await;
    cluster.start("d").await;
    cluster.entered("d").await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    let version = cluster.node("d").directory.view().version;
    cluster.node("d").membership().drain_node("d", false).await.expect("told");
    cluster
        .until("all know it", || async { cluster.nodes.values().all(|node| node.directory.view().version > version) })
        .await;
    cluster.at_rest(&ABC, 3).await;
    cluster.same_view().await;
}
