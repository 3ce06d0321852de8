//! From any state that can come about, plans come to rest, and no step on the way is a dangerous one (`World` checks each).

use super::world::World;
use crate::directory::MemberState;
use shard::NodeId;
use std::collections::BTreeSet;

/// A small stream of numbers from a seed: the tests want the same worlds on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).expect("small")
    }

    fn of(&mut self, nodes: &BTreeSet<NodeId>) -> Option<NodeId> {
        (!nodes.is_empty()).then(|| *nodes.iter().nth(self.below(nodes.len())).expect("in range"))
    }
}

/// One thing that may happen to a cluster.
fn happen(world: &mut World, draw: &mut Draw, next_id: &mut NodeId) {
    let present: BTreeSet<NodeId> =
        world.book.members.values().filter(|m| m.state == MemberState::Up).map(|m| m.node).collect();
    let up: BTreeSet<NodeId> = present.intersection(&world.up).copied().collect();
    match draw.below(8) {
        0 => {
            world.add(*next_id);
            *next_id += 1;
        }
        1 if up.len() > 3 => world.state(draw.of(&up).expect("some"), MemberState::Removing),
        2 if up.len() > 3 => world.state(draw.of(&up).expect("some"), MemberState::Draining),
        3 if up.len() > 3 => {
            let lost = draw.of(&up).expect("some");
            world.lose_volume(lost, *next_id);
            *next_id += 1;
        }
        // One at a time is away: with more, groups have no majority, and plans wait for it.
        4 if world.up.len() == present.len().max(4) => world.kill(draw.of(&up).expect("some")),
        5 => {
            let back: Vec<_> = present.difference(&world.up).copied().collect();
            world.up.extend(back);
            world.dead.clear();
        }
        6 => world.dead = present.difference(&world.up).copied().collect(),
        _ => {
            let draining: Vec<_> = world.book.members.values().filter(|m| m.state == MemberState::Draining).collect();
            if let Some(node) = draining.first().map(|member| member.node) {
                world.state(node, MemberState::Up);
            }
        }
    }
    world.elect();
}

/// [K8]
#[test]
fn from_any_state_plans_come_to_rest() {
    for seed in 0..40 {
        let mut draw = Draw(seed);
        let (nodes, shards) = (1 + draw.below(6) as u64, 1 + u32::try_from(draw.below(20)).expect("small"));
        let mut world = World::founded(nodes, shards);
        let mut next_id = 100;
        for _ in 0..12 {
            happen(&mut world, &mut draw, &mut next_id);
            // A few plans in between, so that the next thing happens in the middle of moves.
            for _ in 0..draw.below(4) {
                let plan = world.plan();
                world.apply(&plan);
            }
        }
        let back: Vec<_> =
            world.book.members.values().filter(|m| m.state != MemberState::Gone).map(|m| m.node).collect();
        world.up.extend(back);
        world.dead.clear();
        world.elect();
        // Who was wiped while it was away is found when it is back.
        if world.rafts.iter().any(|raft| raft.leader.is_none()) {
            continue;
        }
        world.settle();
        world.assert_tidy();
        let removing = world.book.members.values().any(|member| member.state == MemberState::Removing);
        assert!(!removing, "seed {seed}");
    }
}
