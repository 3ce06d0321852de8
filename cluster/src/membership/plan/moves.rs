//! Replicas to where they belong, a few shards at a time.

use super::wanted::Wanted;
use super::{Lead, Picture, Plan, Step};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn plan(picture: &Picture<'_>, leads: &BTreeMap<ShardId, Lead<'_>>, plan: &mut Plan) {
    let wanted = Wanted::new(picture);
    let mut moves: Vec<Move> = Vec::new();
    for (shard, lead) in leads {
        let voters = wanted.voters(*shard, &lead.group.voters);
        match next(picture, *shard, lead, &voters) {
            Next::Nothing => plan.steps.extend(tidy(picture, *shard, lead, &voters)),
            // Nothing can be done for it now, so it takes nobody's place.
            Next::Blocked => {}
            Next::Move(steps) => {
                moves.push(Move { order: order(picture, *shard, lead, &voters), steps });
            }
        }
    }
    moves.sort_by_key(|one| one.order);
    moves.truncate(picture.limits.moves_at_once);
    plan.moving = moves.len();
    plan.steps.extend(moves.into_iter().flat_map(|one| one.steps));
}

struct Move {
    order: (bool, bool, ShardId),
    /// None while a learner catches up.
    steps: Vec<Step>,
}

/// What is begun is ended first; then those that bear no further failure.
fn order(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> (bool, bool, ShardId) {
    let mut coming = wanted.difference(&lead.group.voters);
    let is_begun = !lead.group.settled || coming.any(|node| lead.counts(*node) || picture.hosts(*node, shard));
    let is_hurt = lead.group.voters.iter().any(|node| !picture.answers(*node) || picture.is_damaged(*node, shard));
    (!is_begun, !is_hurt, shard)
}

enum Next {
    Nothing,
    Blocked,
    Move(Vec<Step>),
}

fn next(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> Next {
    let group = lead.group;
    if !group.settled {
        return finish(picture, shard, lead, wanted);
    }
    if let Some(next) = heal(picture, shard, lead, wanted) {
        return next;
    }
    let coming: Vec<NodeId> = wanted.difference(&group.voters).copied().collect();
    if coming.is_empty() && wanted.len() == group.voters.len() {
        return Next::Nothing;
    }
    if coming.iter().any(|node| !picture.answers(*node)) {
        return Next::Blocked;
    }
    let mut steps = Vec::new();
    for node in &coming {
        if !picture.hosts(*node, shard) {
            steps.push(Step::Start { shard, node: *node });
        }
        if !lead.counts(*node) {
            steps.push(Step::AddLearner { shard, leader: lead.node, node: *node });
        }
    }
    let waits = coming.iter().any(|node| !lead.has_caught_up(*node, picture.limits.lag_max));
    if !steps.is_empty() || waits {
        return Next::Move(steps);
    }
    change(picture, shard, lead, wanted)
}

/// A replica whose files are damaged is made again from the others. While its group counts on it, on its vote and on what it
/// has acknowledged, it may not be wiped: so the group goes on without it first, as it does already. `None`: none is damaged.
fn heal(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> Option<Next> {
    let (group, leader) = (lead.group, lead.node);
    let is_damaged = |node: &&NodeId| picture.is_damaged(**node, shard);
    let whole: BTreeSet<NodeId> = group.voters.iter().filter(|node| !is_damaged(node)).copied().collect();
    if whole.len() < group.voters.len() {
        return Some(if has_majority(picture, &whole) { change(picture, shard, lead, &whole) } else { Next::Blocked });
    }
    let learners = group.learners.iter().filter(is_damaged);
    let mut steps: Vec<Step> = learners.map(|node| Step::RemoveLearner { shard, leader, node: *node }).collect();
    let outside = wanted.iter().filter(is_damaged).filter(|node| !lead.counts(**node));
    steps.extend(outside.map(|node| Step::Stop { shard, leader, node: *node }));
    (!steps.is_empty()).then_some(Next::Move(steps))
}

/// All that come have caught up: one joint change.
fn change(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> Next {
    if !has_majority(picture, wanted) {
        return Next::Blocked;
    }
    if !wanted.contains(&lead.node) {
        // A leader that votes itself out leaves the shard to an election; one that hands over first does not. If nobody can
        // take it, the election is what is left.
        let stay = lead.group.voters.intersection(wanted).copied();
        let ready = stay.filter(|n| picture.answers(*n) && lead.has_caught_up(*n, picture.limits.lag_max));
        let best = ready.max_by_key(|n| (picture.may_lead(*n), lead.group.progress.get(n).copied()));
        if let Some(to) = best {
            return Next::Move(vec![Step::Transfer { shard, leader: lead.node, to }]);
        }
    }
    let expected = lead.group.voters.clone();
    Next::Move(vec![Step::ChangeVoters { shard, leader: lead.node, expected, voters: wanted.clone() }])
}

/// Somebody left a change in the middle: it is finished, towards what is wanted now as far as the members there are go.
fn finish(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> Next {
    let group = lead.group;
    let mut members: Vec<NodeId> = group.voters.iter().copied().collect();
    members.extend(wanted.iter().filter(|node| group.learners.contains(node)));
    members.sort_by_key(|node| {
        let ready = lead.has_caught_up(*node, picture.limits.lag_max);
        (!wanted.contains(node), !group.voters.contains(node) && !ready, !picture.answers(*node), *node)
    });
    let voters: BTreeSet<NodeId> = members.into_iter().take(wanted.len().max(1)).collect();
    if !has_majority(picture, &voters) {
        return Next::Blocked;
    }
    Next::Move(vec![Step::ChangeVoters { shard, leader: lead.node, expected: group.voters.clone(), voters }])
}

fn has_majority(picture: &Picture<'_>, voters: &BTreeSet<NodeId>) -> bool {
    voters.iter().filter(|node| picture.answers(**node)).count() * 2 > voters.len()
}

/// The voters are as wanted. Left over are learners of a move that was given up, and replicas that nobody counts on.
fn tidy(picture: &Picture<'_>, shard: ShardId, lead: &Lead<'_>, wanted: &BTreeSet<NodeId>) -> Vec<Step> {
    let leader = lead.node;
    let learners = lead.group.learners.iter().map(|node| Step::RemoveLearner { shard, leader, node: *node });
    let has = |node: &&NodeId| picture.hosts(**node, shard) || picture.is_damaged(**node, shard);
    let hosts = picture.nodes.keys().filter(has);
    let left = hosts.filter(|node| !lead.counts(**node) && !wanted.contains(node));
    learners.chain(left.map(|node| Step::Stop { shard, leader, node: *node })).collect()
}
