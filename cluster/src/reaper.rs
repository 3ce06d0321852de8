//! Drops activations that nobody uses: after an idle time, and earlier, the least recently used first, while all together
//! hold more than their budget.

use crate::activation::Activation;
use crate::hub::Hub;
use crate::room::Room;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two rounds for want of memory, so that a set that is all in use costs no spinning.
const PRESSED_EVERY: Duration = Duration::from_millis(100);

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>) {
    let idle_ms = u64::try_from(hub.options.idle.as_millis()).unwrap_or(u64::MAX);
    let every = (hub.options.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(10));
    loop {
        tokio::select! {
            () = hub.clock.sleep(every) => {}
            () = hub.over_budget.notified() => {}
        }
        let now = hub.clock.monotonic_ms();
        drop_idle(&hub, now.saturating_sub(idle_ms));
        if is_over_budget(&hub) {
            drop_least_used(&hub);
            tokio::time::sleep(PRESSED_EVERY).await;
        }
    }
}

pub(crate) fn is_over_budget(hub: &Hub) -> bool {
    hub.metrics.activation_bytes.load(Relaxed) > hub.options.activation_memory as u64
}

fn drop_idle(hub: &Hub, unused_since_ms: u64) {
    for room in &hub.rooms {
        for activation in room.catalog.idle() {
            if activation.last_used_ms() < unused_since_ms {
                room.catalog.deactivate_if_idle(&activation);
            }
        }
    }
}

/// Down to four fifths of the budget, so that the next activation does not start the next round.
fn drop_least_used(hub: &Hub) {
    let target = hub.options.activation_memory as u64 / 5 * 4;
    let mut idle: Vec<(&Arc<Room>, Arc<Activation>)> =
        hub.rooms.iter().flat_map(|room| room.catalog.idle().into_iter().map(move |a| (room, a))).collect();
    idle.sort_by_key(|(_, activation)| activation.last_used_ms());
    let mut held = hub.metrics.activation_bytes.load(Relaxed);
    for (room, activation) in idle {
        if held <= target {
            return;
        }
        if room.catalog.deactivate_if_idle(&activation) {
            held = held.saturating_sub(activation.bytes());
        }
    }
}
