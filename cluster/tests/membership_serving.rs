//! Clusters in one process that serve while nodes come, go, die and lose their disks: nothing is lost, nothing done twice.

mod common;
mod toy;

use cluster::directory::MemberState;
use common::load::Load;
use common::{Settings, TestCluster};
use shard::ShardId;
use std::collections::BTreeSet;
use std::time::Duration;

const ABC: [&str; 3] = ["a", "b", "c"];

fn clusters(cluster: &TestCluster) -> BTreeSet<Option<uuid::Uuid>> {
    cluster.nodes.values().map(|node| node.host.cluster_id()).collect()
}

/// [K1] [K2] Three empty nodes become one cluster, and each of them serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_empty_nodes_become_one_cluster() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    assert_eq!(clusters(&cluster).len(), 1);
    cluster.at_rest(&ABC, 3).await;
    cluster.same_view().await;
    for (n, name) in ABC.iter().enumerate() {
        cluster.until("it serves", || async { cluster.node(name).add("k", &format!("c{n}")).await.is_ok() }).await;
    }
    assert_eq!(cluster.node("a").sum("k").await, Ok(3));
    let views: Vec<_> = cluster.nodes.values().map(|node| node.directory.view()).collect();
    assert!(views.iter().all(|view| *view == views[0] && view.places == vec![view.places[0].clone(); 4]));
    let status = cluster.node("b").status().await;
    let nodes: Vec<_> = status.nodes.iter().map(|it| (it.name.as_str(), it.state, it.reachable, it.replicas)).collect();
    assert_eq!(nodes, ABC.map(|name| (name, MemberState::Up, true, 4)));
    assert_eq!(status.nodes.iter().map(|node| node.leads).sum::<u32>(), 4);
    assert_eq!((status.answered_by.as_str(), status.shards.len()), ("b", 4));
}

/// [K8] [FR-016] A fourth and a fifth node come in under load: only they get replicas, nothing is lost or done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_under_load() {
    let mut cluster = TestCluster::founded(Settings { shards: 8, ..Settings::founders(&ABC) }).await;
    let load = Load::start(&cluster);
    for name in ["d", "e"] {
        cluster.start(name).await;
        cluster.entered(name).await;
    }
    cluster.at_rest(&["a", "b", "c", "d", "e"], 3).await;
    let status = cluster.node("e").status().await;
    for name in ["d", "e"] {
        let node = status.nodes.iter().find(|node| node.name == name).expect("a member");
        assert!(node.replicas > 0, "{status:#?}");
    }
    load.end(&cluster).await;
}

/// [K8] [P6]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_and_another_is_removed_under_load() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    for name in ["d", "e"] {
        cluster.start(name).await;
        cluster.entered(name).await;
    }
    cluster.at_rest(&["a", "b", "c", "d", "e"], 3).await;
    let load = Load::start(&cluster);
    cluster.node("c").membership().drain_node("a", false).await.expect("told");
    cluster.at_rest(&["b", "c", "d", "e"], 3).await;
    assert_eq!(cluster.state("b", "a"), MemberState::Draining);
    cluster.node("a").membership().remove_node("e").await.expect("told");
    cluster.at_rest(&["b", "c", "d"], 3).await;
    cluster.until("e is gone", || async { cluster.state("b", "e") == MemberState::Gone }).await;
    cluster.node("e").membership().removed().await;
    load.end_at(&cluster, &["a", "b", "c", "d"]).await;
    cluster.node("b").membership().drain_node("a", true).await.expect("told");
    cluster.until("a is up", || async { cluster.state("b", "a") == MemberState::Up }).await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
}

/// [K8] [FR-122] One volume of three is lost: the node comes back under its name as a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_volume_heals() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    let old = cluster.node("b").host.node_id();
    cluster.until("it serves", || async { cluster.node("a").add("k", "1").await.is_ok() }).await;
    cluster.lose_volume("b").await;
    cluster.start("b").await;
    cluster.entered("b").await;
    assert_ne!(cluster.node("b").host.node_id(), old);
    cluster
        .until("the old id votes nowhere", || async {
            let groups = (0..4).map(|n| cluster.node("b").host.shard(ShardId(n)).expect("a shard").group());
            groups.into_iter().all(|group| group.voters.len() == 3 && !group.voters.contains(&old))
        })
        .await;
    cluster.at_rest(&ABC, 3).await;
    // It bears the loss of another one now.
    cluster.kill("c").await;
    cluster.until("it serves", || async { cluster.node("b").sum("k").await == Ok(1) }).await;
}

/// [K1] [FR-122] All at once, and back at other addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_cluster_starts_again_at_new_addresses() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.until("it serves", || async { cluster.node("a").add("k", "1").await.is_ok() }).await;
    let id = clusters(&cluster);
    for name in ABC {
        cluster.kill(name).await;
    }
    cluster.start_all(&ABC).await;
    assert_eq!(clusters(&cluster), id);
    cluster.at_rest(&ABC, 3).await;
    cluster.same_view().await;
    let view = cluster.node("c").directory.view();
    for member in view.members.values() {
        assert_eq!(member.client_address, format!("http://{}:{}", member.name, member.boot), "the new one");
        assert_eq!(member.generation, 2, "the old one is known to be over");
    }
    cluster.until("nothing is lost", || async { cluster.node("b").sum("k").await == Ok(1) }).await;
}

/// [FR-122] All at once, and one has lost its volume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_cluster_starts_again_without_one_volume() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.until("it serves", || async { cluster.node("a").add("k", "1").await.is_ok() }).await;
    cluster.lose_volume("a").await;
    for name in ["b", "c"] {
        cluster.kill(name).await;
    }
    cluster.start_all(&ABC).await;
    cluster.at_rest(&ABC, 3).await;
    cluster.until("nothing is lost", || async { cluster.node("a").sum("k").await == Ok(1) }).await;
}

/// [FR-031] [K8] A node flaps twenty times with reminders set: nothing moves, and each fires once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_flaps_twenty_times_moves_nothing_and_loses_no_reminder() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    cluster.same_view().await;
    let due = cluster.set_reminders(12, Duration::from_secs(30)).await;
    let version = cluster.node("a").directory.view().version;
    for round in 0..20 {
        cluster.isolate(ABC[round % 3]);
        let other = ABC[(round + 1) % 3];
        cluster
            .until("the majority serves", || async { cluster.node(other).add("k", &format!("{round}")).await.is_ok() })
            .await;
        cluster.net.heal();
    }
    cluster.at_rest(&ABC, 3).await;
    cluster.same_view().await;
    assert_eq!(cluster.node("a").directory.view().version, version, "nobody moved");
    cluster.advance(Duration::from_secs(60));
    cluster.reminders_told_once(12, due).await;
    assert_eq!(cluster.node("b").sum("k").await, Ok(20));
}

/// [K1] From one node to three: nothing needs three but the safety of a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_grows_to_three() {
    let mut cluster = TestCluster::founded(Settings::founders(&["a"])).await;
    cluster.at_rest(&["a"], 1).await;
    cluster.until("it serves", || async { cluster.node("a").add("k", "1").await.is_ok() }).await;
    cluster.start("b").await;
    cluster.entered("b").await;
    cluster.at_rest(&["a", "b"], 2).await;
    cluster.start("c").await;
    cluster.entered("c").await;
    cluster.at_rest(&ABC, 3).await;
    cluster.kill("a").await;
    cluster.until("it bears a loss", || async { cluster.node("c").sum("k").await == Ok(1) }).await;
}

/// [FR-017] Clocks ten minutes apart: nobody is called dead, joins and moves go on, no reminder is early (the toy panics then).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_minutes_apart_kill_nobody() {
    let skew = [("a".to_owned(), 300_000), ("b".to_owned(), -300_000)].into_iter().collect();
    let mut cluster = TestCluster::founded(Settings { skew, ..Settings::founders(&ABC) }).await;
    cluster.at_rest(&ABC, 3).await;
    let load = Load::start(&cluster);
    for name in ABC {
        cluster
            .until("handed over", || async { cluster.node("a").membership().transfer_shard(0, name).await.is_ok() })
            .await;
    }
    cluster.start("d").await;
    cluster.entered("d").await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    cluster.restart("b").await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    let view = cluster.node("c").directory.view();
    assert!(view.members.values().all(|member| member.state == MemberState::Up));
    load.end_at(&cluster, &["a", "c", "d"]).await;
}

/// [FR-121] A node that is dead for good is removed at once, under load, however far it was behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_removed_at_once() {
    let mut cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.start("d").await;
    cluster.entered("d").await;
    cluster.at_rest(&["a", "b", "c", "d"], 3).await;
    let victim = cluster.holder_besides_the_director().await;
    cluster.kill(&victim).await;
    let load = Load::start(&cluster);
    let left: Vec<String> = cluster.nodes.keys().cloned().collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    cluster.until("told", || async { cluster.node(left[0]).membership().remove_node(&victim).await.is_ok() }).await;
    cluster.at_rest(&left, 3).await;
    cluster.until("it is gone", || async { cluster.state(left[1], &victim) == MemberState::Gone }).await;
    load.end(&cluster).await;
}
