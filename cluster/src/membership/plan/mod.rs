//! What the director should do next: a pure function of what it sees.
//!
//! Nothing is remembered between two plans. Each one looks at the members, at what the Raft groups say about themselves, and names
//! the next steps towards where the shards belong (`wanted`); the plan after that sees what came of them. So a director that
//! dies in the middle of a move is followed by one that goes on with it, and a step that failed is simply named again.
//!
//! A shard moves in four steps: start a replica on the new node → add it as learner → once it has caught up, one joint change
//! of the voters → stop the old replica and wipe it. The order is the safety: a voter is never taken away before its
//! successor has the log, and never wiped before the change that took it away is committed.

mod leaders;
mod moves;
#[cfg(test)]
mod tests;
mod wanted;

use super::book::Book;
use crate::directory::{Member, MemberState};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// What the director sees.
#[derive(Clone, Debug)]
pub(crate) struct Picture<'a> {
    pub(crate) book: &'a Book,
    /// The nodes that answered just now. Whoever is missing may be dead, cut off or slow: nobody knows.
    pub(crate) nodes: &'a BTreeMap<NodeId, Seen>,
    /// Members that were silent for the whole grace time.
    pub(crate) dead: &'a BTreeSet<NodeId>,
    /// Shards whose last election is a while ago.
    pub(crate) calm: &'a BTreeSet<ShardId>,
    pub(crate) limits: Limits,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) moves_at_once: usize,
    /// A replica that is behind by more entries neither votes nor leads.
    pub(crate) lag_max: u64,
}

/// A node that answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// It is about to stop.
    pub(crate) leaving: bool,
    /// Its replicas.
    pub(crate) groups: BTreeMap<ShardId, Group>,
    /// What it has of these is damaged: it should have a replica and has none.
    pub(crate) set_aside: BTreeSet<ShardId>,
}

/// A Raft group as one replica sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Group {
    pub(crate) term: u64,
    /// It leads, and a majority answered it a moment ago.
    pub(crate) leads: bool,
    pub(crate) voters: BTreeSet<NodeId>,
    pub(crate) learners: BTreeSet<NodeId>,
    /// Its members are committed and not in the middle of a change.
    pub(crate) settled: bool,
    /// People have put the leadership where it is.
    pub(crate) held: bool,
    pub(crate) last_log: u64,
    /// On the leader: the last entry that each member is known to have.
    pub(crate) progress: BTreeMap<NodeId, u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Start { shard: ShardId, node: NodeId },
    AddLearner { shard: ShardId, leader: NodeId, node: NodeId },
    ChangeVoters { shard: ShardId, leader: NodeId, expected: BTreeSet<NodeId>, voters: BTreeSet<NodeId> },
    RemoveLearner { shard: ShardId, leader: NodeId, node: NodeId },
    Stop { shard: ShardId, leader: NodeId, node: NodeId },
    Transfer { shard: ShardId, leader: NodeId, to: NodeId },
}

impl Step {
    pub(crate) fn shard(&self) -> ShardId {
        match self {
            Self::Start { shard, .. }
            | Self::AddLearner { shard, .. }
            | Self::ChangeVoters { shard, .. }
            | Self::RemoveLearner { shard, .. }
            | Self::Stop { shard, .. }
            | Self::Transfer { shard, .. } => *shard,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    /// Steps of different shards may be taken at once; those of one shard in this order.
    pub(crate) steps: Vec<Step>,
    /// Where the book is behind what the groups say.
    pub(crate) places: Vec<(ShardId, Vec<NodeId>)>,
    /// Members being removed that hold nothing any more.
    pub(crate) gone: Vec<NodeId>,
    /// Shards that are being moved.
    pub(crate) moving: usize,
}

pub(crate) fn plan(picture: &Picture<'_>) -> Plan {
    let leads: BTreeMap<ShardId, Lead<'_>> =
        picture.shards().filter_map(|shard| Some((shard, picture.lead(shard)?))).collect();
    let mut plan = Plan::default();
    moves::plan(picture, &leads, &mut plan);
    leaders::plan(picture, &leads, &mut plan);
    plan.places = leads.iter().filter_map(|(shard, lead)| moved(picture.book, *shard, lead)).collect();
    plan.gone = gone(picture, &leads);
    plan
}

/// A leader, and the group as it says it is.
#[derive(Clone, Copy)]
struct Lead<'a> {
    node: NodeId,
    group: &'a Group,
}

impl Lead<'_> {
    fn counts(&self, node: NodeId) -> bool {
        self.group.voters.contains(&node) || self.group.learners.contains(&node)
    }

    fn has_caught_up(&self, node: NodeId, lag_max: u64) -> bool {
        let matched = self.group.progress.get(&node);
        matched.is_some_and(|matched| self.group.last_log.saturating_sub(*matched) <= lag_max)
    }
}

impl<'a> Picture<'a> {
    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..u32::try_from(self.book.places.len()).unwrap_or(u32::MAX)).map(ShardId)
    }

    /// The leader with the highest term. A deposed one that does not know it yet has a lower term, or no majority.
    fn lead(&self, shard: ShardId) -> Option<Lead<'a>> {
        let groups = self.nodes.iter().filter_map(|(node, seen)| Some((*node, seen.groups.get(&shard)?)));
        let leading = groups.filter(|(_, group)| group.leads);
        leading.max_by_key(|(_, group)| group.term).map(|(node, group)| Lead { node, group })
    }

    fn answers(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    fn hosts(&self, node: NodeId, shard: ShardId) -> bool {
        self.nodes.get(&node).is_some_and(|seen| seen.groups.contains_key(&shard))
    }

    fn is_damaged(&self, node: NodeId, shard: ShardId) -> bool {
        self.nodes.get(&node).is_some_and(|seen| seen.set_aside.contains(&shard))
    }

    fn member(&self, node: NodeId) -> Option<&'a Member> {
        self.book.members.get(&node).filter(|member| member.state != MemberState::Gone)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.member(node).is_some_and(|member| member.state == MemberState::Up)
    }

    /// May be given leaderships.
    fn may_lead(&self, node: NodeId) -> bool {
        self.is_up(node) && self.nodes.get(&node).is_some_and(|seen| !seen.leaving)
    }
}

fn moved(book: &Book, shard: ShardId, lead: &Lead<'_>) -> Option<(ShardId, Vec<NodeId>)> {
    let voters: Vec<NodeId> = lead.group.voters.iter().copied().collect();
    let is_known = book.places.get(shard.0 as usize) == Some(&voters);
    (lead.group.settled && !is_known).then_some((shard, voters))
}

/// Only when every group could be asked: one without a leader may still count on the node.
fn gone(picture: &Picture<'_>, leads: &BTreeMap<ShardId, Lead<'_>>) -> Vec<NodeId> {
    if leads.len() != picture.book.places.len() || leads.values().any(|lead| !lead.group.settled) {
        return Vec::new();
    }
    let removing = picture.book.members.values().filter(|member| member.state == MemberState::Removing);
    let holds_nothing = |node: &NodeId| {
        let hosts = picture.nodes.get(node).is_some_and(|seen| !seen.groups.is_empty());
        !hosts && !leads.values().any(|lead| lead.counts(*node))
    };
    removing.map(|member| member.node).filter(holds_nothing).collect()
}
