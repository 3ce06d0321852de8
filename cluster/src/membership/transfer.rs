//! Leaderships handed over by people.

use super::ask::ORDER;
use super::{Membership, orders};
use crate::directory::MemberState;
use crate::refusal;
use grain_contract::{Code, Rejection};
use granary_proto::peers::{HoldLeadership, NodeOrder, NodeOrderAnswer, TransferLeadership, node_order::Order};
use shard::NodeId;
use std::sync::atomic::Ordering::Acquire;

impl Membership {
    /// Hands the leadership of a shard to a node that has a replica of it. There it stays for an hour or until the members of the
    /// cluster change: in that time the director, which spreads leaderships evenly, takes it for wanted.
    ///
    /// # Errors
    /// `Invalid` for a shard that is none; `NotFound` for an unknown node; `WrongState` if it has no voting replica, or is about
    /// to stop or to go;
    /// `Unavailable` if it was not done in time.
    pub async fn transfer_shard(&self, shard: u32, name: &str) -> Result<(), Rejection> {
        self.not_alone()?;
        let status = self.status().await?;
        let count = status.shards.len();
        let Some(now) = status.shards.into_iter().find(|it| it.shard == shard) else {
            let why = format!("Expected one of {count} shards, but found {shard}.");
            return Err(Rejection::new(Code::Invalid, why).at("shard"));
        };
        let id = |name: &str| status.nodes.iter().find(|node| node.name == name).map(|node| node.node);
        let Some(target) = status.nodes.iter().find(|node| node.name == name) else {
            let why = format!("Expected the name of a member, but nobody is called {name:?}.");
            return Err(Rejection::new(Code::NotFound, why).at("node"));
        };
        let to = target.node;
        let is_leaving = self.inner.ground.peers.leaving().contains(&to)
            || to == self.inner.me() && self.inner.leaving.load(Acquire);
        if target.state != MemberState::Up || is_leaving {
            let state = if is_leaving { "about to stop" } else { target.state.as_str() };
            return Err(Rejection::new(
                Code::WrongState,
                format!("Expected a node that stays, but {name} is {state}."),
            )
            .at("node"));
        }
        if !now.replicas.iter().any(|replica| replica.voter && replica.node == name) {
            let names: Vec<_> = now.replicas.iter().map(|replica| replica.node.as_str()).collect();
            let why = format!("Expected a replica of shard {shard}, but those are on {}.", names.join(", "));
            return Err(Rejection::new(Code::WrongState, why).at("node"));
        }
        let Some(leader) = now.leader.as_deref().and_then(id) else {
            return Err(refusal::unavailable("the shard has no leader now"));
        };
        let give = |order| NodeOrder { epoch: 0, shard, order: Some(order) };
        if leader != to {
            let transfer = Order::Transfer(TransferLeadership { node_id: to });
            self.order(leader, &give(transfer)).await.map_err(refusal::unavailable)?;
        }
        // It is done. That it is kept is said to the one that leads now, so that every director hears of it.
        if let Err(why) = self.order(to, &give(Order::Hold(HoldLeadership {}))).await {
            tracing::warn!(shard, node = name, why, "the leadership was handed over, and may be spread again");
        }
        Ok(())
    }

    async fn order(&self, node: NodeId, order: &NodeOrder) -> Result<(), String> {
        if node == self.inner.me() {
            return orders::obey(&self.inner, order).await;
        }
        let within = self.inner.options.call_within * 2;
        let answer: Result<NodeOrderAnswer, _> = self.inner.call(node, ORDER, order, within).await;
        match answer.map_err(|error| error.to_string())?.refused {
            refused if refused.is_empty() => Ok(()),
            refused => Err(refused),
        }
    }
}
