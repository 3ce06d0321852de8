//! The director: beside the leader of shard 0, for as long as it leads.
//!
//! A loop of look, plan, act: it reads the book, asks all nodes, plans (`super::plan`), and gives orders. What an order came to is
//! seen at the next look. It remembers only who was heard of when, and when elections were, both by its own monotonic clock;
//! a new director starts with everybody just heard of, so a change of directors never shortens the grace of a silent node.

mod act;
mod look;
mod memory;

use super::book::{self, Book, book_of, to_view};
use super::ground::Inner;
use super::plan::{Limits, Picture, Plan, plan};
use act::act;
use futures::future::join_all;
use grain_contract::Rejection;
use granary_proto::peers::{BookPlace, BookView, LearnAnswer, PlaceBook, ReadBook};
pub(super) use look::ask_all;
use look::look;
use memory::Memory;
use shard::{NodeId, ShardId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks while something moves.
const LOOK_SOON: Duration = Duration::from_millis(100);

pub(super) async fn run(inner: Arc<Inner>) {
    let Some(shard) = inner.ground.host.shard(ShardId(0)) else { return };
    let mut leadership = shard.leadership();
    loop {
        let epoch = leadership.borrow_and_update().epoch;
        if let Some(epoch) = epoch {
            tracing::info!(epoch = epoch.0, "this node directs the cluster");
            tokio::select! {
                () = direct(&inner, epoch.0) => {}
                () = other_than(&mut leadership, epoch.0) => {}
            }
        } else if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Ends when the shard is not led here in this epoch any more.
async fn other_than(leadership: &mut watch::Receiver<shard::Leadership>, epoch: u64) {
    let _ = leadership.wait_for(|now| now.epoch.is_none_or(|now| now.0 != epoch)).await;
}

async fn direct(inner: &Arc<Inner>, epoch: u64) {
    let mut memory = Memory::default();
    let mut pushed = 0;
    let mut changes = inner.ground.silo.watch(&book::id());
    let mut attached = inner.ground.peers.attached();
    loop {
        let moved = match round(inner, epoch, &mut memory, &mut pushed).await {
            Ok(moved) => moved,
            Err(rejection) => {
                tracing::debug!(why = rejection.message, "the director could not look");
                false
            }
        };
        if moved {
            tokio::time::sleep(LOOK_SOON).await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(inner.options.look_every) => {}
            () = changes.changed() => {}
            _ = attached.changed() => tokio::time::sleep(LOOK_SOON).await,
        }
    }
}

/// Look, plan, act. True if there is more to do at once.
async fn round(inner: &Arc<Inner>, epoch: u64, memory: &mut Memory, pushed: &mut u64) -> Result<bool, Rejection> {
    let within = inner.options.call_within;
    let view = inner.ask_here(book::READ, &ReadBook { since: 0 }, within).await?;
    let Some(book) = book_of(&view) else { return Ok(false) };
    learn_and_push(inner, &view, pushed).await;
    let nodes = look(inner, &book).await;
    let now = inner.ground.clock.monotonic_ms();
    memory.note(&book, &nodes, now);
    let (dead, calm) = (memory.dead(&inner.options, now), memory.calm(&inner.options, now));
    let limits = Limits { moves_at_once: inner.options.moves_at_once, lag_max: inner.options.lag_max };
    let plan = plan(&Picture { book: &book, nodes: &nodes, dead: &dead, calm: &calm, limits });
    let is_idle = plan == Plan::default();
    write_down(inner, &book, &plan).await?;
    act(inner, epoch, plan.steps).await;
    Ok(!is_idle)
}

/// To everybody who can be called; who misses it pulls.
async fn learn_and_push(inner: &Arc<Inner>, view: &BookView, pushed: &mut u64) {
    if view.version <= *pushed {
        return;
    }
    if let Some(view) = to_view(view) {
        inner.ground.directory.learn(view);
    }
    let nodes: Vec<NodeId> = inner.attached().keys().copied().collect();
    let push = nodes.into_iter().map(|node| async move {
        let within = inner.options.call_within;
        inner.call::<LearnAnswer>(node, super::ask::LEARN, view, within).await.map_err(|error| (node, error))
    });
    for (node, error) in join_all(push).await.into_iter().filter_map(Result::err) {
        tracing::debug!(node, %error, "the book was not pushed");
    }
    *pushed = view.version;
}

/// What was found goes into the book, if nobody has written in it since it was read.
async fn write_down(inner: &Inner, book: &Book, plan: &Plan) -> Result<(), Rejection> {
    if plan.places.is_empty() && plan.gone.is_empty() {
        return Ok(());
    }
    let place = |(shard, replicas): &(ShardId, Vec<NodeId>)| BookPlace { shard: shard.0, replicas: replicas.clone() };
    let call = PlaceBook {
        expected_version: book.version,
        places: plan.places.iter().map(place).collect(),
        gone: plan.gone.clone(),
    };
    inner.ask_here(book::PLACE, &call, inner.options.call_within).await.map(|_| ())
}
