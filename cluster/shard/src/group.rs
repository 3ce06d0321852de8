//! A shard's Raft group, as one of its replicas sees it.

use crate::link::NodeId;
use grain_contract::Epoch;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The clock of elections. Failover takes about `election_max` and a draw between the two, less the age of the last heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    pub heartbeat: Duration,
    /// More than the heartbeat.
    pub election_min: Duration,
    /// More than the least. Also how long a leader that hears nothing may believe that it leads (its lease).
    pub election_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(400),
            election_max: Duration::from_millis(800),
        }
    }
}

impl Timing {
    /// Time between two looks at the clock: a third of a heartbeat, or less where elections come soon after one. openraft
    /// takes this from the interval of its own heartbeats, which has to fit below the least election time.
    pub(crate) fn tick(&self) -> Duration {
        let room = self.election_min.saturating_sub(self.heartbeat / 2) * 5 / 31;
        (self.heartbeat / 3).min(room).max(Duration::from_millis(1))
    }

    /// The same clock, so many times slower.
    pub fn scaled(self, times: u32) -> Self {
        Self {
            heartbeat: self.heartbeat * times,
            election_min: self.election_min * times,
            election_max: self.election_max * times,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// There is no replica here, or it has failed.
    #[default]
    Absent,
    /// It takes the log and does not count. Also one that has not heard of its group yet.
    Learner,
    Follower,
    Candidate,
    Leader,
}

/// What a leader knows of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaView {
    /// Index of the last entry that it is known to have; `None` before the first.
    pub matched: Option<u64>,
    /// How long ago it last answered; `None` if it has not yet.
    pub answered: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupView {
    pub role: Role,
    pub term: Epoch,
    pub leader: Option<NodeId>,
    /// In the middle of a joint change those of before and after.
    pub voters: BTreeSet<NodeId>,
    pub learners: BTreeSet<NodeId>,
    /// The membership is committed and not in the middle of a change, as far as this replica knows.
    pub settled: bool,
    /// Indexes; 0 = nothing yet.
    pub last_log: u64,
    pub committed: u64,
    pub applied: u64,
    /// On the leader: every member, itself too.
    pub replicas: BTreeMap<NodeId, ReplicaView>,
    /// On the leader: how long ago a majority last answered.
    pub quorum_answered: Option<Duration>,
}

impl GroupView {
    /// Entries that a member has still to get, as its leader knows; `None` if this is not the leader or not a member.
    pub fn lag(&self, node: NodeId) -> Option<u64> {
        let replica = self.replicas.get(&node)?;
        Some(self.last_log.saturating_sub(replica.matched.unwrap_or(0)))
    }
}
