//! Grains whose last commit may still come.
//!
//! A leader that hears from no majority gives up waiting for a commit, not the entry: that lies in its log, and if it stays
//! the leader the entry is committed when the others are back. Then the rows say what nobody acted upon: an attempt is
//! claimed whose worker never heard of it. To wake the grain at once is too early, its rows are still the old ones. So it is
//! remembered here, and woken once an entry behind the one in doubt is committed; then that one was either before it or
//! never will be. A leader that is replaced meanwhile owes nothing: its successor wakes everybody.

use crate::room::Room;
use crate::waker::MISSED_MAX;
use grain_contract::GrainId;
use parking_lot::Mutex;
use shard::Housekeeping;
use std::collections::HashSet;
use std::time::Duration;

/// How long an entry that says nothing may take. It is tried again with the next beat.
const BARRIER_MAX: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct Owed(Mutex<HashSet<GrainId>>);

impl Owed {
    pub(crate) fn add(&self, grain: &GrainId) {
        let mut owed = self.0.lock();
        if owed.len() < MISSED_MAX {
            owed.insert(grain.clone());
        } else {
            tracing::warn!(%grain, "too many commits are in doubt; the sweep will look after this one");
        }
    }

    fn put_back(&self, grains: HashSet<GrainId>) {
        let mut owed = self.0.lock();
        let room = MISSED_MAX.saturating_sub(owed.len());
        owed.extend(grains.into_iter().take(room));
    }
}

/// Those whose fate is settled now: they are to be woken.
pub(crate) async fn settled(room: &Room) -> HashSet<GrainId> {
    let owed = std::mem::take(&mut *room.owed.0.lock());
    if owed.is_empty() {
        return owed;
    }
    let epoch = room.store.leadership().borrow().epoch.unwrap_or_default();
    let barrier = room.store.housekeeping(Housekeeping { epoch, ..Housekeeping::default() });
    match tokio::time::timeout(BARRIER_MAX, barrier).await {
        Ok(Ok(())) => owed,
        outcome => {
            tracing::debug!(shard = room.id.0, ?outcome, grains = owed.len(), "commits are still in doubt");
            room.owed.put_back(owed);
            HashSet::new()
        }
    }
}
