//! The replicas stand at the same place once nothing is written any more.

use granary_proto::v1;

/// What is not settled yet, as sentences: a shard without a leader, a replica that lags or is still on the move, a node that
/// nobody reaches.
pub fn unsettled(status: &v1::GetClusterResponse, replicas: usize) -> Vec<String> {
    let mut open = Vec::new();
    for node in status.nodes.iter().filter(|node| node.state == "up" && !node.reachable) {
        open.push(format!("node {} is not reached", node.name));
    }
    for shard in &status.shards {
        if shard.leader.is_empty() {
            open.push(format!("shard {} has no leader", shard.shard));
        }
        if !shard.moving.is_empty() {
            open.push(format!("shard {}: {}", shard.shard, shard.moving));
        }
        let voters = shard.replicas.iter().filter(|replica| replica.voter).count();
        if voters != replicas || shard.replicas.len() != voters {
            open.push(format!("shard {} has {voters} voters of {} replicas", shard.shard, shard.replicas.len()));
        }
        for replica in shard.replicas.iter().filter(|replica| replica.lag != 0) {
            open.push(format!("shard {} on {} lags by {}", shard.shard, replica.node, replica.lag));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_and_a_missing_leader_are_not_settled() {
        let replica = |lag| v1::ShardReplica { node: "n".into(), voter: true, lag };
        let shard = |leader: &str, lag| v1::ClusterShard {
            leader: leader.into(),
            replicas: vec![replica(lag)],
            ..Default::default()
        };
        let status = |shard| v1::GetClusterResponse { shards: vec![shard], ..Default::default() };
        assert!(unsettled(&status(shard("n", 0)), 1).is_empty());
        assert_eq!(unsettled(&status(shard("n", 3)), 1).len(), 1);
        assert_eq!(unsettled(&status(shard("", 0)), 1).len(), 1);
        assert_eq!(unsettled(&status(shard("n", 0)), 3).len(), 1);
    }
}
