//! All nodes are asked at once; who does not answer in time is not seen.

use crate::directory::MemberState;
use crate::membership::ask::STATUS;
use crate::membership::book::Book;
use crate::membership::ground::Inner;
use crate::membership::plan::{Group, Seen};
use crate::membership::report;
use futures::future::join_all;
use granary_proto::peers::{GroupStatus, NodeStatus, NodeStatusRequest};
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn look(inner: &Arc<Inner>, book: &Book) -> BTreeMap<NodeId, Seen> {
    let members = book.members.values().filter(|member| member.state != MemberState::Gone);
    let nodes: Vec<NodeId> = members.map(|member| member.node).collect();
    ask_all(inner, &nodes, false).await.into_iter().map(|(node, status)| (node, seen(status))).collect()
}

pub(in crate::membership) async fn ask_all(
    inner: &Arc<Inner>,
    nodes: &[NodeId],
    figures: bool,
) -> BTreeMap<NodeId, NodeStatus> {
    let request = NodeStatusRequest { figures };
    let attached = inner.attached();
    let ask = nodes.iter().map(|node| {
        let attached = attached.contains_key(node);
        async move {
            if *node == inner.me() {
                return Some((*node, report::of_this_node(inner, &request).await));
            }
            // Who is not attached cannot be called; that costs no waiting.
            let asked = attached.then(|| inner.call(*node, STATUS, &request, inner.options.call_within));
            let status: NodeStatus = asked?.await.ok()?;
            (status.node_id == *node).then_some((*node, status))
        }
    });
    join_all(ask).await.into_iter().flatten().collect()
}

fn seen(status: NodeStatus) -> Seen {
    let groups = status.groups.into_iter().map(|group| (ShardId(group.shard), of(group)));
    let set_aside = status.set_aside.into_iter().map(|it| ShardId(it.shard)).collect();
    Seen { leaving: status.leaving, groups: groups.collect(), set_aside }
}

fn of(status: GroupStatus) -> Group {
    let heard_of = status.progress.into_iter().filter(|replica| replica.heard_of);
    Group {
        term: status.term,
        leads: status.leads && status.confirmed,
        voters: status.voters.into_iter().collect(),
        learners: status.learners.into_iter().collect(),
        settled: status.settled,
        held: status.held,
        last_log: status.last_log,
        progress: heard_of.map(|replica| (replica.node_id, replica.matched)).collect(),
    }
}
