//! What this node says of itself: for the director at each look, and with more figures for people.

use super::ground::Inner;
use super::orders;
use granary_proto::peers::{GroupStatus, NodeStatus, NodeStatusRequest, ReplicaProgress, SetAside};
use shard::{GroupView, ShardId};
use std::sync::atomic::Ordering::Acquire;

pub(super) async fn of_this_node(inner: &Inner, request: &NodeStatusRequest) -> NodeStatus {
    let host = &inner.ground.host;
    let figures = if request.figures { Some(inner.ground.silo.figures().await) } else { None };
    let groups = host.hosted().into_iter().filter_map(|id| {
        let view = host.shard(id)?.group();
        let mut group = of_group(id, &view);
        group.held = group.leads
            && inner.held.is_held(id, group.term, &inner.ground.directory.view(), inner.ground.clock.monotonic_ms());
        if let Some(owned) = figures.as_ref().and_then(|figures| figures.owned.get(&id)) {
            group.overdue_reminders = owned.overdue_reminders;
            group.outbox_calls_open = owned.outbox_calls_open;
            group.open_runs = owned.open_grains;
        }
        Some(group)
    });
    NodeStatus {
        name: inner.options.name.clone(),
        node_id: inner.me(),
        boot: inner.ground.boot,
        cluster_id: inner.cluster().map(|id| id.to_string()).unwrap_or_default(),
        view_version: inner.ground.directory.view().version,
        leaving: inner.leaving.load(Acquire),
        groups: groups.collect(),
        active_grains: figures.as_ref().map_or(0, |figures| figures.active_grains),
        workers: figures.as_ref().map_or(0, |figures| figures.workers),
        set_aside: host.set_aside().into_iter().map(|(id, why)| SetAside { shard: id.0, why }).collect(),
        clock_off_ms: inner.ground.silo.clocks().off_ms(),
    }
}

fn of_group(shard: ShardId, group: &GroupView) -> GroupStatus {
    let progress = group.replicas.iter().map(|(node, replica)| ReplicaProgress {
        node_id: *node,
        matched: replica.matched.unwrap_or(0),
        heard_of: replica.matched.is_some(),
    });
    GroupStatus {
        shard: shard.0,
        term: group.term.0,
        leader: group.leader.unwrap_or(0),
        leads: group.role == shard::Role::Leader,
        confirmed: orders::leads(group),
        voters: group.voters.iter().copied().collect(),
        learners: group.learners.iter().copied().collect(),
        settled: group.settled,
        last_log: group.last_log,
        applied: group.applied,
        progress: progress.collect(),
        ..GroupStatus::default()
    }
}
