//! Several hosts in one process, with a network in memory between them.

mod catching_up;
mod damaged;
mod elections;
mod faults;
mod frozen;
mod members;
mod restarts;
mod stopping;

use super::*;
use crate::group::{GroupView, Role};
use crate::link::NodeId;
use crate::testing::{Digest, Net, digest};
use crate::{HostOptions, Timing};
use futures::future::{join_all, select_all};
use openraft::RaftLogReader;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
pub const SHARD: ShardId = ShardId(0);

pub struct Cluster {
    pub net: Arc<Net>,
    pub hosts: BTreeMap<NodeId, Host>,
    dirs: BTreeMap<NodeId, TempDir>,
    state: StateBackend,
    pub timing: Timing,
    /// Changed for hosts that are opened afterwards.
    pub keep_log: u64,
    pub snapshot_log_bytes: u64,
}

impl Cluster {
    pub fn empty(state: StateBackend) -> Self {
        let (hosts, dirs) = Default::default();
        let timing = Timing::default().scaled(2);
        Self { net: Net::new(), hosts, dirs, state, timing, keep_log: 5_000, snapshot_log_bytes: 16 << 20 }
    }

    /// Nodes 1 to `nodes`, all of them voters of shard 0.
    pub async fn of(nodes: NodeId) -> Self {
        Self::founded(Self::empty(StateBackend::Memory), nodes).await
    }

    pub async fn founded(mut cluster: Self, nodes: NodeId) -> Self {
        for node in 1..=nodes {
            cluster.open(node).await;
            cluster.hosts[&node].start_replica(SHARD).await.unwrap();
        }
        cluster.hosts[&1].found(SHARD, (1..=nodes).collect()).await.unwrap();
        cluster.owner().await;
        cluster
    }

    /// Opens a node, on what it left behind or on a new folder.
    pub async fn open(&mut self, node: NodeId) {
        let dir = self.dirs.entry(node).or_insert_with(|| tempfile::tempdir().unwrap());
        let options = HostOptions {
            timing: self.timing,
            keep_log: self.keep_log,
            snapshot_log_bytes: self.snapshot_log_bytes,
            ..options_of(&self.net, node, dir.path(), self.state)
        };
        let host = Host::open(options).await.unwrap();
        self.net.attach(&host);
        self.hosts.insert(node, host);
    }

    pub async fn close(&mut self, node: NodeId) {
        self.net.detach(node);
        self.hosts.remove(&node).unwrap().close().await.unwrap();
    }

    pub async fn crash(&mut self, node: NodeId) {
        self.net.detach(node);
        self.hosts.remove(&node).unwrap().inner.crash().await;
    }

    pub async fn end(mut self) {
        for node in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.close(node).await;
        }
    }

    pub fn dir(&self, node: NodeId) -> &Path {
        self.dirs[&node].path()
    }

    pub fn shard(&self, node: NodeId) -> Shard {
        self.hosts[&node].shard(SHARD).unwrap()
    }

    pub fn group(&self, node: NodeId) -> GroupView {
        self.shard(node).group()
    }

    /// An owner among these nodes; waits for one.
    pub async fn owner_among(&self, nodes: impl IntoIterator<Item = NodeId>) -> (NodeId, Owner) {
        let owns = nodes.into_iter().map(|node| {
            let shard = self.shard(node);
            Box::pin(async move {
                let mut leadership = shard.leadership();
                let epoch = leadership.wait_for(|now| now.epoch.is_some()).await.unwrap().epoch.unwrap();
                (node, Owner { shard, epoch })
            })
        });
        tokio::time::timeout(PATIENCE, select_all(owns)).await.expect("a shard finds an owner").0
    }

    pub async fn owner(&self) -> (NodeId, Owner) {
        self.owner_among(self.hosts.keys().copied()).await
    }

    pub fn others(&self, node: NodeId) -> Vec<NodeId> {
        self.hosts.keys().copied().filter(|other| *other != node).collect()
    }

    /// Commits once, at whoever owns now; a change of the owner in between is met by asking the next one, as routing does.
    pub async fn commit(&self, key: &str) -> Committed {
        self.commit_among(key, self.hosts.keys().copied().collect()).await
    }

    pub async fn commit_among(&self, key: &str, nodes: Vec<NodeId>) -> Committed {
        let trying = async {
            loop {
                let (_, owner) = self.owner_among(nodes.clone()).await;
                let Ok(revision) = owner.shard.grain(&grain(key)).map(|rows| rows.revision.0) else { continue };
                match owner.commit(key, revision, puts([row(1, "n", (revision + 1).to_be_bytes())])).await {
                    Ok(committed) => return committed,
                    Err(Error::NotLeader { .. } | Error::Fenced { .. } | Error::Unknown(_)) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, trying).await.expect("a commit goes through")
    }

    /// Waits until every replica named has applied the same, all that the leader has, and gives what they all hold.
    pub async fn agree(&self, nodes: impl IntoIterator<Item = NodeId>) -> Digest {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let agreeing = async {
            loop {
                let (_, owner) = self.owner().await;
                let upto = owner.shard.group().last_log;
                for node in &nodes {
                    let replica = self.shard(*node).inner.replica().expect("hosts the shard");
                    let reached = replica.raft.wait(None).applied_index_at_least(Some(upto), "agree").await;
                    reached.unwrap_or_else(|error| panic!("node {node}: {error}"));
                }
                let digests = nodes.iter().map(|node| (*node, digest(&self.hosts[node], SHARD).unwrap().unwrap()));
                let digests: BTreeMap<_, _> = digests.collect();
                let first = digests.values().next().expect("at least one");
                // A new leader may have added an entry while they were looked at.
                if digests.values().all(|digest| digest.applied == first.applied) {
                    assert!(digests.values().all(|digest| digest == first), "{digests:?}");
                    return first.clone();
                }
            }
        };
        tokio::time::timeout(PATIENCE, agreeing).await.expect("all replicas come to the same entry")
    }

    pub async fn agree_all(&self) -> Digest {
        self.agree(self.hosts.keys().copied()).await
    }

    /// The term of the vote that a node has on disk.
    pub async fn voted(&self, node: NodeId) -> u64 {
        let mut log = self.shard(node).inner.wal.group(SHARD.0);
        log.read_vote().await.unwrap().map_or(0, |vote| vote.leader_id.term)
    }

    /// Waits until a node sees its group so.
    pub async fn sees(&self, node: NodeId, what: impl Fn(&GroupView) -> bool) -> GroupView {
        let mut groups = self.shard(node).group_watch();
        let seen = tokio::time::timeout(PATIENCE, groups.wait_for(|group| what(group))).await;
        seen.unwrap_or_else(|_| panic!("node {node} sees {:?}", self.group(node))).unwrap().clone()
    }
}

pub fn options_of(net: &Arc<Net>, node: NodeId, dir: &Path, state: StateBackend) -> HostOptions {
    HostOptions {
        alone: false,
        node_id: Some(node),
        link: net.link(node),
        timing: Timing::default().scaled(2),
        ..options(dir, state)
    }
}

pub fn ids(ids: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
    ids.into_iter().collect()
}
