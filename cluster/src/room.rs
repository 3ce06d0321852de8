//! One shard as this silo hosts it: its activations and its services, for as long as the shard is led here.

use crate::catalog::Catalog;
use crate::hub::Hub;
use crate::owed::Owed;
use crate::reminders::Reminders;
use crate::service::{Pulse, keep_running};
use crate::store::Store;
use crate::{outbox, reminders, waker};
use grain_contract::Epoch;
use parking_lot::Mutex;
use shard::ShardId;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) struct Room {
    pub(crate) id: ShardId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Catalog,
    pub(crate) reminders: Reminders,
    /// Told when a commit left calls in the outbox.
    pub(crate) calls_waiting: Notify,
    pub(crate) calls_open: AtomicU64,
    /// Told when queued work was dropped for want of room and there is room again.
    pub(crate) rewake: Notify,
    /// Grains to wake once it is known what became of their last commit.
    pub(crate) owed: Owed,
    /// The leadership here, and the outbox row that came first in it.
    pub(crate) led_from: Mutex<Option<(Epoch, u64)>>,
    pub(crate) wheel_pulse: Arc<Pulse>,
    pub(crate) outbox_pulse: Arc<Pulse>,
    pub(crate) waker_pulse: Arc<Pulse>,
}

impl Room {
    pub(crate) fn new(id: ShardId, store: Arc<dyn Store>) -> Self {
        Self {
            id,
            store,
            catalog: Catalog::default(),
            reminders: Reminders::default(),
            calls_waiting: Notify::new(),
            calls_open: AtomicU64::new(0),
            rewake: Notify::new(),
            owed: Owed::default(),
            led_from: Mutex::new(None),
            wheel_pulse: Arc::new(Pulse::new("the reminder wheel")),
            outbox_pulse: Arc::new(Pulse::new("the outbox")),
            waker_pulse: Arc::new(Pulse::new("the sweep")),
        }
    }

    /// What is wrong with its services.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = String> + '_ {
        [&self.wheel_pulse, &self.outbox_pulse, &self.waker_pulse]
            .into_iter()
            .filter_map(|pulse| pulse.complaint())
            .map(|why| format!("shard {}: {why}", self.id.0))
    }
}

/// Follows the shard's leadership until the silo stops: opens the room when it is led here, empties it when it is not.
pub(crate) async fn host(hub: Arc<Hub>, room: Arc<Room>) {
    let mut leadership = room.store.leadership();
    while !hub.stop.is_cancelled() {
        let epoch = leadership.borrow_and_update().epoch;
        let Some(epoch) = epoch else {
            tokio::select! {
                () = hub.stop.cancelled() => break,
                changed = leadership.changed() => if changed.is_err() { break },
            }
            continue;
        };
        let lost = hub.stop.child_token();
        // The wheel listens before the first turn can commit, so no setting is missed.
        room.reminders.open();
        hub.dispatch.opened(room.id, epoch);
        // Before the first turn too: everything committed until now was committed under another leadership.
        *room.led_from.lock() = Some((epoch, room.store.outbox_bounds().0));
        room.catalog.open(epoch);
        let mut services = start(&hub, &room, &lost);
        let mut over = false;
        while !over {
            tokio::select! {
                () = hub.stop.cancelled() => over = true,
                changed = leadership.changed() => {
                    over = changed.is_err() || leadership.borrow_and_update().epoch != Some(epoch);
                }
            }
        }
        // Activations first: they must be gone before anything else answers for this shard.
        room.catalog.close();
        hub.dispatch.closed(room.id);
        room.reminders.close();
        lost.cancel();
        while services.join_next().await.is_some() {}
        hub.watches.all_changed();
    }
}

fn start(hub: &Arc<Hub>, room: &Arc<Room>, lost: &CancellationToken) -> JoinSet<()> {
    let mut services = JoinSet::new();
    run(&mut services, &room.wheel_pulse, hub, room, lost, reminders::run);
    run(&mut services, &room.outbox_pulse, hub, room, lost, outbox::run);
    run(&mut services, &room.waker_pulse, hub, room, lost, waker::run);
    services
}

fn run<Fut>(
    services: &mut JoinSet<()>,
    pulse: &Arc<Pulse>,
    hub: &Arc<Hub>,
    room: &Arc<Room>,
    lost: &CancellationToken,
    service: fn(Arc<Hub>, Arc<Room>) -> Fut,
) where
    Fut: Future<Output = ()> + Send + 'static,
{
    let (hub, room, metrics) = (hub.clone(), room.clone(), hub.metrics.clone());
    services.spawn(keep_running(pulse.clone(), metrics, lost.clone(), move || service(hub.clone(), room.clone())));
}
