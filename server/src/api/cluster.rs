//! The cluster itself: who is in it, where the shards are, and moving them. A node that is alone answers as a cluster of one.

use super::Api;
use ::cluster::membership::{ClusterStatus, NodeStatus, ReplicaStatus, ShardStatus};
use ::cluster::{Health, Membership};
use grain_contract::{Code, Rejection};
use granary_proto::v1;

const NOT_JOINED: &str = "this silo does not belong to a cluster yet";

impl Api {
    /// The node belongs to its cluster. Told once.
    pub(crate) fn joined(&self, membership: Membership) {
        let _ = self.inner.membership.set(membership);
    }

    /// # Errors
    /// `Unavailable` until the node belongs to a cluster.
    pub fn membership(&self) -> Result<&Membership, Rejection> {
        self.inner.membership.get().ok_or_else(|| {
            Rejection::new(Code::Unavailable, format!("Expected a silo of a cluster, but {NOT_JOINED}."))
        })
    }

    /// As the silo says, and whether it has its place and is to keep it.
    pub fn health(&self) -> Health {
        let mut health = self.inner.silo.health();
        if self.inner.membership.get().is_none() {
            health.reasons.insert(0, NOT_JOINED.to_owned());
        }
        if self.is_stopping() {
            health.reasons.push("the node stops".to_owned());
        }
        health.ready = health.ready && health.reasons.is_empty();
        health
    }

    pub async fn cluster(&self) -> Result<v1::GetClusterResponse, Rejection> {
        Ok(shown(self.membership()?.status().await?))
    }

    pub async fn drain_node(&self, request: &v1::DrainNodeRequest) -> Result<v1::DrainNodeResponse, Rejection> {
        self.membership()?.drain_node(name(&request.node)?, request.undo).await?;
        Ok(v1::DrainNodeResponse {})
    }

    pub async fn remove_node(&self, request: &v1::RemoveNodeRequest) -> Result<v1::RemoveNodeResponse, Rejection> {
        self.membership()?.remove_node(name(&request.node)?).await?;
        Ok(v1::RemoveNodeResponse {})
    }

    pub async fn transfer_shard(
        &self,
        request: &v1::TransferShardRequest,
    ) -> Result<v1::TransferShardResponse, Rejection> {
        self.membership()?.transfer_shard(request.shard, name(&request.node)?).await?;
        Ok(v1::TransferShardResponse {})
    }
}

fn name(name: &str) -> Result<&str, Rejection> {
    super::check::name(name, "node")?;
    Ok(name)
}

fn shown(status: ClusterStatus) -> v1::GetClusterResponse {
    v1::GetClusterResponse {
        cluster_id: status.cluster_id,
        version: status.version,
        nodes: status.nodes.into_iter().map(node).collect(),
        shards: status.shards.into_iter().map(shard).collect(),
        answered_by: status.answered_by,
    }
}

fn node(node: NodeStatus) -> v1::ClusterNode {
    v1::ClusterNode {
        name: node.name,
        node_id: node.node,
        state: node.state.as_str().to_owned(),
        reachable: node.reachable,
        address: node.client_address,
        zone: node.zone,
        build: node.build,
        generation: node.generation,
        leads: node.leads,
        replicas: node.replicas,
        active_grains: node.active_grains,
        overdue_reminders: node.overdue_reminders,
        outbox_calls_open: node.outbox_calls_open,
        workers: node.workers,
        damaged: node.damaged.into_iter().map(|(shard, why)| v1::DamagedShard { shard, why }).collect(),
        clock_off_ms: node.clock_off_ms,
    }
}

fn shard(shard: ShardStatus) -> v1::ClusterShard {
    v1::ClusterShard {
        shard: shard.shard,
        leader: shard.leader.unwrap_or_default(),
        epoch: shard.epoch,
        replicas: shard.replicas.into_iter().map(replica).collect(),
        overdue_reminders: shard.overdue_reminders,
        outbox_calls_open: shard.outbox_calls_open,
        open_runs: shard.open_runs,
        moving: shard.moving.unwrap_or_default(),
    }
}

fn replica(replica: ReplicaStatus) -> v1::ShardReplica {
    let lag = replica.lag.map_or(-1, |lag| i64::try_from(lag).unwrap_or(i64::MAX));
    v1::ShardReplica { node: replica.node, voter: replica.voter, lag }
}
