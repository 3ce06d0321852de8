//! Leaderships that people have put somewhere: the director leaves them there for a while.
//!
//! Known to the node that leads, which tells every director. It is forgotten with the leadership, and when the cluster is
//! another one than the one that people looked at.

use crate::directory::{MemberState, View};
use parking_lot::Mutex;
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a leadership stays where people have put it.
pub(super) const HELD_FOR: Duration = Duration::from_secs(3_600);

type Members = Vec<(NodeId, MemberState)>;

#[derive(Default)]
pub(super) struct Held(Mutex<BTreeMap<ShardId, Hold>>);

struct Hold {
    /// Of the leadership that is held.
    term: u64,
    /// By this node's monotonic clock. Milliseconds.
    until: u64,
    members: Members,
}

impl Held {
    pub(super) fn hold(&self, shard: ShardId, term: u64, view: &View, now: u64) {
        let until = now.saturating_add(u64::try_from(HELD_FOR.as_millis()).unwrap_or(u64::MAX));
        self.0.lock().insert(shard, Hold { term, until, members: members(view) });
    }

    pub(super) fn is_held(&self, shard: ShardId, term: u64, view: &View, now: u64) -> bool {
        let mut holds = self.0.lock();
        let stands = holds
            .get(&shard)
            .is_some_and(|hold| hold.term == term && now < hold.until && hold.members == members(view));
        if !stands {
            holds.remove(&shard);
        }
        stands
    }
}

fn members(view: &View) -> Members {
    view.members.values().map(|member| (member.node, member.state)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Member;
    use grain_contract::Timestamp;

    fn view(members: &[(NodeId, MemberState)]) -> View {
        let member = |(node, state): &(NodeId, MemberState)| Member {
            node: *node,
            name: format!("node-{node}"),
            boot: 1,
            generation: 1,
            state: *state,
            zone: String::new(),
            client_address: String::new(),
            build: String::new(),
            since: Timestamp(0),
        };
        View { members: members.iter().map(|it| (it.0, member(it))).collect(), ..View::default() }
    }

    #[test]
    fn a_leadership_is_held_for_an_hour_in_one_term_and_one_cluster() {
        use MemberState::{Draining, Up};
        let (shard, now) = (ShardId(3), 1_000);
        let three = view(&[(1, Up), (2, Up), (3, Up)]);
        // (term, members, time, expected)
        let cases = [
            (7, three.clone(), now, true),
            (7, View { version: 9, ..three.clone() }, now + 3_599_999, true),
            (7, three.clone(), now + 3_600_000, false),
            (8, three.clone(), now, false),
            (7, view(&[(1, Up), (2, Up), (3, Up), (4, Up)]), now, false),
            (7, view(&[(1, Up), (2, Draining), (3, Up)]), now, false),
        ];
        for (term, view, at, expected) in cases {
            let held = Held::default();
            held.hold(shard, 7, &three, now);
            assert!(!held.is_held(ShardId(4), 7, &three, now));
            assert_eq!(held.is_held(shard, term, &view, at), expected, "{term} {at}");
            assert_eq!(held.is_held(shard, 7, &three, now), expected, "what is over does not begin again");
        }
    }
}
