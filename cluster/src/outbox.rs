//! Delivers committed calls from grain to grain: at least once, in order per sender.
//!
//! One service a shard. Each sender has a lane; the head of a lane is tried until it is answered, so a stuck target holds up
//! only those who sent to it. What was answered is struck from the outbox by housekeeping, gathered while the housekeeping
//! before it is on its way. A crash between answer and strike delivers again, which targets must bear (they do: every such
//! call is idempotent by the ids it carries).

use crate::hub::Hub;
use crate::metrics::count;
use crate::refusal;
use crate::room::Room;
use crate::service::BEAT_EVERY;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::FuturesUnordered;
use grain_contract::{Code, GrainId, Method, Rejection};
use granary_proto::calls::CallRejected;
use prost::Message;
use shard::{Housekeeping, OutboxItem, OutboxRecord};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Calls of one shard held in memory, waiting or being delivered.
const WINDOW_MAX: usize = 4_096;
const PAGE: usize = 256;
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

type Struck = Result<Vec<u64>, (Vec<u64>, shard::Error)>;

#[derive(Default)]
struct Lanes {
    waiting: HashMap<GrainId, VecDeque<OutboxRecord>>,
    held: usize,
    next: u64,
}

/// The outbox of one shard; ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, room: Arc<Room>) {
    let mut lanes = Lanes::default();
    let mut deliveries = FuturesUnordered::new();
    let mut done: Vec<u64> = Vec::new();
    let mut striking: OptionFuture<BoxFuture<'static, Struck>> = None.into();
    let mut striking_now = false;
    let mut more = true;
    loop {
        room.outbox_pulse.beat();
        if more && lanes.held < WINDOW_MAX {
            match room.store.open_calls(lanes.next, PAGE) {
                Ok(page) => {
                    more = page.len() >= PAGE;
                    for record in page {
                        lanes.next = record.sequence + 1;
                        lanes.held += 1;
                        if let Some(head) = enter_lane(&mut lanes, record) {
                            deliveries.push(deliver(hub.clone(), head));
                        }
                    }
                }
                Err(error) => tracing::warn!(shard = room.id.0, %error, "outbox rows cannot be read now"),
            }
        }
        room.calls_open.store((lanes.held + done.len()) as u64, Relaxed);
        if !done.is_empty() && !striking_now {
            striking_now = true;
            striking = Some(strike(room.clone(), std::mem::take(&mut done))).into();
        }
        tokio::select! {
            Some((sender, sequence)) = deliveries.next(), if !deliveries.is_empty() => {
                count(&hub.metrics.outbox_calls_delivered);
                done.push(sequence);
                lanes.held -= 1;
                if let Some(head) = leave_lane(&mut lanes, &sender) {
                    deliveries.push(deliver(hub.clone(), head));
                }
            }
            Some(struck) = &mut striking, if striking_now => {
                striking_now = false;
                striking = None.into();
                if let Err((again, error)) = struck {
                    tracing::warn!(shard = room.id.0, %error, "answered calls cannot be struck now");
                    done.extend(again);
                    // The store is in trouble; the next try comes with the next beat, not at once.
                    tokio::time::sleep(BACKOFF_MIN).await;
                }
            }
            () = room.calls_waiting.notified() => more = true,
            () = tokio::time::sleep(BEAT_EVERY) => more = true,
            () = tokio::task::yield_now(), if more && lanes.held < WINDOW_MAX => {}
        }
    }
}

/// Puts a record into its sender's lane; gives it back if it is the head there.
fn enter_lane(lanes: &mut Lanes, record: OutboxRecord) -> Option<OutboxRecord> {
    match lanes.waiting.get_mut(&record.grain) {
        Some(lane) => {
            lane.push_back(record);
            None
        }
        None => {
            lanes.waiting.insert(record.grain.clone(), VecDeque::new());
            Some(record)
        }
    }
}

/// The head was answered; gives the next one.
fn leave_lane(lanes: &mut Lanes, sender: &GrainId) -> Option<OutboxRecord> {
    let next = lanes.waiting.get_mut(sender)?.pop_front();
    if next.is_none() {
        lanes.waiting.remove(sender);
    }
    next
}

fn strike(room: Arc<Room>, calls_done: Vec<u64>) -> BoxFuture<'static, Struck> {
    Box::pin(async move {
        let epoch = room.store.leadership().borrow().epoch.unwrap_or_default();
        let work = Housekeeping { epoch, calls_done: calls_done.clone(), ..Housekeeping::default() };
        match room.store.housekeeping(work).await {
            Ok(()) => Ok(calls_done),
            Err(error) => Err((calls_done, error)),
        }
    })
}

/// Delivers one call until it is answered; a refusal for good goes back to the sender.
async fn deliver(hub: Arc<Hub>, record: OutboxRecord) -> (GrainId, u64) {
    let OutboxItem::Call { target, method, body, on_rejected } = record.item else {
        return (record.grain, record.sequence);
    };
    let body = Bytes::from(body);
    let Err(rejection) = until_answered(&hub, &target, method, body.clone()).await else {
        return (record.grain, record.sequence);
    };
    if hub.stop.is_cancelled() {
        // That the silo stops is not the target's word and must not reach the sender as one: the call is still open in the
        // rows. The service that polls this is ended.
        return std::future::pending().await;
    }
    match on_rejected {
        Some(back) => {
            let told = CallRejected {
                code: rejection.code.as_str().to_owned(),
                message: rejection.message,
                target: target.to_string(),
                method: u32::from(method.0),
                body: body.to_vec(),
            };
            if let Err(rejection) = until_answered(&hub, &record.grain, back, told.encode_to_vec().into()).await {
                tracing::error!(sender = %record.grain, %target, %rejection, "nobody takes the refusal of an outbox call");
            }
        }
        None => tracing::warn!(sender = %record.grain, %target, %rejection, "an outbox call was refused for good"),
    }
    (record.grain, record.sequence)
}

/// Repeats the call with rising pauses until the grain says yes or no; faults of ours are repeated too.
pub(crate) async fn until_answered(
    hub: &Arc<Hub>,
    target: &GrainId,
    method: Method,
    body: Bytes,
) -> Result<Vec<u8>, Rejection> {
    let mut backoff = BACKOFF_MIN;
    loop {
        // Its own task, so that the turn's work is not polled by the one service of the shard.
        let call = tokio::spawn({
            let (hub, target, body) = (hub.clone(), target.clone(), body.clone());
            async move { hub.call_inside(&target, method, body).await }
        });
        let answer = call.await.unwrap_or_else(|_| Err(refusal::unavailable("the call broke off")));
        match answer {
            Err(rejection) if rejection.code.is_retryable() || rejection.code == Code::Internal => {
                count(&hub.metrics.outbox_retries);
                tracing::debug!(%target, %rejection, "a call between grains is repeated");
            }
            answer => return answer,
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = hub.stop.cancelled() => return Err(refusal::unavailable("this silo is shutting down")),
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}
