//! Which nodes should hold each shard.

use super::Picture;
use crate::directory::MemberState;
use crate::placement::{Ring, Site};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The ring over the members that may hold replicas: up, and not silent for the whole grace time.
pub(super) struct Wanted<'a> {
    picture: &'a Picture<'a>,
    ring: Ring,
    ids: BTreeMap<Arc<str>, NodeId>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(picture: &'a Picture<'a>) -> Self {
        let members = picture.book.members.values();
        let may_hold = members.filter(|m| m.state == MemberState::Up && !picture.dead.contains(&m.node));
        let (sites, ids): (Vec<_>, BTreeMap<_, _>) = may_hold
            .map(|member| {
                let site = Site::new(&member.name, &member.zone);
                (site.clone(), (site.name, member.node))
            })
            .unzip();
        Self { picture, ring: Ring::new(sites), ids }
    }

    /// Those of the ring. If they are too few, the voters that there are stay as well, dead or draining as they may be: three voters of
    /// which one is dead bear no less than two, and nothing is lost by waiting for a node to come. Only who is being
    /// removed, or is no member, has to go whatever it costs, and even that not down to nobody.
    pub(super) fn voters(&self, shard: ShardId, present: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let count = self.picture.book.replicas.max(1) as usize;
        let names = self.ring.replicas(shard, count);
        let mut voters: BTreeSet<NodeId> = names.iter().filter_map(|name| self.ids.get(name).copied()).collect();
        let stays = |node: &&NodeId| self.picture.member(**node).is_some_and(|m| m.state != MemberState::Removing);
        for node in present.iter().filter(stays) {
            if voters.len() < count {
                voters.insert(*node);
            }
        }
        if voters.is_empty() { present.clone() } else { voters }
    }
}
