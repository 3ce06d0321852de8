//! Tells watchers that a grain changed.
//!
//! The owner tells: its own watchers at once, and the silos beside it that said they have some (see `afar`).

mod afar;
mod interests;

pub(crate) use afar::{CHANGED, WATCH, run, tell};
pub(crate) use interests::Interests;

use grain_contract::GrainId;
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::{Notify, watch};

/// One watcher of one grain. A change that happens between two looks is never missed; several may be told as one.
pub struct Watch {
    changes: watch::Receiver<u64>,
}

impl Watch {
    /// Ends once the grain changed since the last time this was asked (or since the watch began). Never ends after the silo
    /// is gone.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Change counters of the grains that somebody watches, and of no others.
#[derive(Default)]
pub(crate) struct Watches {
    counters: Mutex<Counters>,
    /// Told when a grain is watched that was not before.
    pub(super) begun: Notify,
}

#[derive(Default)]
struct Counters {
    by_grain: HashMap<GrainId, watch::Sender<u64>>,
    /// Abandoned counters are swept when the map has grown to this.
    sweep_at: usize,
}

const SWEEP_MIN: usize = 64;

impl Watches {
    pub(crate) fn watch(&self, grain: &GrainId) -> Watch {
        let mut counters = self.counters.lock();
        if counters.by_grain.len() >= counters.sweep_at.max(SWEEP_MIN) {
            counters.by_grain.retain(|_, counter| counter.receiver_count() > 0);
            counters.sweep_at = counters.by_grain.len() * 2;
        }
        let counter = counters.by_grain.entry(grain.clone()).or_insert_with(|| {
            self.begun.notify_one();
            watch::Sender::new(0)
        });
        Watch { changes: counter.subscribe() }
    }

    /// The grains that somebody watches now.
    pub(super) fn watched(&self) -> Vec<GrainId> {
        let counters = self.counters.lock();
        let watched = counters.by_grain.iter().filter(|(_, counter)| counter.receiver_count() > 0);
        watched.map(|(grain, _)| grain.clone()).collect()
    }

    pub(crate) fn changed(&self, grain: &GrainId) {
        let mut counters = self.counters.lock();
        let Some(counter) = counters.by_grain.get(grain) else { return };
        if counter.receiver_count() == 0 {
            counters.by_grain.remove(grain);
        } else {
            counter.send_modify(|n| *n += 1);
        }
    }

    /// Every watcher looks again: an owner was lost, and with it the changes that it did not tell.
    pub(crate) fn all_changed(&self) {
        for counter in self.counters.lock().by_grain.values() {
            counter.send_modify(|n| *n += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_change_between_two_looks_is_told_once() {
        let watches = Watches::default();
        let id = GrainId::new(&"acme".into(), &"run".into(), "1");
        let mut watch = watches.watch(&id);
        assert!(watch.changed().now_or_never().is_none());
        watches.changed(&id);
        watches.changed(&id);
        assert!(watch.changed().now_or_never().is_some());
        assert!(watch.changed().now_or_never().is_none());
    }

    #[test]
    fn abandoned_watches_leave_nothing_behind() {
        let watches = Watches::default();
        for n in 0..1_000 {
            drop(watches.watch(&GrainId::new(&"acme".into(), &"run".into(), &n.to_string())));
        }
        assert!(watches.counters.lock().by_grain.len() <= SWEEP_MIN);
    }
}
