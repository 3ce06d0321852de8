//! Durable wake-ups: rows in, turns out.
//!
//! One service a shard. It keeps the [`wheel`] filled from rows and from commits, and lets what is due be fired as ordinary
//! messages to the grains, a bounded number at once. So a flood of due reminders stands in the same queues as calls do, and
//! calls go on between them. The grain's own commit removes the row; until then the wheel tries again.

pub(crate) mod wheel;

use crate::hub::Hub;
use crate::metrics::count;
use crate::room::Room;
use crate::routing::{INNER_CALL, Origin};
use crate::sabotage::Sabotage;
use crate::service::BEAT_EVERY;
use crate::turn::Trigger;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use grain_contract::{ReminderChange, Timestamp, Turn};
use parking_lot::Mutex;
use shard::Commit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wheel::{Change, Firing, Wheel};

/// Reminders of one shard on their way to grains at once.
const FIRING_MAX: usize = 64;
/// How far ahead rows are read.
const WINDOW_MS: u64 = 60_000;
/// Rows of one scan.
const SCAN_PAGE: usize = 1_000;
/// Reminders held in memory by scans, a shard; the rest of a flood waits on disk.
const ARMED_MAX: usize = 10_000;
/// Changes that may wait for the wheel; beyond it the wheel starts again from rows.
const CHANGES_MAX: usize = 50_000;
/// Overdue ones are counted up to this.
const OVERDUE_COUNTED_MAX: usize = 10_000;
/// Counting the overdue is not free; this is often enough for a graph.
const GAUGES_EVERY: Duration = Duration::from_millis(250);
const RETRY_MS_MIN: u64 = 100;
const RETRY_MS_MAX: u64 = 30_000;

/// Where commits leave what they did to reminders, and where the figures stand.
#[derive(Default)]
pub(crate) struct Reminders {
    inbox: Mutex<Inbox>,
    news: Notify,
    pub(crate) armed: AtomicU64,
    pub(crate) overdue: AtomicU64,
    pub(crate) oldest_overdue_ms: AtomicU64,
}

#[derive(Default)]
struct Inbox {
    open: bool,
    /// Changes were thrown away: read the rows again from the start.
    lost: bool,
    changes: Vec<Change>,
}

impl Reminders {
    pub(crate) fn open(&self) {
        *self.inbox.lock() = Inbox { open: true, ..Inbox::default() };
    }

    pub(crate) fn close(&self) {
        *self.inbox.lock() = Inbox::default();
        for gauge in [&self.armed, &self.overdue, &self.oldest_overdue_ms] {
            gauge.store(0, Relaxed);
        }
    }

    /// Called after the commit was applied: a scan either sees the rows or comes after this.
    pub(crate) fn committed(&self, changes: impl ExactSizeIterator<Item = Change>) {
        if changes.len() == 0 {
            return;
        }
        let mut inbox = self.inbox.lock();
        if !inbox.open {
            return;
        }
        inbox.changes.extend(changes);
        if inbox.changes.len() > CHANGES_MAX {
            inbox.changes = Vec::new();
            inbox.lost = true;
        }
        drop(inbox);
        self.news.notify_one();
    }

    fn take(&self) -> (Vec<Change>, bool) {
        let mut inbox = self.inbox.lock();
        (std::mem::take(&mut inbox.changes), std::mem::take(&mut inbox.lost))
    }
}

/// The wheel of one shard; ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, room: Arc<Room>) {
    let mut wheel = Wheel::default();
    let mut firing = FuturesUnordered::new();
    let mut gauges_told = None;
    loop {
        room.wheel_pulse.beat();
        let (changes, lost) = room.reminders.take();
        if lost {
            wheel = Wheel::default();
        }
        changes.into_iter().for_each(|change| wheel.apply(change));
        let now = hub.clock.now();
        let scan_again = scan(&hub, &room, &mut wheel, now);
        while firing.len() < FIRING_MAX
            && let Some(due) = wheel.pop_due(now)
        {
            firing.push(fire(hub.clone(), room.clone(), due));
        }
        if gauges_told.is_none_or(|told: Instant| told.elapsed() >= GAUGES_EVERY) {
            gauges_told = Some(Instant::now());
            tell_gauges(&room, &wheel, now, firing.len());
        }
        let wait = match wheel.next_at() {
            // What is due already waits for a place, not for time.
            Some(at) if at > now => Duration::from_millis(at.since(now)).min(BEAT_EVERY),
            _ => BEAT_EVERY,
        };
        tokio::select! {
            Some((due, taken)) = firing.next(), if !firing.is_empty() => settle(&hub, &mut wheel, due, taken),
            () = room.reminders.news.notified() => {}
            // The manual clock of a test wakes the wheel by the first arm, a stopped one by the second.
            () = hub.clock.sleep(wait), if !scan_again => {}
            () = tokio::time::sleep(BEAT_EVERY), if !scan_again => {}
            () = tokio::task::yield_now(), if scan_again => {}
        }
    }
}

/// Fills the wheel by one page if it wants one; says whether it wants another.
fn scan(hub: &Hub, room: &Room, wheel: &mut Wheel, now: Timestamp) -> bool {
    // Half a window ahead at least, so that scans follow time at a pace of two a window.
    if !wheel.wants_scan(now.plus_ms(WINDOW_MS / 2), ARMED_MAX) {
        return false;
    }
    let until = now.plus_ms(WINDOW_MS);
    count(&hub.metrics.reminder_scans);
    match room.store.reminders(until, wheel.scan_after().as_ref(), SCAN_PAGE) {
        Ok(records) => {
            let full = records.len() >= SCAN_PAGE;
            wheel.scanned(records, until, SCAN_PAGE);
            full
        }
        Err(error) => {
            tracing::warn!(shard = room.id.0, %error, "reminder rows cannot be read now");
            false
        }
    }
}

async fn fire(hub: Arc<Hub>, room: Arc<Room>, due: Firing) -> (Firing, bool) {
    if hub.options.sabotage == Some(Sabotage::ReminderClearedFirst) {
        clear_first(&hub, &room, &due).await;
    }
    count(&hub.metrics.reminders_fired);
    let trigger = Trigger::Reminder { name: due.key.name.clone(), due: due.due };
    let deadline = tokio::time::Instant::now() + INNER_CALL;
    // Its own task: a turn runs beside the wheel, not inside it.
    let told = tokio::spawn({
        let grain = due.key.grain.clone();
        async move { hub.tell(&grain, trigger, Origin::Inside, deadline).await }
    });
    let taken = match told.await {
        Ok(Ok(_)) => true,
        Ok(Err(rejection)) => {
            tracing::debug!(grain = %due.key.grain, name = due.key.name, %rejection, "a reminder was not taken; again later");
            false
        }
        Err(_) => false,
    };
    (due, taken)
}

/// The bug of this name.
async fn clear_first(hub: &Hub, room: &Room, due: &Firing) {
    let epoch = room.store.leadership().borrow().epoch.unwrap_or_default();
    let Ok(rows) = room.store.grain(&due.key.grain) else { return };
    let turn = Turn { reminders: vec![ReminderChange::Clear { name: due.key.name.clone() }], ..Turn::default() };
    let (grain, expected, at) = (due.key.grain.clone(), rows.revision, hub.clock.now());
    room.store.commit(Commit { grain, epoch, expected, turn, command: None, at }).await.ok();
    tokio::time::sleep(Duration::from_millis(RETRY_MS_MIN)).await;
}

fn settle(hub: &Hub, wheel: &mut Wheel, due: Firing, taken: bool) {
    if taken {
        wheel.fired(&due);
    } else {
        let backoff = RETRY_MS_MIN.saturating_mul(1 << due.tries.min(10)).min(RETRY_MS_MAX);
        wheel.failed(due, hub.clock.now().plus_ms(backoff));
    }
}

fn tell_gauges(room: &Room, wheel: &Wheel, now: Timestamp, firing: usize) {
    let (overdue, oldest) = wheel.overdue(now, OVERDUE_COUNTED_MAX);
    room.reminders.armed.store(wheel.armed() as u64, Relaxed);
    room.reminders.overdue.store((overdue + firing) as u64, Relaxed);
    room.reminders.oldest_overdue_ms.store(oldest.map_or(0, |at| now.since(at)), Relaxed);
}
