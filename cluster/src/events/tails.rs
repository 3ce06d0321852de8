//! Where the outboxes of shards without a replica here stand: asked of their owners for as long as some reader wants to know.
//!
//! One long question a peer, for all its shards and all readers of this silo, so that quiet readers cost nearly nothing.

use crate::hop::way::Way;
use crate::hop::wire::Answer;
use crate::hub::Hub;
use crate::service::{BEAT_EVERY, Pulse};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A peer answers after this long if there is no news.
const WAIT: Duration = Duration::from_secs(3);
/// After a question that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// Readers look once a second at least; what none of them looked for any more is not asked for either.
const WANTED_MS: u64 = 3_000;

pub(crate) struct Tails {
    start: Instant,
    shards: Vec<Tail>,
    /// Counts the news.
    told: watch::Sender<u64>,
    wanted: Notify,
}

#[derive(Default)]
struct Tail {
    head: AtomicU64,
    /// When a reader last looked for it, ms from `start`, plus one; 0 = never.
    wanted_at: AtomicU64,
}

impl Tails {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Tail::default()).collect();
        Self { start: Instant::now(), shards, told: watch::Sender::new(0), wanted: Notify::new() }
    }

    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// Where the shard's outbox stands elsewhere, as far as is known; and more shall be known.
    pub(super) fn want(&self, shard: usize) -> u64 {
        let tail = &self.shards[shard];
        let now = self.now();
        let before = tail.wanted_at.swap(now, Ordering::AcqRel);
        if now.saturating_sub(before) > WANTED_MS || before == 0 {
            self.wanted.notify_one();
        }
        tail.head.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn is_wanted(&self, tail: &Tail) -> bool {
        let at = tail.wanted_at.load(Ordering::Acquire);
        at != 0 && self.now().saturating_sub(at) <= WANTED_MS
    }

    fn learn(&self, shard: ShardId, head: u64) {
        let before = self.shards[shard.0 as usize].head.fetch_max(head, Ordering::AcqRel);
        if head > before {
            self.told.send_modify(|news| *news += 1);
        }
    }
}

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    let mut asked = FuturesUnordered::new();
    // When each shard may be asked for again; `None` while it is.
    let mut free_at = vec![Some(Instant::now()); hub.rooms.len()];
    loop {
        pulse.beat();
        for (node, shards) in plan(&hub, &free_at) {
            shards.iter().for_each(|(shard, _)| free_at[shard.0 as usize] = None);
            let hub = hub.clone();
            asked.push(async move {
                let answer = hub.newer_heads(node, &shards, WAIT).await;
                (node, shards, answer)
            });
        }
        let look_again = if asked.is_empty() { BEAT_EVERY } else { AGAIN };
        tokio::select! {
            Some((node, shards, answer)) = asked.next(), if !asked.is_empty() => {
                settle(&hub, node, &shards, answer.ok(), &mut free_at);
            }
            () = hub.tails.wanted.notified() => {}
            () = tokio::time::sleep(look_again) => {}
        }
    }
}

/// Whom to ask about what.
fn plan(hub: &Hub, free_at: &[Option<Instant>]) -> BTreeMap<NodeId, Vec<(ShardId, u64)>> {
    let now = Instant::now();
    let mut round: BTreeMap<NodeId, Vec<(ShardId, u64)>> = BTreeMap::new();
    for (room, tail) in hub.rooms.iter().zip(&hub.tails.shards) {
        let free = free_at[room.id.0 as usize].is_some_and(|at| at <= now);
        if !free || !hub.tails.is_wanted(tail) {
            continue;
        }
        if let Some(node) = hub.next_node(room.id, &Way::default()) {
            round.entry(node).or_default().push((room.id, tail.head.load(Ordering::Acquire)));
        }
    }
    round
}

fn settle(
    hub: &Hub,
    node: NodeId,
    shards: &[(ShardId, u64)],
    answers: Option<Vec<Answer<crate::hop::outbox::Bounds>>>,
    free_at: &mut [Option<Instant>],
) {
    let now = Instant::now();
    let answers = answers.map(|answers| answers.into_iter().map(Some).collect());
    let answers: Vec<Option<_>> = answers.unwrap_or_else(|| shards.iter().map(|_| None).collect());
    for ((shard, _), answer) in shards.iter().zip(answers) {
        let at = match answer {
            Some(Answer::Got(bounds)) => {
                hub.hints.set(shard.0 as usize, Some(node));
                hub.tails.learn(*shard, bounds.head);
                now
            }
            Some(Answer::Moved(leader)) => {
                hub.forget_hint(*shard, node, leader);
                now + AGAIN
            }
            Some(Answer::Refused(_)) | None => {
                hub.forget_hint(*shard, node, None);
                now + AGAIN
            }
        };
        free_at[shard.0 as usize] = Some(at);
    }
}
