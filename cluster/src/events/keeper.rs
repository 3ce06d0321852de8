//! Named cursors: what a consumer acknowledged, kept durably with the shards.
//!
//! Acknowledgements are gathered and written at most once a second and shard, so a busy consumer costs no commit an event.
//! After a crash at most what was acknowledged in the last second is delivered again, with the same numbers.

use super::position::Position;
use crate::hub::Hub;
use crate::refusal;
use crate::service::Pulse;
use grain_contract::{Rejection, TenantId};
use parking_lot::Mutex;
use shard::{Cursor, Housekeeping};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Acknowledgements may lie in memory for this long.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// The readers of a silo, as its services see them.
#[derive(Default)]
pub(crate) struct Readers {
    named: Mutex<HashMap<String, Arc<Named>>>,
    lags: Mutex<Vec<std::sync::Weak<AtomicU64>>>,
}

impl Readers {
    pub(super) fn register(&self) -> Arc<AtomicU64> {
        let lag = Arc::new(AtomicU64::new(0));
        let mut lags = self.lags.lock();
        lags.retain(|lag| lag.strong_count() > 0);
        lags.push(Arc::downgrade(&lag));
        lag
    }

    pub(crate) fn worst_lag(&self) -> u64 {
        let lags = self.lags.lock();
        lags.iter().filter_map(|lag| lag.upgrade()).map(|lag| lag.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

/// One named cursor with its reader.
pub(super) struct Named {
    /// As the shards know it.
    key: String,
    start: Position,
    state: Mutex<State>,
    taken_over: AtomicBool,
    takeover: Notify,
    reader_gone: AtomicBool,
}

struct State {
    /// Everything below was acknowledged.
    acknowledged: Vec<u64>,
    /// Everything below was delivered to the consumer or is not for it.
    looked_at: Vec<u64>,
    /// Behind the last event delivered; what lies between it and `looked_at` was not for the consumer.
    delivered: Vec<u64>,
    kept: Vec<u64>,
}

impl State {
    /// Where the cursor may stand in this shard.
    fn done(&self, shard: usize) -> u64 {
        if self.acknowledged[shard] >= self.delivered[shard] { self.looked_at[shard] } else { self.acknowledged[shard] }
    }
}

impl Named {
    fn new(key: String, start: Position) -> Self {
        let at = start.0.clone();
        let state = State { acknowledged: at.clone(), looked_at: at.clone(), delivered: at.clone(), kept: at };
        Self {
            key,
            start,
            state: Mutex::new(state),
            taken_over: AtomicBool::new(false),
            takeover: Notify::new(),
            reader_gone: AtomicBool::new(false),
        }
    }

    pub(super) fn start(&self) -> &Position {
        &self.start
    }

    pub(super) fn looked_at(&self, position: &Position, delivered: impl Iterator<Item = (usize, u64)>) {
        let mut state = self.state.lock();
        for (shard, sequence) in delivered {
            state.delivered[shard] = state.delivered[shard].max(sequence + 1);
        }
        state.looked_at.copy_from_slice(&position.0);
    }

    pub(super) fn acknowledge(&self, position: &Position) {
        let mut state = self.state.lock();
        for (done, acknowledged) in state.acknowledged.iter_mut().zip(&position.0) {
            *done = (*done).max(*acknowledged);
        }
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Acquire)
    }

    pub(super) async fn taken_over(&self) {
        let told = self.takeover.notified();
        if !self.is_taken_over() {
            told.await;
        }
    }

    pub(super) fn reader_gone(&self) {
        self.reader_gone.store(true, Ordering::Release);
    }

    fn take_over(&self) {
        self.taken_over.store(true, Ordering::Release);
        self.takeover.notify_waiters();
    }

    /// What should be written in each shard, and is not.
    fn unkept(&self) -> Vec<(usize, u64)> {
        let state = self.state.lock();
        let shards = 0..state.kept.len();
        shards.map(|shard| (shard, state.done(shard))).filter(|(shard, done)| *done > state.kept[*shard]).collect()
    }

    fn kept(&self, shard: usize, sequence: u64) {
        self.state.lock().kept[shard] = sequence;
    }
}

/// Finds or makes the cursor, and takes it over from whoever reads it now.
pub(super) async fn open(
    hub: &Arc<Hub>,
    tenant: Option<&TenantId>,
    name: &str,
    start: Position,
    start_is_explicit: bool,
) -> Result<Arc<Named>, Rejection> {
    // Tenants are names without a zero byte, so the spaces of two tenants never meet.
    let key = format!("{}\0{name}", tenant.map_or("", |tenant| tenant.as_str()));
    let before = hub.readers.named.lock().remove(&key);
    if let Some(before) = before {
        before.take_over();
        keep(hub, &[before]).await?;
    }
    let mut position = start;
    let mut missing = Vec::new();
    for (shard, room) in hub.rooms.iter().enumerate() {
        let stored = room.store.cursors().map_err(refusal::of_store)?.into_iter().find(|cursor| cursor.name == key);
        match stored {
            Some(cursor) if !start_is_explicit => position.0[shard] = cursor.sequence,
            _ => missing.push(shard),
        }
    }
    for shard in missing {
        let cursor = Cursor { name: key.clone(), sequence: position.0[shard] };
        write(hub, shard, vec![cursor]).await?;
    }
    let named = Arc::new(Named::new(key.clone(), position));
    let meanwhile = hub.readers.named.lock().insert(key, named.clone());
    if let Some(meanwhile) = meanwhile {
        meanwhile.take_over();
    }
    Ok(named)
}

async fn write(hub: &Hub, shard: usize, cursors: Vec<Cursor>) -> Result<(), Rejection> {
    let store = &hub.rooms[shard].store;
    let epoch = store.leadership().borrow().epoch.ok_or_else(|| refusal::unavailable("it is not led here now"))?;
    let work = Housekeeping { epoch, cursors, ..Housekeeping::default() };
    store.housekeeping(work).await.map_err(refusal::of_store)
}

/// Writes what these cursors have to say, one commit a shard.
async fn keep(hub: &Hub, named: &[Arc<Named>]) -> Result<(), Rejection> {
    let mut by_shard: HashMap<usize, Vec<(&Arc<Named>, u64)>> = HashMap::new();
    for cursor in named {
        for (shard, sequence) in cursor.unkept() {
            by_shard.entry(shard).or_default().push((cursor, sequence));
        }
    }
    for (shard, moved) in by_shard {
        let cursors =
            moved.iter().map(|(named, sequence)| Cursor { name: named.key.clone(), sequence: *sequence }).collect();
        write(hub, shard, cursors).await?;
        for (named, sequence) in moved {
            named.kept(shard, sequence);
        }
    }
    Ok(())
}

/// Writes everything acknowledged until now.
pub(crate) async fn keep_all(hub: &Hub) {
    let all: Vec<Arc<Named>> = hub.readers.named.lock().values().cloned().collect();
    if let Err(rejection) = keep(hub, &all).await {
        tracing::debug!(%rejection, "cursors cannot be kept now; again later");
        return;
    }
    // A cursor without a reader that has nothing more to say lives on in its rows only.
    let gone = |named: &Arc<Named>| named.reader_gone.load(Ordering::Acquire) && named.unkept().is_empty();
    hub.readers.named.lock().retain(|_, named| !gone(named));
}

/// Ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    loop {
        pulse.beat();
        tokio::time::sleep(KEEP_EVERY).await;
        keep_all(&hub).await;
    }
}
