//! Getting a cluster to run.

use super::world::World;
use shard::ShardId;

/// Waits until every shard has an owner; false, with a complaint, if that does not come.
pub fn found(world: &mut World, within_us: u64) -> bool {
    let until = world.now_us + within_us;
    while world.now_us < until {
        world.step();
        if world.machines.iter().any(|machine| machine.failed().is_some()) || !world.court.is_content() {
            break;
        }
        if is_served(world) {
            return true;
        }
    }
    let why: Vec<_> = world.machines.iter().map(|machine| machine.failed()).collect();
    world.court.complain(format!("the cluster was not founded: {why:?}"));
    false
}

/// Whether somebody owns each shard.
pub fn is_served(world: &World) -> bool {
    let hosts: Vec<_> = world.machines.iter().filter_map(|machine| machine.host()).collect();
    let is_owned = |n: u32| {
        let owns = |host: &shard::Host| host.shard(ShardId(n)).is_some_and(|s| s.leadership().borrow().epoch.is_some());
        hosts.iter().any(owns)
    };
    hosts.len() == world.machines.len() && (0..world.options.shards).all(is_owned)
}
