//! Real replicas over the mesh.

use super::nodes::{Authority, Plan, soon};
use crate::mesh::{Mesh, RaftPipe};
use crate::peers::Switchboard;
use grain_contract::{
    Epoch, GrainId, GrainKind, OutboxMessage, Revision, Row, RowKey, Table, TenantId, Timestamp, Turn,
};
use shard::{Commit, Host, HostOptions, NodeId, ShardId, StateBackend};
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;
use uuid::Uuid;

pub(super) struct HostNode {
    pub host: Host,
    pub mesh: Arc<Mesh>,
}

impl HostNode {
    pub(super) async fn start(plan: Plan, folder: &Path, shards: u32) -> Self {
        let pipe = RaftPipe::new();
        let options = HostOptions {
            node_id: Some(plan.birth.node),
            alone: false,
            link: pipe.clone(),
            state: StateBackend::Memory,
            segment_bytes: 1 << 20,
            ..HostOptions::new(folder, shards)
        };
        let host = Host::open(options).await.expect("the folder opens");
        let services = Arc::<Switchboard>::default();
        let (node, boot) = (host.node_id(), plan.birth.boot);
        let mesh = Mesh::start(plan.options, node, boot, host.cluster_id(), pipe, host.clone(), services).await;
        Self { host, mesh: mesh.expect("starts") }
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.host.shards()).map(ShardId)
    }

    pub(super) async fn host_all(&self) {
        if self.host.cluster_id().is_none() {
            self.host.adopt(Uuid::from_u128(7)).await.expect("adopts");
        }
        for shard in self.shards() {
            self.host.start_replica(shard).await.expect("a replica");
        }
    }

    /// Once all are attached.
    pub(super) async fn found(&self, voters: &[NodeId]) {
        self.host_all().await;
        let mut attached = self.mesh.peers().attached();
        soon("the others", attached.wait_for(|attached| attached.len() + 1 == voters.len())).await.unwrap();
        for shard in self.shards() {
            self.host.found(shard, voters.iter().copied().collect()).await.expect("is founded");
        }
    }

    async fn leads(&self, shard: ShardId) -> Epoch {
        let mut leadership = self.host.shard(shard).unwrap().leadership();
        let leads = leadership.wait_for(|leadership| leadership.epoch.is_some()).await.unwrap().epoch;
        leads.expect("waited for")
    }

    async fn stop(&self) {
        self.mesh.stop(std::time::Duration::ZERO).await;
        self.host.close().await.expect("closes");
    }
}

fn grain() -> GrainId {
    GrainId::new(&TenantId::new("t"), &GrainKind::new("k"), "key")
}

fn commit(epoch: Epoch, expected: u64) -> Commit {
    let key = RowKey { table: Table(1), key: b"row".to_vec() };
    let row = Row { key, value: vec![expected as u8; 100 << 10] };
    let event = OutboxMessage::Event { body: Vec::new() };
    let turn = Turn { puts: vec![row], outbox: vec![event], ..Turn::default() };
    Commit { grain: grain(), epoch, expected: Revision(expected), turn, command: None, at: Timestamp(0) }
}

/// Which of them leads first.
async fn leader(nodes: &[&HostNode]) -> (usize, Epoch) {
    let mut waiting = JoinSet::new();
    for (at, node) in nodes.iter().enumerate() {
        let (host, mesh) = (node.host.clone(), node.mesh.clone());
        waiting.spawn(async move { (at, HostNode { host, mesh }.leads(ShardId(0)).await) });
    }
    soon("a leader", waiting.join_next()).await.unwrap().unwrap()
}

/// One event a revision, so the outbox tells when the replica has applied it.
async fn has(node: &HostNode, revision: u64) {
    let shard = node.host.shard(ShardId(0)).unwrap();
    let mut outbox = shard.outbox_watch();
    soon("the revision", outbox.wait_for(|next| *next > revision)).await.unwrap();
    assert_eq!(shard.grain(&grain()).unwrap().revision, Revision(revision));
}

/// [K3] [K7]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_over_three_nodes_commits_and_outlives_its_leader() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut nodes: Vec<HostNode> = Vec::new();
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let mut plan = Plan::new(&authority, name, id, &[]);
        plan.options.seeds = nodes.iter().map(|node| node.mesh.addresses().peer.to_string()).collect();
        nodes.push(HostNode::start(plan, &folder.path().join(name), 1).await);
    }
    nodes[1].host_all().await;
    nodes[2].host_all().await;
    nodes[0].found(&[1, 2, 3]).await;
    let (leads, epoch) = leader(&nodes.iter().collect::<Vec<_>>()).await;
    for revision in 0..20 {
        let shard = nodes[leads].host.shard(ShardId(0)).unwrap();
        soon("the commit", shard.commit(commit(epoch, revision))).await.expect("commits");
    }
    for node in &nodes {
        has(node, 20).await;
    }
    let dead = nodes.remove(leads);
    dead.stop().await;
    let (leads, epoch) = leader(&nodes.iter().collect::<Vec<_>>()).await;
    let shard = nodes[leads].host.shard(ShardId(0)).unwrap();
    soon("the commit", shard.commit(commit(epoch, 20))).await.expect("commits");
    for node in &nodes {
        has(node, 21).await;
    }
    for node in &nodes {
        node.stop().await;
    }
}
