//! The cluster at one moment, for people.

use crate::directory::MemberState;
use shard::NodeId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Empty for a node that is in none.
    pub cluster_id: String,
    /// Of the book.
    pub version: u64,
    pub nodes: Vec<NodeStatus>,
    pub shards: Vec<ShardStatus>,
    /// Name of the node that gathered it.
    pub answered_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub name: String,
    pub node: NodeId,
    pub state: MemberState,
    /// It answered the node that gathered this.
    pub reachable: bool,
    pub client_address: String,
    pub zone: String,
    pub build: String,
    pub generation: u64,
    /// Shards that it leads, and of which it has a replica.
    pub leads: u32,
    pub replicas: u32,
    pub active_grains: u64,
    pub overdue_reminders: u64,
    pub outbox_calls_open: u64,
    pub workers: u64,
    /// Shards of which what it has is damaged, and how.
    pub damaged: Vec<(u32, String)>,
    /// How far its wall clock is ahead of the middle of all, ms; `None` = not known.
    pub clock_off_ms: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardStatus {
    pub shard: u32,
    /// Name of the leading node.
    pub leader: Option<String>,
    pub epoch: u64,
    pub replicas: Vec<ReplicaStatus>,
    pub overdue_reminders: u64,
    pub outbox_calls_open: u64,
    /// Entries of the index of open grains.
    pub open_runs: u64,
    /// A move in progress, in words.
    pub moving: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Name of its node.
    pub node: String,
    pub voter: bool,
    /// Log entries behind the leader, if known.
    pub lag: Option<u64>,
}

impl MemberState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Removing => "removing",
            Self::Gone => "gone",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Up, Self::Draining, Self::Removing, Self::Gone].into_iter().find(|state| state.as_str() == name)
    }
}
