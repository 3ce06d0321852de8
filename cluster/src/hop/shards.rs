//! What this silo knows of the owners of shards, and waiting to know better.

use super::way::{Known, Way};
use crate::hub::Hub;
use futures::future::OptionFuture;
use shard::{NodeId, ShardId};
use tokio::time::Instant;

impl Hub {
    /// Who leads the shard, as far as is known here; may be wrong.
    pub(crate) fn leader_of(&self, shard: ShardId) -> Option<NodeId> {
        let place = shard.0 as usize;
        let by_raft = self.rooms.get(place)?.store.leadership().borrow().leader;
        by_raft.or_else(|| self.hints.get(place))
    }

    /// Whom to ask next for a shard that is not led here; `None`: nobody now.
    pub(crate) fn next_node(&self, shard: ShardId, way: &Way) -> Option<NodeId> {
        if self.around.is_alone() {
            return None;
        }
        let place = shard.0 as usize;
        let leadership = *self.rooms.get(place)?.store.leadership().borrow();
        if leadership.epoch.is_some() && !way.leaves_home() {
            // Led here since a moment ago: look at home again.
            return None;
        }
        let replicas = self.around.directory.replicas(shard);
        let known = Known {
            me: self.around.peers.me(),
            leader: leadership.leader.filter(|leader| *leader != self.around.peers.me()),
            hint: self.hints.get(place),
            replicas: &replicas,
        };
        let attached = self.around.peers.attached();
        let attached = attached.borrow();
        way.next(&known, |node| attached.contains_key(&node))
    }

    /// This node was no help: what it said instead is the hint.
    pub(crate) fn forget_hint(&self, shard: ShardId, node: NodeId, leader: Option<NodeId>) {
        let place = shard.0 as usize;
        match leader {
            Some(leader) if leader != self.around.peers.me() => self.hints.set(place, Some(leader)),
            _ if self.hints.get(place) == Some(node) => self.hints.set(place, None),
            _ => {}
        }
    }

    /// Somebody else can be called now.
    pub(crate) fn has_company(&self) -> bool {
        !self.around.is_alone() && !self.around.peers.attached().borrow().is_empty()
    }

    /// Ends when something is heard that may lead to the owner of the shard, and at `until` in any case.
    pub(crate) async fn news_of(&self, shard: ShardId, until: Instant) {
        let Some(room) = self.rooms.get(shard.0 as usize) else { return };
        let mut leadership = room.store.leadership();
        let mut around =
            (!self.around.is_alone()).then(|| (self.around.peers.attached(), self.around.directory.watch()));
        // Whatever their makers have seen, news is what comes from here on.
        if let Some((attached, view)) = &mut around {
            attached.mark_unchanged();
            view.mark_unchanged();
        }
        let news = OptionFuture::from(around.as_mut().map(|(attached, view)| async move {
            tokio::select! {
                _ = attached.changed() => {}
                _ = view.changed() => {}
            }
        }));
        tokio::select! {
            _ = leadership.changed() => {}
            Some(()) = news => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}
