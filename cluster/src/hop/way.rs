//! Who to ask for a shard, from what little is known: pure.
//!
//! Best is what the local replica's Raft says, then what somebody who was asked said, then whoever should have a replica: it
//! knows the leader if it is not the leader itself. Who did not help in this round is not asked again before a pause.

use shard::NodeId;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What may be known of a shard's owner.
pub(crate) struct Known<'a> {
    pub(crate) me: NodeId,
    /// What the local replica's Raft says.
    pub(crate) leader: Option<NodeId>,
    /// Who answered last, or was last said to be the leader.
    pub(crate) hint: Option<NodeId>,
    /// Where the shard belongs.
    pub(crate) replicas: &'a [NodeId],
}

/// One question's way to an owner.
#[derive(Default)]
pub(crate) struct Way {
    /// Asked since the last pause, in vain.
    asked: Vec<NodeId>,
    /// Pauses made; the round among the replicas begins at another one each time.
    rounds: usize,
    /// Home was looked at in this round.
    was_at_home: bool,
    /// Somebody just asked said that this is the leader.
    told: Option<NodeId>,
}

impl Way {
    /// `None`: nobody is left to ask; wait a little.
    pub(crate) fn next(&self, known: &Known<'_>, is_attached: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let likely = [self.told, known.leader, known.hint].into_iter().flatten();
        let count = known.replicas.len().max(1);
        let round = (0..known.replicas.len()).map(|n| known.replicas[(self.rounds + n) % count]);
        let candidates: Vec<NodeId> =
            likely.chain(round).filter(|node| *node != known.me && !self.asked.contains(node)).collect();
        // Who is attached is a hint too: if nobody seems to be, somebody is asked all the same.
        candidates.iter().copied().find(|node| is_attached(*node)).or_else(|| candidates.first().copied())
    }

    /// Home was looked at in vain although it is led here by all that is known here. At first that is waited for: most likely
    /// the leadership has just begun.
    pub(crate) fn not_at_home(&mut self) {
        self.was_at_home = true;
    }

    pub(crate) fn was_at_home(&self) -> bool {
        self.was_at_home
    }

    /// Whether others are asked even if home seems to lead.
    pub(crate) fn leaves_home(&self) -> bool {
        self.was_at_home && self.rounds > 0
    }

    /// It was not the owner, or could not be asked.
    pub(crate) fn in_vain(&mut self, node: NodeId, told: Option<NodeId>) {
        self.asked.push(node);
        self.told = told.filter(|told| !self.asked.contains(told));
    }

    /// After a pause everybody may be asked again.
    pub(crate) fn again(&mut self) {
        self.asked.clear();
        self.told = None;
        self.was_at_home = false;
        self.rounds = self.rounds.wrapping_add(1);
    }
}

/// Who answered last for each shard.
pub(crate) struct Hints(Vec<AtomicU64>);

impl Hints {
    pub(crate) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn get(&self, shard: usize) -> Option<NodeId> {
        self.0.get(shard).map(|hint| hint.load(Relaxed)).filter(|node| *node != 0)
    }

    pub(crate) fn set(&self, shard: usize, node: Option<NodeId>) {
        if let Some(hint) = self.0.get(shard) {
            hint.store(node.unwrap_or_default(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(leader: Option<NodeId>, hint: Option<NodeId>, replicas: &[NodeId]) -> Known<'_> {
        Known { me: 1, leader, hint, replicas }
    }

    /// [K6] Who is asked, from what is known.
    #[test]
    fn the_most_likely_owner_is_asked_first() {
        type Case<'a> = (Option<NodeId>, Option<NodeId>, &'a [NodeId], &'a [NodeId], Option<NodeId>);
        let cases: [Case<'_>; 9] = [
            // Raft's word, the hint, the map.
            (Some(2), Some(3), &[1, 2, 3], &[2, 3], Some(2)),
            (None, Some(3), &[1, 2, 3], &[2, 3], Some(3)),
            (None, None, &[1, 2, 3], &[2, 3], Some(2)),
            // Never itself: it has looked at home already.
            (Some(1), None, &[1, 2], &[2], Some(2)),
            (Some(1), Some(1), &[1], &[], None),
            // Who seems to be away only if nobody else is left.
            (Some(2), None, &[1, 2, 3], &[3], Some(3)),
            (Some(2), None, &[1, 2, 3], &[], Some(2)),
            (None, None, &[], &[2, 3], None),
            (Some(4), None, &[1, 2, 3], &[2, 3, 4], Some(4)),
        ];
        for (leader, hint, replicas, attached, wanted) in cases {
            let found = Way::default().next(&known(leader, hint, replicas), |node| attached.contains(&node));
            assert_eq!(found, wanted, "{leader:?} {hint:?} {replicas:?} {attached:?}");
        }
    }

    #[test]
    fn everybody_is_asked_once_a_round_and_a_word_is_followed() {
        let (known, all) = (known(Some(2), None, &[1, 2, 3, 4]), |_| true);
        let mut way = Way::default();
        assert_eq!(way.next(&known, all), Some(2));
        way.in_vain(2, Some(4));
        assert_eq!(way.next(&known, all), Some(4), "as it was told");
        way.in_vain(4, Some(2));
        assert_eq!(way.next(&known, all), Some(3), "2 said no already");
        way.in_vain(3, None);
        assert_eq!(way.next(&known, all), None);
        way.again();
        assert_eq!(way.next(&known, all), Some(2));
    }

    #[test]
    fn a_home_that_seems_to_lead_is_left_after_a_pause_only() {
        let mut way = Way::default();
        way.not_at_home();
        assert!(!way.leaves_home());
        way.again();
        assert!(!way.leaves_home(), "it is looked at again first");
        way.not_at_home();
        assert!(way.leaves_home());
    }

    #[test]
    fn hints_are_kept_by_shard() {
        let hints = Hints::new(2);
        hints.set(1, Some(7));
        assert_eq!((hints.get(0), hints.get(1), hints.get(9)), (None, Some(7), None));
        hints.set(1, None);
        assert_eq!(hints.get(1), None);
    }
}
