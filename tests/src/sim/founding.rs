//! Getting a cluster to run.

use super::world::World;
use cluster::directory::View;
use shard::{Host, NodeId, ShardId};
use std::collections::BTreeSet;

/// Waits until every shard has an owner; false, with a complaint, if that does not come.
pub fn found(world: &mut World, within_us: u64) -> bool {
    let until = world.now_us + within_us;
    let mut begun = world.options.nodes == 1;
    while world.now_us < until {
        world.step();
        if world.machines.iter().any(|machine| machine.failed().is_some()) || !world.court.is_content() {
            break;
        }
        if !begun {
            begun = begin(world);
        } else if is_served(world) {
            return true;
        }
    }
    let why: Vec<_> = world.machines.iter().map(|machine| machine.failed()).collect();
    world.court.complain(format!("the cluster was not founded: {why:?}"));
    false
}

/// Makes every machine a voter of every shard, once all have come up.
fn begin(world: &mut World) -> bool {
    let hosts: Vec<Host> = world.machines.iter().filter_map(|machine| machine.host()).collect();
    if hosts.len() < world.machines.len() {
        return false;
    }
    let voters: BTreeSet<NodeId> = hosts.iter().map(Host::node_id).collect();
    let cluster = world.chance.uuid();
    let places = vec![voters.iter().copied().collect(); world.options.shards as usize];
    world.view = Some(View { cluster: Some(cluster), version: 1, places, ..View::default() });
    world.tell_view();
    for (at, machine) in world.machines.iter().enumerate() {
        let (Some(host), Some(handle)) = (machine.host(), machine.handle()) else { continue };
        let (voters, court) = (voters.clone(), world.court.clone());
        handle.spawn(async move {
            let begun = async {
                host.adopt(cluster).await?;
                for shard in (0..host.shards()).map(ShardId) {
                    host.start_replica(shard).await?;
                    if at == 0 {
                        host.found(shard, voters.clone()).await?;
                    }
                }
                Ok::<(), shard::Error>(())
            };
            if let Err(error) = begun.await {
                court.complain(format!("machine {at} could not be founded: {error}"));
            }
        });
    }
    true
}

/// Whether somebody owns each shard.
fn is_served(world: &World) -> bool {
    let hosts: Vec<Host> = world.machines.iter().filter_map(|machine| machine.host()).collect();
    let is_owned = |n: u32| {
        let owns = |host: &Host| host.shard(ShardId(n)).is_some_and(|s| s.leadership().borrow().epoch.is_some());
        hosts.iter().any(owns)
    };
    (0..world.options.shards).all(is_owned)
}
