//! Who belongs to a shard's group, and who leads it.
//!
//! Addresses are no part of it: the link knows how a node is reached, so a node that moves changes no group.

use super::replica::Replica;
use super::shard::ShardInner;
use super::storage;
use super::types::TypeConfig;
use crate::Error;
use crate::group::{GroupView, Role};
use crate::link::NodeId;
use openraft::ChangeMembers;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use openraft::impls::BasicNode;
use openraft::raft::ClientWriteResponse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a change of members may wait for its majority. The caller looks at the group again then.
const CHANGE_MAX: Duration = Duration::from_secs(10);
/// How long the new leader may take to be heard of. While it lasts the old one takes no commits.
const TRANSFER_MAX: Duration = Duration::from_secs(2);

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>;

impl ShardInner {
    pub fn group(&self) -> GroupView {
        self.replica().map_or_else(GroupView::default, |replica| replica.group())
    }

    pub async fn found(&self, voters: BTreeSet<NodeId>) -> Result<(), Error> {
        let replica = self.present()?;
        let voters: BTreeMap<_, _> = voters.into_iter().map(|node| (node, BasicNode::default())).collect();
        match replica.raft.initialize(voters).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(refused)) => Err(self.refused(refused)),
            Err(RaftError::Fatal(fatal)) => Err(storage(fatal)),
        }
    }

    pub async fn add_learner(&self, node: NodeId) -> Result<(), Error> {
        let replica = self.present()?;
        let group = self.led(&replica)?;
        if group.voters.contains(&node) || group.learners.contains(&node) {
            return Ok(());
        }
        let adding = replica.raft.add_learner(node, BasicNode::default(), false);
        self.within(adding).await
    }

    pub async fn remove_learner(&self, node: NodeId) -> Result<(), Error> {
        let replica = self.present()?;
        let group = self.led(&replica)?;
        if !group.learners.contains(&node) {
            return Ok(());
        }
        let removing = replica.raft.change_membership(ChangeMembers::RemoveNodes(BTreeSet::from([node])), false);
        self.within(removing).await
    }

    pub async fn change_voters(&self, voters: BTreeSet<NodeId>) -> Result<(), Error> {
        let replica = self.present()?;
        let group = self.led(&replica)?;
        if group.voters == voters && group.settled {
            return Ok(());
        }
        self.within(replica.raft.change_membership(voters, false)).await
    }

    pub async fn transfer_leadership(&self, to: NodeId) -> Result<(), Error> {
        let replica = self.present()?;
        let group = self.led(&replica)?;
        if to == self.node {
            return Ok(());
        }
        if !group.voters.contains(&to) {
            return Err(self.refused(format!("Expected a voter as its next leader, but found {to}")));
        }
        replica.raft.trigger().transfer_leader(to).await.map_err(storage)?;
        // #1747 of openraft: without a limit of ours a target that cannot be reached is waited for without end.
        let taken = replica.raft.wait(Some(TRANSFER_MAX));
        let taken = taken.metrics(|now| now.current_leader.is_some_and(|leader| leader != self.node), "transfer").await;
        match taken {
            Ok(now) if now.current_leader == Some(to) => Ok(()),
            Ok(now) => Err(self.refused(format!("Expected {to} to take over, but found {:?}", now.current_leader))),
            Err(_) => Err(self.refused(format!("Expected {to} to take over within {TRANSFER_MAX:?}, but it did not"))),
        }
    }

    fn present(&self) -> Result<Arc<Replica>, Error> {
        self.serving()?;
        self.replica().ok_or(Error::NotHosted { shard: self.id.0 })
    }

    fn led(&self, replica: &Replica) -> Result<GroupView, Error> {
        let group = replica.group();
        if group.role == Role::Leader {
            return Ok(group);
        }
        Err(Error::NotLeader { shard: self.id.0, leader: group.leader.filter(|leader| *leader != self.node) })
    }

    async fn within(&self, change: impl Future<Output = Written>) -> Result<(), Error> {
        match tokio::time::timeout(CHANGE_MAX, change).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                Err(Error::NotLeader { shard: self.id.0, leader: to.leader_id })
            }
            Ok(Err(RaftError::APIError(error @ ClientWriteError::LogEntryDiscarded(_)))) => {
                Err(Error::Unknown(error.to_string()))
            }
            Ok(Err(RaftError::APIError(refused))) => Err(self.refused(refused)),
            Ok(Err(RaftError::Fatal(fatal))) => Err(Error::Unknown(fatal.to_string())),
            Err(_) => Err(Error::Unknown(format!("no majority answered within {CHANGE_MAX:?}"))),
        }
    }

    fn refused(&self, why: impl ToString) -> Error {
        Error::Change { shard: self.id.0, why: why.to_string() }
    }
}
