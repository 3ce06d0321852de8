//! Whether this process is alive and whether it should get traffic.

use crate::directory::MemberState;
use crate::hub::Hub;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// False only if nothing but a restart helps.
    pub live: bool,
    /// True if traffic is welcome. Alone: every shard has a leader and all services run. In a cluster: this node belongs to
    /// it, is not cut off from it and its own services run; a single shard without a leader makes no node unready.
    pub ready: bool,
    /// Why it is not ready, one sentence each.
    pub reasons: Vec<String>,
    /// What is wrong and does not keep traffic away, one sentence each.
    pub troubles: Vec<String>,
}

/// `services`: the complaints of those of the whole silo.
pub(crate) fn of(hub: &Hub, services: impl Iterator<Item = String>) -> Health {
    let stopped: Option<String> = hub.rooms.iter().find_map(|room| room.store.stopped());
    let live = stopped.is_none();
    let mut reasons: Vec<String> = stopped.map(|why| format!("the store has stopped: {why}")).into_iter().collect();
    if hub.is_draining() {
        reasons.push("this silo is shutting down".to_owned());
    }
    let mut troubles = Vec::new();
    for room in hub.rooms.iter() {
        let leaderless = (room.store.hosted() && room.store.leadership().borrow().leader.is_none())
            .then(|| format!("shard {}: it has no leader", room.id.0));
        let aside = room.store.aside().map(|why| format!("shard {}: what is here of it is damaged: {why}", room.id.0));
        reasons.extend(room.complaints());
        let of_shard = leaderless.into_iter().chain(aside);
        if hub.around.is_alone() { reasons.extend(of_shard) } else { troubles.extend(of_shard) }
    }
    reasons.extend(services);
    if !hub.around.is_alone() {
        reasons.extend(apart(hub));
        reasons.extend(hub.clocks.complaint());
    }
    Health { live, ready: reasons.is_empty(), reasons, troubles }
}

/// Why this node is no part of a working cluster, if it is none. A leader that this node cannot reach does not count: what it
/// remembers of one may be long past.
pub(crate) fn apart(hub: &Hub) -> Option<String> {
    let view = hub.around.directory.view();
    if view.cluster.is_none() {
        return Some("it belongs to no cluster yet".to_owned());
    }
    let me = hub.around.peers.me();
    let attached: BTreeSet<u64> = hub.around.peers.attached().borrow().keys().copied().collect();
    let members = view.members.values().filter(|member| member.state != MemberState::Gone);
    let (mut all, mut near) = (0, 0);
    for member in members {
        all += 1;
        near += usize::from(member.node == me || attached.contains(&member.node));
    }
    let led =
        |room: &crate::room::Room| room.store.leadership().borrow().leader.is_some_and(|node| attached.contains(&node));
    let fine = 2 * near > all || hub.rooms.iter().any(|room| room.store.hosted() && led(room));
    (!fine).then(|| format!("it is cut off: of {all} members it reaches {near}"))
}
