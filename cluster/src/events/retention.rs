//! Trims events that are older than the retention, or more than may be kept.

use crate::hub::Hub;
use crate::room::Room;
use crate::service::{BEAT_EVERY, Pulse};
use grain_contract::Timestamp;
use shard::Housekeeping;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(60);

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    let every_ms = EVERY.as_millis() as u64;
    let mut next = hub.clock.monotonic_ms() + every_ms;
    loop {
        pulse.beat();
        let now = hub.clock.monotonic_ms();
        if now >= next {
            next = now + every_ms;
            for room in &hub.rooms {
                trim(&hub, room).await;
            }
        }
        tokio::select! {
            () = hub.clock.sleep(Duration::from_millis(next.saturating_sub(hub.clock.monotonic_ms()).max(1))) => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
}

/// The owner trims; the others follow its log.
async fn trim(hub: &Hub, room: &Room) {
    if room.store.leadership().borrow().epoch.is_none() {
        return;
    }
    let retention = i64::try_from(hub.options.event_retention.as_millis()).unwrap_or(i64::MAX);
    let oldest = Timestamp(hub.clock.now().0.saturating_sub(retention));
    let (head, kept) = room.store.outbox_bounds();
    let by_count = head.saturating_sub(hub.options.events_kept_max);
    let below = first_at_or_after(room, oldest, kept, head).max(by_count);
    let mut kept = kept;
    // One housekeeping trims a bounded number.
    while kept < below {
        let Some(epoch) = room.store.leadership().borrow().epoch else { return };
        let work = Housekeeping { epoch, trim_events_below: Some(below), ..Housekeeping::default() };
        if let Err(error) = room.store.housekeeping(work).await {
            tracing::warn!(shard = room.id.0, %error, "old events cannot be trimmed now");
            return;
        }
        let now_kept = room.store.outbox_bounds().1;
        if now_kept <= kept {
            return;
        }
        kept = now_kept;
    }
}

/// Times rise with the numbers but for small steps of the clock, so the place is found by halving, in a few reads.
fn first_at_or_after(room: &Room, moment: Timestamp, kept: u64, head: u64) -> u64 {
    let (mut low, mut high) = (kept, head);
    while low < high {
        let middle = low + (high - low) / 2;
        match room.store.outbox(middle, 1).ok().and_then(|page| page.into_iter().next()) {
            Some(record) if record.sequence < high && record.at < moment => low = record.sequence + 1,
            _ => high = middle,
        }
    }
    low
}
