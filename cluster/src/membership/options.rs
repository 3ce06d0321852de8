//! What a node is told about its cluster at its start.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct MembershipOptions {
    /// Of this node; that of its certificate. Unique in the cluster.
    pub name: String,
    /// Replicas of a shard go to distinct zones where there are enough. Empty = none told.
    pub zone: String,
    /// Where clients reach this node.
    pub client_address: String,
    pub build: String,
    /// Names of the nodes that begin the cluster, the same list on all of them. The first one does it, once it has reached all.
    pub founders: Vec<String>,
    /// Replicas of a shard, if there are as many nodes.
    pub replicas: usize,
    /// A node unheard of for this long has its replicas made again elsewhere.
    pub dead_node_grace: Duration,
    /// Shards that are being moved at one time.
    pub moves_at_once: usize,
    /// Folder of the host; a founding in progress is written down there.
    pub data_dir: PathBuf,
    /// Between two looks of the director.
    pub look_every: Duration,
    /// Between two questions for a newer book.
    pub pull_every: Duration,
    /// One call to another node.
    pub call_within: Duration,
    /// Leaderships are spread only this long after the last election of their shard.
    pub settle: Duration,
    /// A new replica may vote once it is behind by no more than so many log entries.
    pub lag_max: u64,
}

impl MembershipOptions {
    /// Everything else at its default.
    pub fn new(name: impl Into<String>, founders: Vec<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            zone: String::new(),
            client_address: String::new(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            founders,
            replicas: 3,
            dead_node_grace: Duration::from_secs(300),
            moves_at_once: 4,
            data_dir: data_dir.into(),
            look_every: Duration::from_secs(1),
            pull_every: Duration::from_secs(2),
            call_within: Duration::from_secs(2),
            settle: Duration::from_secs(5),
            lag_max: 1_000,
        }
    }
}
