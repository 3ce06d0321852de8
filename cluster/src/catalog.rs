//! The activations of one shard.
//!
//! The map's lock is what makes an activation single: looking up, making, entering and closing happen under it, and none of
//! them waits. Three hundred first calls of a cold grain find one activation, whose first turn reads the rows once.

use crate::activation::gate::Refused;
use crate::activation::{Activation, Permit};
use grain_contract::{Epoch, GrainId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Catalog {
    state: Mutex<State>,
    closing: Notify,
}

#[derive(Default)]
struct State {
    /// `Some` while the shard is led here.
    epoch: Option<Epoch>,
    by_id: HashMap<GrainId, Arc<Activation>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotAdmitted {
    /// The shard is not led here now.
    NotHere,
    Full,
}

impl Catalog {
    pub(crate) fn open(&self, epoch: Epoch) {
        self.state.lock().epoch = Some(epoch);
    }

    /// Leadership is lost: drops all.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.epoch = None;
            std::mem::take(&mut state.by_id)
        };
        for activation in dropped.values() {
            activation.invalidate();
        }
        self.closing.notify_waiters();
    }

    /// Ends once the shard is not led here any more and its activations were dropped.
    pub(crate) async fn closed(&self) {
        loop {
            // Waits from before the look, so a close between the two is not missed.
            let closing = self.closing.notified();
            if self.state.lock().epoch.is_none() {
                return;
            }
            closing.await;
        }
    }

    /// A place inside the grain's activation, which is made if there is none.
    pub(crate) fn enter(
        &self,
        id: &GrainId,
        limit: usize,
        now_ms: u64,
        make: impl FnOnce(Epoch) -> Option<Arc<Activation>>,
    ) -> Result<Permit, NotAdmitted> {
        let mut state = self.state.lock();
        let epoch = state.epoch.ok_or(NotAdmitted::NotHere)?;
        let activation = match state.by_id.get(id) {
            Some(activation) => activation.clone(),
            None => {
                let made = make(epoch).ok_or(NotAdmitted::NotHere)?;
                state.by_id.insert(id.clone(), made.clone());
                made
            }
        };
        activation.enter(limit, now_ms).map_err(|refused| match refused {
            Refused::Full => NotAdmitted::Full,
            // Closing and removing are one step under this lock, so this is an activation of a leadership that just ended.
            Refused::Closed => NotAdmitted::NotHere,
        })
    }

    /// Removes it if nobody is inside.
    pub(crate) fn deactivate_if_idle(&self, activation: &Arc<Activation>) -> bool {
        let mut state = self.state.lock();
        let is_this = state.by_id.get(&activation.id).is_some_and(|found| Arc::ptr_eq(found, activation));
        let closed = is_this && activation.close_if_idle();
        if closed {
            state.by_id.remove(&activation.id);
        }
        closed
    }

    /// Removes one whose actor is gone.
    pub(crate) fn forget(&self, activation: &Arc<Activation>) {
        let mut state = self.state.lock();
        if state.by_id.get(&activation.id).is_some_and(|found| Arc::ptr_eq(found, activation)) {
            state.by_id.remove(&activation.id);
        }
        activation.invalidate();
    }

    /// Those nobody is inside of now.
    pub(crate) fn idle(&self) -> Vec<Arc<Activation>> {
        self.state.lock().by_id.values().filter(|activation| activation.is_idle()).cloned().collect()
    }
}
