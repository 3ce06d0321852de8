//! Figures of one silo by shard, for people who look at the cluster. Counting reads the index, so it is done when asked.

use crate::room::Room;
use crate::silo::Silo;
use shard::ShardId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Open grains are counted up to this many a shard; more are shown as this many.
const COUNTED_MAX: u64 = 10_000;
const COUNTED_AT_ONCE: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) active_grains: u64,
    pub(crate) workers: u64,
    /// The shards that this silo owns.
    pub(crate) owned: BTreeMap<ShardId, ShardFigures>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardFigures {
    pub(crate) overdue_reminders: u64,
    pub(crate) outbox_calls_open: u64,
    pub(crate) open_grains: u64,
}

impl Silo {
    pub(crate) async fn figures(&self) -> Figures {
        let totals = self.metrics();
        let hub = self.hub().clone();
        // Many reads of the store in a row: not on a thread that others wait for.
        let counting = tokio::task::spawn_blocking(move || {
            let owned = hub.rooms.iter().filter(|room| room.store.leadership().borrow().epoch.is_some());
            owned.map(|room| (room.id, of_shard(room, hub.options.sweep_index))).collect()
        });
        Figures {
            active_grains: totals.activations,
            workers: totals.workers,
            owned: counting.await.unwrap_or_default(),
        }
    }
}

fn of_shard(room: &Arc<Room>, index: &str) -> ShardFigures {
    let (mut open_grains, mut after) = (0, None);
    while open_grains < COUNTED_MAX {
        let page = room.store.index_all(index, after.as_ref(), COUNTED_AT_ONCE).unwrap_or_default();
        open_grains += page.len() as u64;
        if page.len() < COUNTED_AT_ONCE {
            break;
        }
        after = page.into_iter().next_back();
    }
    ShardFigures {
        overdue_reminders: room.reminders.overdue.load(Relaxed),
        outbox_calls_open: room.calls_open.load(Relaxed),
        open_grains: open_grains.min(COUNTED_MAX),
    }
}
