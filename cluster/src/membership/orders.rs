//! What the director tells this node to do, done. Everything is safe to repeat.
//!
//! A director that was frozen and wakes may still be sending. It is fenced twice: a node that has heard a later one refuses it,
//! and what it wants must fit what is there (the voters it expects; a replica that is wiped only after its leader said that
//! nobody counts on it).

use super::ask::COUNTS_ON;
use super::ground::Inner;
use granary_proto::peers::{CountsOnAnswer, CountsOnRequest, NodeOrder, StopReplica, node_order};
use shard::{GroupView, NodeId, Role, Shard, ShardId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

/// A leader that was answered by a majority this recently knows who is in its group.
pub(super) const CONFIRMED: Duration = Duration::from_secs(2);

/// # Errors
/// Why it was not done, in words. It is decided anew at the next look.
pub(super) async fn obey(inner: &Inner, order: &NodeOrder) -> Result<(), String> {
    use node_order::Order;
    let latest = inner.director.fetch_max(order.epoch, AcqRel).max(order.epoch);
    // A transfer only names a voter, and people may ask for one: whoever sends it does no harm. The same goes for its hold.
    let is_harmless = matches!(order.order, Some(Order::Transfer(_) | Order::Hold(_)));
    if order.epoch < latest && !is_harmless {
        return Err(format!("Expected the director of epoch {latest} or later, but found epoch {}.", order.epoch));
    }
    let host = &inner.ground.host;
    let shard = host.shard(ShardId(order.shard)).ok_or_else(|| format!("There is no shard {}.", order.shard))?;
    let told = |error: shard::Error| error.to_string();
    match order.order.as_ref().ok_or("An order that this build does not know.")? {
        Order::Start(_) => {
            inner.starts[order.shard as usize].fetch_add(1, AcqRel);
            host.start_replica(shard.id()).await.map_err(told)
        }
        Order::Stop(stop) => stop_replica(inner, order.epoch, &shard, stop).await,
        Order::AddLearner(it) => shard.add_learner(it.node_id).await.map_err(told),
        Order::RemoveLearner(it) => shard.remove_learner(it.node_id).await.map_err(told),
        Order::ChangeVoters(it) => {
            let (expected, found) = (it.expected.iter().copied().collect::<BTreeSet<_>>(), shard.group().voters);
            if expected != found {
                return Err(format!("Expected the voters {expected:x?}, but found {found:x?}."));
            }
            shard.change_voters(it.voters.iter().copied().collect()).await.map_err(told)
        }
        Order::Transfer(it) if inner.ground.peers.leaving().contains(&it.node_id) => {
            Err(format!("Expected a node that stays, but {:x} is about to stop.", it.node_id))
        }
        Order::Transfer(it) => shard.transfer_leadership(it.node_id).await.map_err(told),
        Order::Hold(_) => hold(inner, &shard),
    }
}

fn hold(inner: &Inner, shard: &Shard) -> Result<(), String> {
    let group = shard.group();
    if group.role != Role::Leader {
        return Err(format!("Expected the leader of shard {}, but this node is none.", shard.id().0));
    }
    inner.held.hold(shard.id(), group.term.0, &inner.ground.directory.view(), inner.ground.clock.monotonic_ms());
    Ok(())
}

async fn stop_replica(inner: &Inner, epoch: u64, shard: &Shard, order: &StopReplica) -> Result<(), String> {
    let id = shard.id();
    let starts = inner.starts[id.0 as usize].load(Acquire);
    if order.leader == inner.me() {
        return Err("This node leads the shard.".to_owned());
    }
    let question = CountsOnRequest { shard: id.0, node_id: inner.me() };
    let answer: CountsOnAnswer = inner
        .call(order.leader, COUNTS_ON, &question, inner.options.call_within)
        .await
        .map_err(|error| format!("The leader could not be asked: {error}."))?;
    if !answer.certain || answer.counts {
        return Err("Its leader counts on the replica, or does not know.".to_owned());
    }
    // While the leader was asked, the world may have gone on.
    if inner.starts[id.0 as usize].load(Acquire) != starts || inner.director.load(Acquire) != epoch {
        return Err("The replica was told to start again in the meantime.".to_owned());
    }
    tracing::info!(shard = id.0, "the replica here is not wanted any more and is wiped");
    inner.ground.host.stop_replica(id).await.map_err(|error| error.to_string())
}

/// Asked of a leader by who is about to wipe its replica.
pub(super) fn counts_on(inner: &Inner, question: &CountsOnRequest) -> CountsOnAnswer {
    let shard = inner.ground.host.shard(ShardId(question.shard));
    let group = shard.map(|shard| shard.group()).unwrap_or_default();
    CountsOnAnswer { certain: leads(&group) && group.settled, counts: counts(&group, question.node_id) }
}

fn counts(group: &GroupView, node: NodeId) -> bool {
    group.voters.contains(&node) || group.learners.contains(&node)
}

/// It leads, and a majority answered it a moment ago.
pub(super) fn leads(group: &GroupView) -> bool {
    group.role == Role::Leader && group.quorum_answered.is_some_and(|ago| ago < CONFIRMED)
}
