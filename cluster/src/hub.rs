//! What the parts of one silo share.

use crate::clocks::Clocks;
use crate::dispatch::Dispatch;
use crate::events::{Readers, Tails};
use crate::hop::way::Hints;
use crate::hop::{Around, Parcels};
use crate::metrics::Metrics;
use crate::room::Room;
use crate::watch::{Interests, Watches};
use crate::{Clock, SiloOptions, Supplier};
use grain_contract::{GrainId, GrainKind, GrainType};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) struct Hub {
    pub(crate) around: Around,
    pub(crate) hints: Hints,
    pub(crate) parcels: Parcels,
    /// Questions of peers being answered.
    pub(crate) serving: AtomicUsize,
    /// What other silos watch here.
    pub(crate) interests: Interests,
    pub(crate) tails: Tails,
    pub(crate) options: SiloOptions,
    pub(crate) types: HashMap<GrainKind, Arc<dyn GrainType>>,
    pub(crate) supplier: Arc<dyn Supplier>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watches: Watches,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) rooms: Vec<Arc<Room>>,
    pub(crate) readers: Readers,
    /// Calls from outside in progress.
    pub(crate) calls: AtomicUsize,
    /// Told when a call from outside ends while the silo drains.
    pub(crate) call_ended: Notify,
    /// Turns running now, from wherever they came.
    pub(crate) turns_running: AtomicUsize,
    /// Told when a turn ends after the silo was stopped.
    pub(crate) turn_ended: Notify,
    pub(crate) draining: AtomicBool,
    /// Told when activations hold more than their budget.
    pub(crate) over_budget: Notify,
    /// Ends every service.
    pub(crate) stop: CancellationToken,
}

impl Hub {
    pub(crate) fn room(&self, grain: &GrainId) -> &Arc<Room> {
        let shards = u32::try_from(self.rooms.len()).unwrap_or(u32::MAX);
        &self.rooms[crate::placement::home_of(grain, shards).0 as usize]
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
