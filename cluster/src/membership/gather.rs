//! The cluster as all its nodes say it is.

use super::director::ask_all;
use super::ground::Inner;
use super::status::{ClusterStatus, NodeStatus, ReplicaStatus, ShardStatus};
use crate::directory::{Member, MemberState, View};
use granary_proto::peers::{GroupStatus, NodeStatus as Told};
use shard::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn gather(inner: &Arc<Inner>) -> ClusterStatus {
    let view = inner.ground.directory.view();
    let members: Vec<&Member> = view.members.values().filter(|member| member.state != MemberState::Gone).collect();
    let nodes: Vec<NodeId> = members.iter().map(|member| member.node).collect();
    let told = ask_all(inner, &nodes, true).await;
    let mut nodes: Vec<NodeStatus> = members.iter().map(|member| node(member, told.get(&member.node))).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let shards = 0..inner.ground.host.shards();
    ClusterStatus {
        cluster_id: inner.cluster().map(|id| id.to_string()).unwrap_or_default(),
        version: view.version,
        shards: shards.map(|number| shard(number, &view, &told)).collect(),
        nodes,
        answered_by: inner.options.name.clone(),
    }
}

fn node(member: &Member, told: Option<&Told>) -> NodeStatus {
    let groups = || told.into_iter().flat_map(|told| &told.groups);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    NodeStatus {
        name: member.name.clone(),
        node: member.node,
        state: member.state,
        reachable: told.is_some(),
        client_address: member.client_address.clone(),
        zone: member.zone.clone(),
        build: member.build.clone(),
        generation: member.generation,
        leads: count(groups().filter(|group| group.leads).count()),
        replicas: count(groups().count()),
        active_grains: told.map_or(0, |told| told.active_grains),
        overdue_reminders: groups().map(|group| group.overdue_reminders).sum(),
        outbox_calls_open: groups().map(|group| group.outbox_calls_open).sum(),
        workers: told.map_or(0, |told| told.workers),
        damaged: told.into_iter().flat_map(|told| &told.set_aside).map(|it| (it.shard, it.why.clone())).collect(),
        clock_off_ms: told.and_then(|told| told.clock_off_ms),
    }
}

fn shard(number: u32, view: &View, told: &BTreeMap<NodeId, Told>) -> ShardStatus {
    let group = |told: &'_ Told| told.groups.iter().find(|group| group.shard == number).cloned();
    let groups = told.iter().filter_map(|(node, told)| Some((*node, group(told)?)));
    let lead = groups.filter(|(_, group)| group.leads).max_by_key(|(_, group)| (group.confirmed, group.term));
    let name = |node: NodeId| view.members.get(&node).map_or_else(|| format!("{node:016x}"), |m| m.name.clone());
    let Some((leader, group)) = lead else {
        let places = view.places.get(number as usize).into_iter().flatten();
        let replicas = places.map(|node| ReplicaStatus { node: name(*node), voter: true, lag: None });
        return ShardStatus { shard: number, replicas: replicas.collect(), ..ShardStatus::default() };
    };
    let lag = |node: NodeId| {
        let known = group.progress.iter().find(|replica| replica.node_id == node && replica.heard_of);
        known.map(|replica| group.last_log.saturating_sub(replica.matched))
    };
    let all = group.voters.iter().map(|node| (*node, true)).chain(group.learners.iter().map(|node| (*node, false)));
    ShardStatus {
        shard: number,
        leader: Some(name(leader)),
        epoch: group.term,
        replicas: all.map(|(node, voter)| ReplicaStatus { node: name(node), voter, lag: lag(node) }).collect(),
        overdue_reminders: group.overdue_reminders,
        outbox_calls_open: group.outbox_calls_open,
        open_runs: group.open_runs,
        moving: moving(&group, name),
    }
}

fn moving(group: &GroupStatus, name: impl Fn(NodeId) -> String) -> Option<String> {
    if !group.settled {
        return Some("its voters are being changed".to_owned());
    }
    let coming: Vec<String> = group.learners.iter().map(|node| name(*node)).collect();
    (!coming.is_empty()).then(|| format!("{} is catching up", coming.join(", ")))
}
