//! From openraft's metrics to a [`GroupView`].
//!
//! openraft publishes the same facts in three places, one after the other: data, server, and last both together. Whoever is
//! woken by one of the first two and reads the last one reads what was before, so this reads the first two.

use super::types::{LogId, TypeConfig};
use crate::group::{GroupView, ReplicaView, Role};
use grain_contract::Epoch;
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::vote::RaftLeaderId;
use openraft::{Instant, ServerState};

pub fn view(server: &RaftServerMetrics<TypeConfig>, data: &RaftDataMetrics<TypeConfig>) -> GroupView {
    let membership = server.membership_config.membership();
    let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
    let answered = data.heartbeat.as_ref();
    let replicas = data.replication.iter().flatten().map(|(node, matched)| {
        let answered = answered.and_then(|all| all.get(node).copied().flatten()).map(|at| at.elapsed());
        (*node, ReplicaView { matched: matched.map(|id| id.index), answered })
    });
    GroupView {
        role: role(server.state),
        term: Epoch(server.vote.leader_id.term()),
        leader: server.current_leader,
        voters: membership.voter_ids().collect(),
        learners: membership.learner_ids().collect(),
        settled: membership.get_joint_config().len() <= 1
            && server.membership_config.log_id() == server.committed_membership_config.log_id(),
        last_log: index(data.last_log),
        committed: index(data.local_committed),
        applied: index(data.last_applied),
        replicas: replicas.collect(),
        quorum_answered: data.last_quorum_acked.map(|at| at.elapsed()),
    }
}

fn role(state: ServerState) -> Role {
    match state {
        ServerState::Learner => Role::Learner,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Leader => Role::Leader,
        ServerState::Shutdown => Role::Absent,
    }
}
