//! From openraft's metrics to a [`GroupView`].

use super::types::TypeConfig;
use crate::group::{GroupView, ReplicaView, Role};
use grain_contract::Epoch;
use openraft::{Instant, RaftMetrics, ServerState};

pub fn view(metrics: &RaftMetrics<TypeConfig>) -> GroupView {
    let membership = metrics.membership_config.membership();
    let index = |id: Option<super::types::LogId>| id.map_or(0, |id| id.index);
    let answered = metrics.heartbeat.as_ref();
    let replicas = metrics.replication.iter().flatten().map(|(node, matched)| {
        let answered = answered.and_then(|all| all.get(node).copied().flatten()).map(|at| at.elapsed());
        (*node, ReplicaView { matched: matched.map(|id| id.index), answered })
    });
    GroupView {
        role: role(metrics),
        term: Epoch(metrics.current_term),
        leader: metrics.current_leader,
        voters: membership.voter_ids().collect(),
        learners: membership.learner_ids().collect(),
        settled: membership.get_joint_config().len() <= 1
            && metrics.membership_config.log_id() == metrics.committed_membership_config.log_id(),
        last_log: metrics.last_log_index.unwrap_or(0),
        committed: index(metrics.local_committed),
        applied: index(metrics.last_applied),
        replicas: replicas.collect(),
        quorum_answered: metrics.last_quorum_acked.map(|at| at.elapsed()),
    }
}

fn role(metrics: &RaftMetrics<TypeConfig>) -> Role {
    if metrics.running_state.is_err() {
        return Role::Absent;
    }
    match metrics.state {
        ServerState::Learner => Role::Learner,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Leader => Role::Leader,
        ServerState::Shutdown => Role::Absent,
    }
}
