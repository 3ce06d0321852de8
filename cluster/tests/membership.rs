//! Clusters in one process: founding, joining, leaving, and what must not happen. Real Raft, a network in memory.

mod common;
mod toy;

use cluster::directory::MemberState;
use cluster::membership::Error;
use cluster::peers::{CallError, Peers, Refused};
use common::net::Line;
use common::{Settings, TestCluster};
use grain_contract::Code;
use granary_proto::peers::{
    AddLearner, ChangeVoters, NodeOrder, NodeOrderAnswer, NodeStatus, StartReplica, StopReplica, TransferLeadership,
    node_order::Order,
};
use prost::Message;
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

/// [K1] The places in between at which it may die, one after the other: nobody told; one told and one not; the book
/// written and the notes still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_first_founder_dies_it_founds_one_cluster() {
    let mut cluster = TestCluster::new(Settings::founders(&ABC));
    cluster.net.lose("book.adopt");
    for name in ABC {
        cluster.start(name).await;
    }
    cluster.until("a has an id", || async { cluster.node("a").host.cluster_id().is_some() }).await;
    let id = cluster.node("a").host.cluster_id();
    looked_at(&cluster, "b").await;
    assert_eq!(clusters(&cluster), BTreeSet::from([None, id]));
    cluster.kill("a").await;
    cluster.net.cut_only(&[("a", "c")]);
    cluster.net.lose_nothing();
    cluster.start("a").await;
    cluster.until("b is told", || async { cluster.node("b").host.cluster_id() == id }).await;
    looked_at(&cluster, "b").await;
    assert_eq!(cluster.node("c").host.cluster_id(), None, "c meets b, which has no book yet");
    let groups = |name| cluster.node(name).host.shard(ShardId(0)).expect("a shard").group();
    assert!(groups("a").voters.is_empty() && groups("b").voters.is_empty(), "no group begins before all are told");
    let notes = std::fs::read(cluster.folder("a").join("founding")).expect("notes");
    cluster.kill("a").await;
    cluster.net.heal();
    cluster.start("a").await;
    for name in ABC {
        cluster.entered(name).await;
    }
    cluster.at_rest(&ABC, 3).await;
    cluster.kill("a").await;
    std::fs::write(cluster.folder("a").join("founding"), &notes).expect("written");
    cluster.start("a").await;
    cluster.entered("a").await;
    assert_eq!(clusters(&cluster), BTreeSet::from([id]));
    assert!(!cluster.folder("a").join("founding").exists());
    cluster.at_rest(&ABC, 3).await;
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
    cluster.at_rest_after_grace(&left, 3).await;
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
    cluster.until("it is gone", || async { cluster.state("a", "c") == MemberState::Gone }).await;
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

/// [FR-152] [K8] A director that was frozen and goes on, and orders that would cost data, however they came about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_dangerous_orders_are_refused() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    let director = ABC.into_iter().find(|name| cluster.directs(name)).expect("one directs");
    let other = ABC.into_iter().find(|name| *name != director).expect("another");
    let epoch = cluster.node(director).host.shard(ShardId(0)).expect("a shard").group().term.0;
    let (leader, me) = (cluster.node(director).host.node_id(), cluster.node(other).host.node_id());
    let line = Line(cluster.node(director).port.clone());
    let give = |epoch, order| {
        let order = NodeOrder { epoch, shard: 0, order: Some(order) };
        let call = line.call(me, "node.order", order.encode_to_vec().into(), Duration::from_secs(10));
        async { NodeOrderAnswer::decode(call.await.expect("an answer")).expect("an answer").refused }
    };
    let stop = || Order::Stop(StopReplica { leader });
    assert_eq!(give(epoch, stop()).await, "Its leader counts on the replica, or does not know.");
    assert_eq!(give(epoch, Order::Start(StartReplica {})).await, "", "it is there");
    let late = give(epoch - 1, Order::Start(StartReplica {})).await;
    assert_eq!(late, format!("Expected the director of epoch {epoch} or later, but found epoch {}.", epoch - 1));
    let change = ChangeVoters { expected: vec![1, 2], voters: vec![1] };
    assert!(give(epoch, Order::ChangeVoters(change)).await.starts_with("Expected the voters"));
    let by_no_leader = give(epoch, Order::AddLearner(AddLearner { node_id: 77 })).await;
    assert!(!by_no_leader.is_empty(), "only a leader can");
    assert_eq!(cluster.node(other).host.hosted().len(), 4);
    let nonsense = line.call(me, "node.order", vec![0xff; 9].into(), Duration::from_secs(10)).await;
    assert!(matches!(nonsense, Err(CallError::Refused(Refused::BadRequest(_)))));
    let unknown = line.call(me, "node.dance", Default::default(), Duration::from_secs(10)).await;
    assert!(matches!(unknown, Err(CallError::Refused(Refused::UnknownMethod(_)))));
}

/// [P6] [K4] A node that is about to stop leads nothing soon, is given nothing, and answers until the end; it keeps its replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_is_given_no_leadership() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    let membership = cluster.node("a").membership();
    let (going, staying) = (cluster.node("c"), cluster.node("a").host.node_id());
    going.membership().leave(Duration::from_secs(60)).await;
    let leads_nothing = || async {
        // Who leaves directs no more; its drain, which would come next, gives shard 0 away.
        if cluster.directs("c") {
            going.host.shard(ShardId(0)).expect("a shard").transfer_leadership(staying).await.ok();
        }
        let status = cluster.node("a").status().await;
        status.shards.iter().all(|shard| shard.leader.as_deref().is_some_and(|leader| leader != "c"))
    };
    cluster.until("its shards are led by others", leads_nothing).await;
    for shard in 0..4 {
        let refused = membership.transfer_shard(shard, "c").await.expect_err("refused");
        assert_eq!(refused.code, Code::WrongState, "{refused:?}");
    }
    // Nor by an order that was under way.
    let order = |shard| NodeOrder {
        epoch: 0,
        shard,
        order: Some(Order::Transfer(TransferLeadership { node_id: going.host.node_id() })),
    };
    let line = Line(going.port.clone());
    for shard in 0..4 {
        let call = line.call(staying, "node.order", order(shard).encode_to_vec().into(), Duration::from_secs(10));
        let answer = NodeOrderAnswer::decode(call.await.expect("an answer")).expect("an answer");
        assert!(answer.refused.contains("about to stop"), "{}", answer.refused);
    }
    assert_eq!(going.host.hosted().len(), 4);
    assert_eq!(cluster.state("a", "c"), MemberState::Up);
}

/// [K4] Whoever leads because people wanted it says so to every director.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_that_people_have_put_somewhere_is_known_as_such() {
    let cluster = TestCluster::founded(Settings::founders(&ABC)).await;
    cluster.at_rest(&ABC, 3).await;
    let membership = cluster.node("a").membership();
    let (line, to) = (Line(cluster.node("a").port.clone()), cluster.node("b").host.node_id());
    let held = || async {
        if membership.transfer_shard(2, "b").await.is_err() {
            return false;
        }
        let call = line.call(to, "node.status", Default::default(), Duration::from_secs(10));
        let Ok(answer) = call.await else { return false };
        let status = NodeStatus::decode(answer).expect("a status");
        status.groups.iter().any(|group| group.shard == 2 && group.leads && group.held)
    };
    // An election in between is a leadership that nobody asked for.
    cluster.until("it is held", held).await;
}
