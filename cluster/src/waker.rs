//! Goes through the open grains of a shard: once after a takeover, to tell their open work again, and from time to time, to
//! find those that are stuck (R15).
//!
//! Both are paced by a bounded number at once, stand in the same queues as calls, and leave behind no activation that has
//! nothing to do (a turn of a freshly loaded grain without open work drops it again).

use crate::hub::Hub;
use crate::outbox::until_answered;
use crate::room::Room;
use crate::routing::{INNER_CALL, Origin};
use crate::service::BEAT_EVERY;
use crate::turn::Trigger;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use grain_contract::{GrainId, IndexEntry};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 256;
const WAKES_AT_ONCE: usize = 64;
const SWEEPS_AT_ONCE: usize = 8;
const WAKE_TRIES_MAX: u32 = 20;
const WAKE_AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Wake,
    Sweep,
}

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, room: Arc<Room>) {
    room.waker_pulse.beat();
    go_through(&hub, &room, Visit::Wake).await;
    let mut next_sweep = hub.clock.monotonic_ms().saturating_add(millis(hub.options.sweep_every));
    loop {
        room.waker_pulse.beat();
        let wait = Duration::from_millis(next_sweep.saturating_sub(hub.clock.monotonic_ms()));
        if wait.is_zero() {
            go_through(&hub, &room, Visit::Sweep).await;
            next_sweep = hub.clock.monotonic_ms().saturating_add(millis(hub.options.sweep_every));
            continue;
        }
        tokio::select! {
            () = hub.clock.sleep(wait) => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
            () = room.rewake.notified() => go_through(&hub, &room, Visit::Wake).await,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn go_through(hub: &Arc<Hub>, room: &Arc<Room>, visit: Visit) {
    let mut after: Option<IndexEntry> = None;
    loop {
        room.waker_pulse.beat();
        let page = match room.store.index_all(hub.options.sweep_index, after.as_ref(), PAGE) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(shard = room.id.0, %error, "the open grains cannot be listed now");
                return;
            }
        };
        let at_once = if visit == Visit::Wake { WAKES_AT_ONCE } else { SWEEPS_AT_ONCE };
        after = page.last().cloned();
        let full = page.len() >= PAGE;
        stream::iter(page)
            .for_each_concurrent(at_once, |entry| async move {
                match visit {
                    Visit::Wake => wake(hub, room, &entry.grain).await,
                    Visit::Sweep => sweep(hub, room, &entry.grain).await,
                }
                room.waker_pulse.beat();
            })
            .await;
        if !full {
            return;
        }
    }
}

async fn wake(hub: &Arc<Hub>, room: &Arc<Room>, grain: &GrainId) {
    for _ in 0..WAKE_TRIES_MAX {
        let deadline = tokio::time::Instant::now() + INNER_CALL;
        let told = tokio::spawn({
            let (hub, grain) = (hub.clone(), grain.clone());
            async move { hub.tell(&grain, Trigger::Wake, Origin::Inside, deadline).await }
        });
        match told.await {
            Ok(Err(rejection)) if rejection.code.is_retryable() => {
                room.waker_pulse.beat();
                tokio::time::sleep(WAKE_AGAIN).await;
            }
            Ok(Err(rejection)) => {
                tracing::warn!(%grain, %rejection, "a grain could not be woken after the takeover");
                return;
            }
            _ => return,
        }
    }
    tracing::warn!(%grain, "a grain was too busy to be woken; the sweep will look after it");
}

async fn sweep(hub: &Arc<Hub>, room: &Arc<Room>, grain: &GrainId) {
    if let Err(rejection) = until_answered(hub, grain, hub.options.sweep, Bytes::new()).await {
        tracing::warn!(%grain, %rejection, shard = room.id.0, "a grain refused the sweep");
    }
}
