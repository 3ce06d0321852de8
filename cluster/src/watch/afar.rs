//! Watching grains that are owned elsewhere.
//!
//! A silo tells the owners which of their grains are watched here, anew every few seconds and at once when it hears of another
//! owner. The owner tells it of each change, many in one call, and forgets who is silent. Whenever a change may have been
//! missed (an owner that did not know of the watch, one that was lost), the watchers here look again.

use crate::hop::way::Way;
use crate::hop::wire;
use crate::hub::Hub;
use crate::peers::Refused;
use crate::service::{BEAT_EVERY, Pulse};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use grain_contract::GrainId;
use granary_proto::peers::{GrainsChanged, WatchAnswer, WatchAnswers, WatchRequest};
use prost::Message;
use shard::NodeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

pub(crate) const WATCH: &str = "grain.watch";
pub(crate) const CHANGED: &str = "grain.changed";

/// How often the owners are told again, and after how long without it they forget.
const RENEW: Duration = Duration::from_secs(5);
const FORGET_MS: u32 = 20_000;
/// An owner that said no, or nothing, is looked for again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// Grains named in one call.
const GRAINS_AT_ONCE: usize = 2_000;
const CALL: Duration = Duration::from_secs(3);

/// Tells the owners what is watched here. Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    if hub.around.is_alone() {
        return idle(&pulse).await;
    }
    let mut leaders: Vec<_> = hub.rooms.iter().map(|room| room.store.leadership()).collect();
    // Who was told last, and when it is told again.
    let mut told: HashMap<GrainId, (NodeId, Instant)> = HashMap::new();
    loop {
        pulse.beat();
        let now = Instant::now();
        let watched = hub.watches.watched();
        let mut calls: BTreeMap<NodeId, Vec<GrainId>> = BTreeMap::new();
        let mut next = BTreeMap::new();
        for grain in watched {
            let Some(node) = hub.next_node(hub.room(&grain).id, &Way::default()) else { continue };
            if told.get(&grain).is_none_or(|(before, again)| *before != node || *again <= now) {
                calls.entry(node).or_default().push(grain.clone());
            }
            next.insert(grain, node);
        }
        told.retain(|grain, _| next.contains_key(grain));
        let batches = calls.into_iter().flat_map(|(node, grains)| {
            grains.chunks(GRAINS_AT_ONCE).map(|chunk| (node, chunk.to_vec())).collect::<Vec<_>>()
        });
        for (node, grains, answers) in join_all(batches.map(|(node, grains)| say(&hub, node, grains))).await {
            let now = Instant::now();
            for (grain, answer) in grains.into_iter().zip(answers) {
                if !answer.known && !answer.moved {
                    hub.watches.changed(&grain);
                }
                let shard = hub.room(&grain).id;
                let again = if answer.moved { AGAIN } else { RENEW };
                if answer.moved {
                    hub.forget_hint(shard, node, None);
                }
                told.insert(grain, (node, now + again));
            }
        }
        let until = told.values().map(|(_, again)| *again).min();
        let until = until.unwrap_or(now + RENEW).min(now + BEAT_EVERY);
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = hub.watches.begun.notified() => {}
            () = any_changed(&mut leaders) => {}
        }
    }
}

async fn idle(pulse: &Pulse) {
    loop {
        pulse.beat();
        tokio::time::sleep(BEAT_EVERY).await;
    }
}

async fn any_changed<T>(receivers: &mut [Receiver<T>]) {
    let changed = receivers.iter_mut().map(|receiver| Box::pin(receiver.changed()));
    if futures::future::select_all(changed).await.0.is_err() {
        std::future::pending::<()>().await;
    }
}

/// One answer a grain; whoever does not answer is not the owner.
async fn say(hub: &Hub, node: NodeId, grains: Vec<GrainId>) -> (NodeId, Vec<GrainId>, Vec<WatchAnswer>) {
    let request = WatchRequest { grains: grains.iter().map(GrainId::storage_bytes).collect(), within_ms: FORGET_MS };
    let answer = hub.post(node, WATCH, request.encode_to_vec().into(), Instant::now() + CALL).await;
    let answers = answer.ok().and_then(|body| WatchAnswers::decode(body).ok()).map(|answers| answers.answers);
    let lost = || grains.iter().map(|_| WatchAnswer { known: false, moved: true }).collect();
    let answers = answers.filter(|answers| answers.len() == grains.len()).unwrap_or_else(lost);
    (node, grains, answers)
}

/// Tells the silos beside this one what changed here. Ends only by being stopped.
pub(crate) async fn tell(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    let mut telling = FuturesUnordered::new();
    let mut expired = Instant::now();
    loop {
        pulse.beat();
        if expired.elapsed() >= BEAT_EVERY {
            expired = Instant::now();
            hub.interests.expire(hub.clock.monotonic_ms());
        }
        for (node, grains) in hub.interests.take() {
            let hub = hub.clone();
            telling.push(async move {
                let changed = GrainsChanged { grains: grains.iter().map(GrainId::storage_bytes).collect() };
                let body: Bytes = changed.encode_to_vec().into();
                (node, hub.post(node, CHANGED, body, Instant::now() + CALL).await.is_ok())
            });
        }
        tokio::select! {
            Some((node, arrived)) = telling.next(), if !telling.is_empty() => {
                if arrived { hub.interests.told(node) } else { hub.interests.lost(node) }
            }
            () = hub.interests.news.notified() => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
}

impl Hub {
    pub(crate) fn serve_watch(&self, from: NodeId, body: &[u8]) -> Result<WatchAnswers, Refused> {
        let request: WatchRequest = wire::read(body)?;
        let within_ms = u64::from(request.within_ms.min(FORGET_MS * 10));
        let now_ms = self.clock.monotonic_ms();
        let answer = |bytes: Vec<u8>| {
            let grain = wire::grain(&bytes)?;
            if self.room(&grain).store.leadership().borrow().epoch.is_none() {
                return Some(WatchAnswer { known: false, moved: true });
            }
            // Without room for it the silo looks by itself each time it asks.
            let known = self.interests.watch(now_ms, within_ms, from, &grain).unwrap_or(false);
            Some(WatchAnswer { known, moved: false })
        };
        let answers: Option<Vec<WatchAnswer>> = request.grains.into_iter().map(answer).collect();
        let answers = answers.ok_or_else(|| Refused::BadRequest("a watch of no grain".to_owned()))?;
        Ok(WatchAnswers { answers })
    }

    pub(crate) fn serve_changed(&self, body: &[u8]) -> Result<GrainsChanged, Refused> {
        for bytes in wire::read::<GrainsChanged>(body)?.grains {
            if let Some(grain) = wire::grain(&bytes) {
                self.watches.changed(&grain);
            }
        }
        Ok(GrainsChanged::default())
    }
}
