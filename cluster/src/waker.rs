//! Goes through the open grains of a shard: once after a takeover, to tell their open work again, and from time to time, to
//! find those that are stuck (R15).
//!
//! Both are paced by a bounded number at once, stand in the same queues as calls, and leave behind no activation that has
//! nothing to do (a turn of a freshly loaded grain without open work drops it again). A grain that says in the index that it
//! has nothing to tell is not even loaded by a takeover: a hundred thousand runs that wait for a date cost it their index
//! rows. The sweep visits everybody, slowly.
//!
//! A store that cannot be read for a while delays the wakes and loses none: the list is asked for until it comes, and a grain
//! that could not be woken is tried again until it is (FR-038).

use crate::hub::Hub;
use crate::owed;
use crate::room::Room;
use crate::routing::{INNER_CALL, Origin};
use crate::service::BEAT_EVERY;
use crate::turn::Trigger;
use futures::StreamExt;
use futures::stream;
use grain_contract::{GrainId, IndexEntry, NOTHING_TO_TELL};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 256;
const WAKES_AT_ONCE: usize = 64;
const SWEEPS_AT_ONCE: usize = 8;
/// So many are swept, then there is a pause: a sweep of all open grains must not be felt by those that work.
const SWEEPS_A_PAUSE: usize = 32;
const SWEEP_PAUSE: Duration = Duration::from_millis(50);
/// Tries at a grain before the others get its place; it is tried again after them.
const WAKE_TRIES_MAX: u32 = 20;
const WAKE_AGAIN: Duration = Duration::from_millis(100);
/// Grains remembered to be tried again, a shard; the sweep looks after those beyond it.
pub(crate) const MISSED_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Wake,
    Sweep,
}

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, room: Arc<Room>) {
    room.waker_pulse.beat();
    let mut missed = go_through(&hub, &room, Visit::Wake).await;
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
            () = tokio::time::sleep(BEAT_EVERY) => {
                missed.extend(owed::settled(&room).await);
                missed = wake_again(&hub, &room, missed).await;
            }
            () = room.rewake.notified() => missed = go_through(&hub, &room, Visit::Wake).await,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Gives back those that could not be woken.
async fn go_through(hub: &Arc<Hub>, room: &Arc<Room>, visit: Visit) -> Vec<GrainId> {
    let missed = Mutex::new(Vec::new());
    let mut after: Option<IndexEntry> = None;
    loop {
        room.waker_pulse.beat();
        let page = match room.store.index_all(hub.options.sweep_index, after.as_ref(), PAGE) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(shard = room.id.0, %error, "the open grains cannot be listed now");
                if visit == Visit::Sweep {
                    break;
                }
                tokio::time::sleep(WAKE_AGAIN).await;
                continue;
            }
        };
        let at_once = if visit == Visit::Wake { WAKES_AT_ONCE } else { SWEEPS_AT_ONCE };
        after = page.last().cloned();
        let full = page.len() >= PAGE;
        let missed = &missed;
        let wanted = |entry: &IndexEntry| visit == Visit::Sweep || entry.value != NOTHING_TO_TELL;
        let entries: Vec<IndexEntry> = page.into_iter().filter(wanted).collect();
        let at_a_time = if visit == Visit::Wake { PAGE } else { SWEEPS_A_PAUSE };
        for some in entries.chunks(at_a_time) {
            stream::iter(some)
                .for_each_concurrent(at_once, |entry| async move {
                    match visit {
                        Visit::Wake => {
                            if !wake(hub, room, &entry.grain, WAKE_TRIES_MAX).await {
                                remember(missed, entry.grain.clone());
                            }
                        }
                        Visit::Sweep => sweep(hub, room, &entry.grain).await,
                    }
                    room.waker_pulse.beat();
                })
                .await;
            if visit == Visit::Sweep && some.len() == SWEEPS_A_PAUSE {
                tokio::time::sleep(SWEEP_PAUSE).await;
            }
        }
        if !full {
            break;
        }
        tokio::task::yield_now().await;
    }
    missed.into_inner()
}

/// One try at each of those that were missed; gives back those that are missed again.
async fn wake_again(hub: &Arc<Hub>, room: &Arc<Room>, grains: Vec<GrainId>) -> Vec<GrainId> {
    let missed = Mutex::new(Vec::new());
    let missed_again = &missed;
    stream::iter(grains)
        .for_each_concurrent(WAKES_AT_ONCE, |grain| async move {
            if !wake(hub, room, &grain, 1).await {
                remember(missed_again, grain);
            }
            room.waker_pulse.beat();
        })
        .await;
    missed.into_inner()
}

fn remember(missed: &Mutex<Vec<GrainId>>, grain: GrainId) {
    let mut missed = missed.lock();
    if missed.len() < MISSED_MAX {
        missed.push(grain);
    } else {
        tracing::warn!(%grain, "too many grains could not be woken; the sweep will look after this one");
    }
}

/// False if it is to be tried again.
async fn wake(hub: &Arc<Hub>, room: &Arc<Room>, grain: &GrainId, tries: u32) -> bool {
    for _ in 0..tries {
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
                return true;
            }
            _ => return true,
        }
    }
    tracing::debug!(%grain, "a grain could not be woken yet; again later");
    false
}

/// One try: who cannot be visited now is visited by the next sweep.
async fn sweep(hub: &Arc<Hub>, room: &Arc<Room>, grain: &GrainId) {
    let deadline = tokio::time::Instant::now() + INNER_CALL;
    let told = tokio::spawn({
        let (hub, grain) = (hub.clone(), grain.clone());
        let trigger = Trigger::Visit { method: hub.options.sweep };
        async move { hub.tell(&grain, trigger, Origin::Inside, deadline).await }
    });
    if let Ok(Err(rejection)) = told.await
        && !rejection.code.is_retryable()
    {
        tracing::warn!(%grain, %rejection, shard = room.id.0, "a grain refused the sweep");
    }
}
