//! Orders, given: those of one shard one after the other, those of different shards at once, each with its own time limit.

use crate::membership::ask::ORDER;
use crate::membership::ground::Inner;
use crate::membership::orders;
use crate::membership::plan::Step;
use futures::future::join_all;
use granary_proto::peers::{
    AddLearner, ChangeVoters, NodeOrder, NodeOrderAnswer, RemoveLearner, StartReplica, StopReplica, TransferLeadership,
    node_order::Order,
};
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An order that takes longer goes on by itself, or not: the next look sees it.
const ORDER_MAX: Duration = Duration::from_secs(10);

pub(super) async fn act(inner: &Arc<Inner>, epoch: u64, steps: Vec<Step>) {
    let mut by_shard: BTreeMap<ShardId, Vec<Step>> = BTreeMap::new();
    for step in steps {
        by_shard.entry(step.shard()).or_default().push(step);
    }
    join_all(by_shard.into_values().map(|steps| in_order(inner, epoch, steps))).await;
}

/// Ends at the first that is not done: the next ones build on it.
async fn in_order(inner: &Arc<Inner>, epoch: u64, steps: Vec<Step>) {
    for step in steps {
        let done = give(inner, epoch, &step).await;
        match done {
            Ok(()) => tracing::info!(?step, "done"),
            Err(why) => {
                tracing::info!(?step, why, "not done; the next look decides anew");
                return;
            }
        }
    }
}

async fn give(inner: &Arc<Inner>, epoch: u64, step: &Step) -> Result<(), String> {
    let (to, order) = order(step);
    let order = NodeOrder { epoch, shard: step.shard().0, order: Some(order) };
    if to == inner.me() {
        let obeyed = tokio::time::timeout(ORDER_MAX, orders::obey(inner, &order)).await;
        return obeyed.unwrap_or_else(|_| Err("It was not done in time.".to_owned()));
    }
    let answer: NodeOrderAnswer = inner.call(to, ORDER, &order, ORDER_MAX).await.map_err(|error| error.to_string())?;
    if answer.refused.is_empty() { Ok(()) } else { Err(answer.refused) }
}

/// Who is told what.
fn order(step: &Step) -> (NodeId, Order) {
    match step {
        Step::Start { node, .. } => (*node, Order::Start(StartReplica {})),
        Step::Stop { leader, node, .. } => (*node, Order::Stop(StopReplica { leader: *leader })),
        Step::AddLearner { leader, node, .. } => (*leader, Order::AddLearner(AddLearner { node_id: *node })),
        Step::RemoveLearner { leader, node, .. } => (*leader, Order::RemoveLearner(RemoveLearner { node_id: *node })),
        Step::Transfer { leader, to, .. } => (*leader, Order::Transfer(TransferLeadership { node_id: *to })),
        Step::ChangeVoters { leader, expected, voters, .. } => {
            let list = |nodes: &std::collections::BTreeSet<NodeId>| nodes.iter().copied().collect();
            (*leader, Order::ChangeVoters(ChangeVoters { expected: list(expected), voters: list(voters) }))
        }
    }
}
