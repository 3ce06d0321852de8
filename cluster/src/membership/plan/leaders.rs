//! Leaderships: off nodes that are going, and spread evenly over the others.

use super::{Lead, Picture, Plan, Step};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) fn plan(picture: &Picture<'_>, leads: &BTreeMap<ShardId, Lead<'_>>, plan: &mut Plan) {
    let busy: BTreeSet<ShardId> = plan.steps.iter().map(Step::shard).collect();
    let free = || leads.iter().filter(|(shard, lead)| !busy.contains(shard) && lead.group.settled);
    let mut loads = loads(picture, leads);
    let away = free().filter(|(_, lead)| !picture.may_lead(lead.node));
    let mut left = picture.limits.moves_at_once;
    for (shard, lead) in away {
        let heir = heirs(picture, lead).min_by_key(|node| (loads.get(node).copied().unwrap_or(0), *node));
        if let Some(to) = heir.filter(|_| left > 0) {
            left -= 1;
            *loads.entry(to).or_default() += 1;
            plan.steps.push(Step::Transfer { shard: *shard, leader: lead.node, to });
        }
    }
    // One at a time, and only while nothing else is in motion: each costs its shard a moment.
    let all_led = leads.len() == picture.book.places.len();
    if all_led && left == picture.limits.moves_at_once {
        plan.steps.extend(spread(picture, free(), &loads));
    }
}

/// Shards led, by node that may lead.
fn loads(picture: &Picture<'_>, leads: &BTreeMap<ShardId, Lead<'_>>) -> BTreeMap<NodeId, usize> {
    let mut loads: BTreeMap<NodeId, usize> =
        picture.nodes.keys().filter(|node| picture.may_lead(**node)).map(|node| (*node, 0)).collect();
    for lead in leads.values() {
        if let Some(load) = loads.get_mut(&lead.node) {
            *load += 1;
        }
    }
    loads
}

/// Who could take over at once.
fn heirs<'a>(picture: &'a Picture<'_>, lead: &'a Lead<'_>) -> impl Iterator<Item = NodeId> + 'a {
    let others = lead.group.voters.iter().copied().filter(|node| *node != lead.node && picture.may_lead(*node));
    others.filter(|node| lead.has_caught_up(*node, picture.limits.lag_max))
}

/// One transfer that evens out, if a node leads two more than another.
///
/// Replicas are not everywhere, so the way from the one to the other may lead over a third. Of all such ways the shortest is
/// taken, and of it the *last* hop: it swaps the loads of two nodes and makes the way shorter by one, so the next plan goes on
/// with it. (The first hop would make the third node the heaviest, and the next plan would take it back.)
fn spread<'a>(
    picture: &Picture<'_>,
    free: impl Iterator<Item = (&'a ShardId, &'a Lead<'a>)>,
    loads: &BTreeMap<NodeId, usize>,
) -> Option<Step> {
    let mut ways: BTreeMap<NodeId, Vec<(ShardId, NodeId)>> = BTreeMap::new();
    for (shard, lead) in free.filter(|(shard, lead)| picture.calm.contains(shard) && !lead.group.held) {
        ways.entry(lead.node).or_default().extend(heirs(picture, lead).map(|heir| (*shard, heir)));
    }
    let hops = loads.iter().filter_map(|(giver, load)| {
        let is_light = |node| loads.get(&node).is_some_and(|other| other + 2 <= *load);
        last_hop(&ways, *giver, is_light)
    });
    hops.min_by_key(|hop| hop.length).map(|hop| Step::Transfer { shard: hop.shard, leader: hop.from, to: hop.to })
}

struct Hop {
    /// Of the way that it ends.
    length: usize,
    shard: ShardId,
    from: NodeId,
    to: NodeId,
}

/// The last hop of the shortest way from a node to one that is light enough.
fn last_hop(
    ways: &BTreeMap<NodeId, Vec<(ShardId, NodeId)>>,
    giver: NodeId,
    is_light: impl Fn(NodeId) -> bool,
) -> Option<Hop> {
    let mut met = BTreeSet::from([giver]);
    let mut queue = VecDeque::from([(giver, 1)]);
    while let Some((from, length)) = queue.pop_front() {
        for (shard, to) in ways.get(&from).into_iter().flatten() {
            if is_light(*to) {
                return Some(Hop { length, shard: *shard, from, to: *to });
            }
            if met.insert(*to) {
                queue.push_back((*to, length + 1));
            }
        }
    }
    None
}
