//! What the director remembers between two looks. Times are milliseconds of its own monotonic clock (FR-017).

use crate::directory::MemberState;
use crate::membership::MembershipOptions;
use crate::membership::book::Book;
use crate::membership::plan::Seen;
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Memory {
    heard: BTreeMap<NodeId, Heard>,
    /// The latest term of each shard, and when it was first seen.
    terms: BTreeMap<ShardId, (u64, u64)>,
}

/// Of one member.
#[derive(Clone, Copy)]
struct Heard {
    /// When it last answered, or was first met in the book.
    at: u64,
    /// Looks since then.
    missed: u32,
}

/// A clock may jump (a machine that was moved, or asleep): silence counts only if it was looked at.
const MISSED_MIN: u32 = 3;

impl Memory {
    pub(super) fn note(&mut self, book: &Book, nodes: &BTreeMap<NodeId, Seen>, now: u64) {
        let is_member = |node: &NodeId| book.members.get(node).is_some_and(|member| member.state != MemberState::Gone);
        self.heard.retain(|node, _| is_member(node));
        for node in book.members.keys().filter(|node| is_member(node)) {
            let heard = self.heard.entry(*node).or_insert(Heard { at: now, missed: 0 });
            if nodes.contains_key(node) {
                *heard = Heard { at: now, missed: 0 };
            } else {
                heard.missed = heard.missed.saturating_add(1);
            }
        }
        let groups = nodes.values().flat_map(|seen| &seen.groups).filter(|(_, group)| group.leads);
        for (shard, group) in groups {
            let (term, since) = self.terms.entry(*shard).or_insert((group.term, now));
            if group.term > *term {
                (*term, *since) = (group.term, now);
            }
        }
    }

    /// Members that have been silent for the whole grace time.
    pub(super) fn dead(&self, options: &MembershipOptions, now: u64) -> BTreeSet<NodeId> {
        let grace = millis(options.dead_node_grace);
        let is_dead =
            |(_, heard): &(&NodeId, &Heard)| now.saturating_sub(heard.at) >= grace && heard.missed >= MISSED_MIN;
        self.heard.iter().filter(is_dead).map(|(node, _)| *node).collect()
    }

    /// Shards whose last election is a while ago.
    pub(super) fn calm(&self, options: &MembershipOptions, now: u64) -> BTreeSet<ShardId> {
        let is_calm = |(_, (_, since)): &(&ShardId, &(u64, u64))| now.saturating_sub(*since) >= millis(options.settle);
        self.terms.iter().filter(is_calm).map(|(shard, _)| *shard).collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Member;
    use crate::membership::plan::Group;
    use grain_contract::Timestamp;
    use uuid::Uuid;

    fn book(nodes: &[NodeId]) -> Book {
        let member = |node: &NodeId| Member {
            node: *node,
            name: format!("node-{node}"),
            boot: 1,
            generation: 1,
            state: MemberState::Up,
            zone: String::new(),
            client_address: String::new(),
            build: String::new(),
            since: Timestamp(0),
        };
        Book {
            cluster: Uuid::from_u128(1),
            version: 1,
            replicas: 3,
            members: nodes.iter().map(|node| (*node, member(node))).collect(),
            places: vec![vec![1, 2, 3]],
        }
    }

    fn answers(nodes: &[NodeId], term: u64) -> BTreeMap<NodeId, Seen> {
        let group = Group { term, leads: true, ..Group::default() };
        let seen = Seen { groups: BTreeMap::from([(ShardId(0), group)]), ..Seen::default() };
        nodes.iter().map(|node| (*node, seen.clone())).collect()
    }

    fn options() -> MembershipOptions {
        MembershipOptions {
            dead_node_grace: Duration::from_secs(300),
            settle: Duration::from_secs(5),
            ..MembershipOptions::new("a", Vec::new(), "unused")
        }
    }

    /// [K8] [FR-017] Times of one clock only, and a flap begins the grace anew.
    #[test]
    fn a_node_is_dead_after_it_was_silent_for_the_whole_grace_time() {
        let (mut memory, options, book) = (Memory::default(), options(), book(&[1, 2, 3]));
        let look = |memory: &mut Memory, nodes: &[NodeId], at| {
            memory.note(&book, &answers(nodes, 1), at);
            memory.dead(&options, at)
        };
        for at in [1_000, 2_000, 300_999] {
            assert!(look(&mut memory, &[1, 2], at).is_empty(), "a new director gives everybody the whole time");
        }
        assert_eq!(look(&mut memory, &[1, 2], 301_000), BTreeSet::from([3]));
        assert!(look(&mut memory, &[1, 2, 3], 301_001).is_empty());
        for at in [302_000, 303_000, 601_000] {
            assert!(look(&mut memory, &[1, 2], at).is_empty(), "it was heard of in between");
        }
        assert_eq!(look(&mut memory, &[1, 2], 601_001), BTreeSet::from([3]));
    }

    #[test]
    fn a_clock_that_jumps_makes_nobody_dead() {
        let (mut memory, options, book) = (Memory::default(), options(), book(&[1, 2, 3]));
        memory.note(&book, &answers(&[1, 2, 3], 1), 0);
        memory.note(&book, &answers(&[1], 1), 1_000_000);
        assert!(memory.dead(&options, 1_000_000).is_empty(), "one look after it");
    }

    #[test]
    fn a_shard_is_calm_some_time_after_its_last_election() {
        let (mut memory, options, book) = (Memory::default(), options(), book(&[1]));
        memory.note(&book, &answers(&[1], 7), 0);
        assert!(memory.calm(&options, 4_999).is_empty());
        memory.note(&book, &answers(&[1], 7), 4_999);
        assert_eq!(memory.calm(&options, 5_000), BTreeSet::from([ShardId(0)]));
        memory.note(&book, &answers(&[1], 8), 5_000);
        assert!(memory.calm(&options, 9_999).is_empty());
    }
}
