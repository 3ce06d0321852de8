//! A cluster as plain data, in which steps happen at once: enough to see where plans lead.

use super::super::{Group, Limits, Picture, Plan, Seen, Step, plan};
use crate::directory::{Member, MemberState};
use crate::membership::book::Book;
use crate::placement::{Ring, Site};
use grain_contract::Timestamp;
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub(super) const LIMITS: Limits = Limits { moves_at_once: 4, lag_max: 1_000 };
const LOG: u64 = 5_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Raft {
    pub(super) term: u64,
    pub(super) leader: Option<NodeId>,
    pub(super) voters: BTreeSet<NodeId>,
    pub(super) learners: BTreeSet<NodeId>,
    pub(super) settled: bool,
    pub(super) held: bool,
    pub(super) progress: BTreeMap<NodeId, u64>,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) book: Book,
    pub(super) rafts: Vec<Raft>,
    /// Replicas on disks.
    pub(super) hosted: BTreeSet<(NodeId, ShardId)>,
    /// Replicas whose files are damaged: hosted by the disk, and nowhere else.
    pub(super) damaged: BTreeSet<(NodeId, ShardId)>,
    pub(super) up: BTreeSet<NodeId>,
    pub(super) dead: BTreeSet<NodeId>,
    pub(super) leaving: BTreeSet<NodeId>,
    pub(super) calm: bool,
    /// What new learners have at once.
    pub(super) catch_up: u64,
}

pub(super) fn set(nodes: &[NodeId]) -> BTreeSet<NodeId> {
    nodes.iter().copied().collect()
}

pub(super) fn name(node: NodeId) -> String {
    format!("node-{node}")
}

pub(super) fn member(node: NodeId) -> Member {
    Member {
        node,
        name: name(node),
        boot: 1,
        generation: 1,
        state: MemberState::Up,
        zone: String::new(),
        client_address: String::new(),
        build: String::new(),
        since: Timestamp(0),
    }
}

impl World {
    /// Nodes 1 to `nodes`, in rest: every shard where the ring has it, led by its first replica.
    pub(super) fn founded(nodes: u64, shards: u32) -> Self {
        let ring = Ring::new((1..=nodes).map(|node| Site::new(&name(node), "")));
        let id = |name: &str| name[5..].parse::<NodeId>().expect("a number");
        let places: Vec<Vec<NodeId>> = (0..shards)
            .map(|shard| {
                let mut replicas: Vec<_> = ring.replicas(ShardId(shard), 3).iter().map(|name| id(name)).collect();
                replicas.sort_unstable();
                replicas
            })
            .collect();
        let raft = |(shard, replicas): (usize, &Vec<NodeId>)| Raft {
            term: 1,
            leader: Some(replicas[shard % replicas.len()]),
            voters: set(replicas),
            learners: BTreeSet::new(),
            settled: true,
            held: false,
            progress: replicas.iter().map(|node| (*node, LOG)).collect(),
        };
        let hosted = |(shard, replicas): (usize, &Vec<NodeId>)| -> Vec<(NodeId, ShardId)> {
            replicas.iter().map(|node| (*node, ShardId(u32::try_from(shard).expect("few")))).collect()
        };
        Self {
            rafts: places.iter().enumerate().map(raft).collect(),
            hosted: places.iter().enumerate().flat_map(hosted).collect(),
            book: Book {
                cluster: Uuid::from_u128(1),
                version: 1,
                replicas: 3,
                members: (1..=nodes).map(|node| (node, member(node))).collect(),
                places,
            },
            damaged: BTreeSet::new(),
            up: (1..=nodes).collect(),
            dead: BTreeSet::new(),
            leaving: BTreeSet::new(),
            calm: true,
            catch_up: LOG,
        }
    }

    pub(super) fn add(&mut self, node: NodeId) {
        self.book.members.insert(node, member(node));
        self.up.insert(node);
    }

    /// The same name under a new id, on an empty disk.
    pub(super) fn lose_volume(&mut self, old: NodeId, new: NodeId) {
        self.book.members.get_mut(&old).expect("a member").state = MemberState::Gone;
        self.book.members.insert(new, Member { name: name(old), ..member(new) });
        self.hosted.retain(|(node, _)| *node != old);
        self.up.remove(&old);
        self.up.insert(new);
        self.elect();
    }

    pub(super) fn state(&mut self, node: NodeId, state: MemberState) {
        self.book.members.get_mut(&node).expect("a member").state = state;
    }

    pub(super) fn kill(&mut self, node: NodeId) {
        self.up.remove(&node);
        self.elect();
    }

    /// Groups whose leader is away choose another, if a majority is there.
    pub(super) fn elect(&mut self) {
        for (raft, shard) in self.rafts.iter_mut().zip((0..).map(ShardId)) {
            let runs = |node: &NodeId| self.up.contains(node) && !self.damaged.contains(&(*node, shard));
            if raft.leader.is_some_and(|leader| runs(&leader) && raft.voters.contains(&leader)) {
                continue;
            }
            let alive: Vec<_> = raft.voters.iter().filter(|node| runs(node)).copied().collect();
            raft.leader = (alive.len() * 2 > raft.voters.len()).then(|| alive[0]);
            raft.term += 1;
        }
    }

    pub(super) fn seen(&self) -> BTreeMap<NodeId, Seen> {
        let group = |node: NodeId, shard: ShardId| {
            let raft = &self.rafts[shard.0 as usize];
            let leads = raft.leader == Some(node);
            Group {
                term: raft.term,
                leads,
                voters: raft.voters.clone(),
                learners: raft.learners.clone(),
                settled: raft.settled,
                held: raft.held,
                last_log: LOG,
                progress: if leads { raft.progress.clone() } else { BTreeMap::new() },
            }
        };
        let of = |node: NodeId| Seen {
            leaving: self.leaving.contains(&node),
            set_aside: self.damaged.iter().filter(|(n, _)| *n == node).map(|(_, shard)| *shard).collect(),
            groups: self
                .hosted
                .difference(&self.damaged)
                .filter(|(n, _)| *n == node)
                .map(|(n, shard)| (*shard, group(*n, *shard)))
                .collect(),
        };
        self.up.iter().map(|node| (*node, of(*node))).collect()
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan_over(&self.seen())
    }

    pub(super) fn plan_over(&self, nodes: &BTreeMap<NodeId, Seen>) -> Plan {
        let shards = 0..u32::try_from(self.rafts.len()).expect("few");
        let calm = if self.calm { shards.map(ShardId).collect() } else { BTreeSet::new() };
        plan(&Picture { book: &self.book, nodes, dead: &self.dead, calm: &calm, limits: LIMITS })
    }

    /// Does what a plan says, and checks what must hold for each step.
    pub(super) fn apply(&mut self, plan: &Plan) {
        assert!(plan.moving <= LIMITS.moves_at_once, "{plan:?}");
        for step in &plan.steps {
            self.step(step);
        }
        for (shard, replicas) in &plan.places {
            self.book.places[shard.0 as usize].clone_from(replicas);
        }
        for node in &plan.gone {
            self.state(*node, MemberState::Gone);
        }
        self.elect();
    }

    fn step(&mut self, step: &Step) {
        let index = step.shard().0 as usize;
        match step {
            Step::Start { shard, node } => {
                assert!(self.up.contains(node));
                assert!(!self.damaged.contains(&(*node, *shard)), "what is damaged is wiped before");
                self.hosted.insert((*node, *shard));
            }
            Step::Stop { shard, node, .. } => {
                let raft = &self.rafts[index];
                assert!(!raft.voters.contains(node) && !raft.learners.contains(node), "{node} still counts");
                self.hosted.remove(&(*node, *shard));
                self.damaged.remove(&(*node, *shard));
            }
            Step::AddLearner { leader, node, .. } => {
                let raft = &mut self.rafts[index];
                assert_eq!(raft.leader, Some(*leader));
                raft.learners.insert(*node);
                raft.progress.insert(*node, self.catch_up);
            }
            Step::RemoveLearner { node, .. } => {
                self.rafts[index].learners.remove(node);
                self.rafts[index].progress.remove(node);
            }
            Step::ChangeVoters { leader, expected, voters, .. } => {
                let live = |nodes: &BTreeSet<NodeId>| nodes.intersection(&self.up).count() * 2 > nodes.len();
                assert!(live(voters), "no live majority: {step:?}");
                let raft = &mut self.rafts[index];
                assert_eq!((raft.leader, &raft.voters), (Some(*leader), expected));
                let present = |node: &NodeId| raft.voters.contains(node) || raft.learners.contains(node);
                assert!(voters.iter().all(present), "who votes has caught up: {step:?}");
                raft.learners.retain(|node| !voters.contains(node));
                raft.progress.retain(|node, _| voters.contains(node) || raft.learners.contains(node));
                raft.voters.clone_from(voters);
                raft.settled = true;
            }
            Step::Transfer { leader, to, .. } => {
                let raft = &mut self.rafts[index];
                assert!(raft.leader == Some(*leader) && raft.voters.contains(to) && self.up.contains(to));
                raft.leader = Some(*to);
                raft.term += 1;
            }
        }
    }

    /// Plans and applies until there is nothing to do; says how many rounds it took.
    pub(super) fn settle(&mut self) -> usize {
        for round in 0..400 {
            let next = self.plan();
            if next.steps.is_empty() && next.places.is_empty() && next.gone.is_empty() {
                return round;
            }
            let before = self.clone();
            self.apply(&next);
            let voters_before: Vec<_> = before.rafts.iter().map(|raft| raft.voters.len()).collect();
            let enough = before.damaged.is_empty()
                && self.book.members.values().filter(|m| m.state == MemberState::Up).count() >= 3;
            for (raft, before) in self.rafts.iter().zip(voters_before) {
                assert!(!enough || raft.voters.len() >= before.min(3), "at least 3 voters throughout");
            }
        }
        panic!("it does not come to rest: {:?}", self.plan());
    }

    pub(super) fn replicas_of(&self, node: NodeId) -> usize {
        self.rafts.iter().filter(|raft| raft.voters.contains(&node)).count()
    }

    pub(super) fn leads(&self, node: NodeId) -> usize {
        self.rafts.iter().filter(|raft| raft.leader == Some(node)).count()
    }

    /// Every group has the voters that are hosted, and nothing else is.
    pub(super) fn assert_tidy(&self) {
        for (shard, raft) in self.rafts.iter().enumerate() {
            assert!(raft.learners.is_empty() && raft.settled);
            let shard = ShardId(u32::try_from(shard).expect("few"));
            let hosts: BTreeSet<_> =
                self.hosted.iter().filter(|(node, s)| *s == shard && self.up.contains(node)).map(|(n, _)| *n).collect();
            let voters: BTreeSet<_> = raft.voters.intersection(&self.up).copied().collect();
            assert_eq!(hosts, voters, "{shard:?}");
            assert_eq!(self.book.places[shard.0 as usize], raft.voters.iter().copied().collect::<Vec<_>>());
        }
    }
}
