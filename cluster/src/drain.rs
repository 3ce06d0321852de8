//! A silo stops in order: it gives away what it leads, lets end what has begun, and loses nothing.
//!
//! With others beside it, it goes on to answer all the while: calls of shards that it gave away it forwards, so a stop fails no
//! call. Alone it admits no more and waits for those that are inside.

use crate::directory::MemberState;
use crate::events::keep_all;
use crate::hub::Hub;
use crate::room::Room;
use futures::future::join_all;
use shard::NodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// One try to hand over one shard, and the new leader's first word.
const HAND_OVER: Duration = Duration::from_millis(2_500);
/// Tries a shard; then it is left to an election.
const HAND_OVERS_MAX: usize = 4;
const HAND_OVER_AGAIN: Duration = Duration::from_millis(50);

/// Gives up waiting at `until`. What was not finished is in rows.
pub(crate) async fn drain(hub: &Arc<Hub>, mut tasks: JoinSet<()>, until: Instant) {
    hub.draining.store(true, Ordering::Release);
    hub.dispatch.drain();
    if hub.has_company() {
        let led = hub.rooms.iter().map(|room| give_away(hub, room));
        let _ = tokio::time::timeout_at(until, join_all(led)).await;
    } else {
        let _ = tokio::time::timeout_at(until, none_left(&hub.calls, &hub.call_ended)).await;
    }
    let _ = tokio::time::timeout_at(until, keep_all(hub)).await;
    hub.stop.cancel();
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout_at(until, ended).await;
    let _ = tokio::time::timeout_at(until, none_left(&hub.turns_running, &hub.turn_ended)).await;
}

/// Hands one shard over, if it is led here, and waits until its activations are gone.
async fn give_away(hub: &Arc<Hub>, room: &Arc<Room>) {
    let mut leadership = room.store.leadership();
    let mut tried = Vec::new();
    for _ in 0..HAND_OVERS_MAX {
        let Some(epoch) = leadership.borrow_and_update().epoch else { break };
        let Some(heir) = heir(hub, &room.store.heirs(), &tried) else {
            tracing::debug!(shard = room.id.0, "nobody can take the shard over now");
            tried.clear();
            tokio::time::sleep(HAND_OVER_AGAIN).await;
            continue;
        };
        let handed_over = async {
            room.store.hand_over(heir).await?;
            let _ = leadership.wait_for(|now| now.epoch != Some(epoch)).await;
            Ok::<_, shard::Error>(())
        };
        match tokio::time::timeout(HAND_OVER, handed_over).await {
            Ok(Ok(())) => break,
            Ok(Err(error)) => tracing::debug!(shard = room.id.0, heir, %error, "the shard was not handed over"),
            Err(_) => tracing::debug!(shard = room.id.0, heir, "the shard was not taken over in time"),
        }
        tried.push(heir);
    }
    if leadership.borrow().epoch.is_none() {
        room.catalog.closed().await;
    }
}

/// The most up-to-date one that can be reached and stays.
fn heir(hub: &Hub, heirs: &[NodeId], tried: &[NodeId]) -> Option<NodeId> {
    let attached = hub.around.peers.attached();
    let attached = attached.borrow();
    let view = hub.around.directory.view();
    let leaving = hub.around.peers.leaving();
    let is_up = |node: &NodeId| view.members.get(node).is_none_or(|member| member.state == MemberState::Up);
    let stays = |node: &NodeId| is_up(node) && !leaving.contains(node);
    heirs.iter().copied().find(|node| attached.contains_key(node) && stays(node) && !tried.contains(node))
}

/// Ends when the counter stands at zero; `ended` is told each time it may.
async fn none_left(counter: &AtomicUsize, ended: &Notify) {
    loop {
        // Waits from before the look, so an end between the two is not missed.
        let told = ended.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if counter.load(Ordering::Acquire) == 0 {
            return;
        }
        told.await;
    }
}
