//! The workload: clients that repeat themselves, workers that die and stammer, people who decide late, consumers that move
//! from node to node, and a second writer that the fences must hold off, and a visitor
//! who looks at everything from everywhere.

pub mod client;
pub mod consumer;
pub mod person;
pub mod twin;
pub mod visitor;
pub mod worker;

use super::chance::Chance;
use super::court::Court;
use super::doors::Doors;
use super::plans::Plans;
use super::trace::Trace;
use grain_contract::GrainId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

pub const TENANTS: [&str; 2] = ["acme", "umbrella"];
/// A lease, and how often workers renew: shorter than the real ones, so that a short simulation meets their ends.
pub const LEASE: Duration = Duration::from_secs(6);
pub const RENEW: Duration = Duration::from_secs(2);

/// What the load has in common.
#[derive(Clone)]
pub struct Yard {
    pub doors: Doors,
    pub court: Court,
    pub trace: Trace,
    pub plans: Plans,
    /// True while new things are begun.
    pub working: watch::Receiver<bool>,
    pub runs: Runs,
    /// Changes whenever a frozen machine wakes.
    pub woken: watch::Receiver<u64>,
}

impl Yard {
    pub fn is_working(&self) -> bool {
        *self.working.borrow()
    }

    pub fn now_us(&self) -> u64 {
        self.trace.now_us()
    }
}

/// Runs that were acknowledged, and whether they have ended as far as is known.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<BTreeMap<GrainId, bool>>>);

impl Runs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<GrainId, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn accepted(&self, run: GrainId) {
        self.lock().entry(run).or_insert(false);
    }

    pub fn ended(&self, run: &GrainId) {
        self.lock().insert(run.clone(), true);
    }

    pub fn open(&self) -> Vec<GrainId> {
        self.lock().iter().filter(|(_, ended)| !**ended).map(|(run, _)| run.clone()).collect()
    }

    pub fn all(&self) -> Vec<GrainId> {
        self.lock().keys().cloned().collect()
    }
}

pub async fn pause(chance: &mut Chance, ms: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(chance.between(ms))).await;
}
