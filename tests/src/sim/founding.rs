//! Getting a cluster to run, and seeing whether it is whole.

use super::world::World;
use shard::{Host, NodeId, Role, ShardId};
use std::collections::BTreeSet;

/// Replicas of a shard, where there are as many machines.
const REPLICAS: usize = 3;
/// Entries that a replica may be behind and count as caught up.
const LAG_MAX: u64 = 200;

/// Waits until the nodes have founded their cluster and every shard is whole; false, with a complaint, if that does not come.
pub fn found(world: &mut World, within_us: u64) -> bool {
    let until = world.now_us + within_us;
    while world.now_us < until {
        world.step();
        if world.machines.iter().any(|machine| machine.failed().is_some()) || !world.court.is_content() {
            break;
        }
        if is_whole(world) {
            return true;
        }
    }
    let why: Vec<_> = world.machines.iter().map(|machine| machine.failed()).collect();
    world.court.complain(format!("the cluster was not founded: {why:?}"));
    false
}

/// Whether every shard has an owner, and all its replicas on machines that are there to stay.
pub fn is_whole(world: &World) -> bool {
    let staying = world.machines.iter().filter(|machine| !world.removed.contains(&machine.slot));
    let hosts: Vec<Host> = staying.filter_map(|machine| machine.host()).collect();
    let nodes: BTreeSet<NodeId> = hosts.iter().map(Host::node_id).collect();
    let replicas = REPLICAS.min(world.options.nodes);
    let is_whole = |shard: ShardId| {
        hosts.iter().filter_map(|host| host.shard(shard)).any(|shard| {
            let group = shard.group();
            shard.leadership().borrow().epoch.is_some()
                && group.role == Role::Leader
                && group.settled
                && group.voters.len() == replicas
                && group.voters.is_subset(&nodes)
                && group.voters.iter().all(|voter| group.lag(*voter).is_some_and(|lag| lag <= LAG_MAX))
        })
    };
    (0..world.options.shards).map(ShardId).all(is_whole)
}

/// What each machine says of the shards that it leads, for whoever wants to know why the cluster is not whole.
pub fn groups(world: &World) -> Vec<String> {
    let mut said = Vec::new();
    for machine in &world.machines {
        let Some(host) = machine.host() else { continue };
        let node = host.node_id();
        said.push(format!("machine {} is node {node}, up {}", machine.slot, machine.is_up()));
        let shards = (0..host.shards()).filter_map(|shard| host.shard(ShardId(shard)));
        let led = shards.filter(|shard| shard.group().role == Role::Leader);
        said.extend(led.map(|shard| format!("it leads {}: {:?}", shard.id().0, shard.group())));
    }
    said
}
