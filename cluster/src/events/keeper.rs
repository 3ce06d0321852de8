//! Named cursors: what a consumer acknowledged, kept durably with the shards.
//!
//! Acknowledgements are gathered and written at most once a second and shard, so a busy consumer costs no commit an event.
//! After a crash at most what was acknowledged in the last second is delivered again, with the same numbers.

use super::position::Position;
use crate::hop::cursors::{Ask, Said, What};
use crate::hub::Hub;
use crate::sabotage::Sabotage;
use crate::service::Pulse;
use grain_contract::{Rejection, TenantId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Acknowledgements may lie in memory for this long.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// A reader that acknowledges nothing asks this often whether the cursor is still its own, in seconds of `KEEP_EVERY`.
const ASK_EVERY: u32 = 5;
/// Owners are looked for so long when a cursor is taken, and when it is kept.
const TAKE: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(5);

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

    /// Another node says that its reader took this cursor.
    pub(crate) fn taken_elsewhere(&self, key: &str, reader: u64) {
        let mut named = self.named.lock();
        if named.get(key).is_some_and(|named| named.reader != reader)
            && let Some(before) = named.remove(key)
        {
            before.take_over();
        }
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
    /// Its number there.
    reader: u64,
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
    /// Rounds of the keeper without anything to write.
    quiet: u32,
    /// The bug `Sabotage::CursorAhead`.
    careless: bool,
}

impl State {
    /// Where the cursor may stand in this shard.
    fn done(&self, shard: usize) -> u64 {
        let all_acknowledged = self.acknowledged[shard] >= self.delivered[shard];
        if all_acknowledged || self.careless { self.looked_at[shard] } else { self.acknowledged[shard] }
    }
}

impl Named {
    fn new(key: String, reader: u64, start: Position, careless: bool) -> Self {
        let at = start.0.clone();
        let state = State {
            acknowledged: at.clone(),
            looked_at: at.clone(),
            delivered: at.clone(),
            kept: at,
            quiet: 0,
            careless,
        };
        Self {
            key,
            reader,
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

    /// What is to be said in this round: what is not written, or now and then only that the reader is still there.
    fn to_say(&self) -> Vec<(usize, u64)> {
        if self.is_taken_over() {
            return Vec::new();
        }
        let unkept = self.unkept();
        let mut state = self.state.lock();
        if !unkept.is_empty() {
            state.quiet = 0;
            return unkept;
        }
        state.quiet += 1;
        if state.quiet < ASK_EVERY || state.kept.is_empty() || self.reader_gone.load(Ordering::Acquire) {
            return Vec::new();
        }
        state.quiet = 0;
        vec![(0, state.kept[0])]
    }

    fn kept(&self, shard: usize, sequence: u64) {
        let mut state = self.state.lock();
        state.kept[shard] = state.kept[shard].max(sequence);
    }
}

/// Finds or makes the cursor, and takes it over from whoever reads it now, on whatever node.
pub(super) async fn open(
    hub: &Arc<Hub>,
    tenant: Option<&TenantId>,
    name: &str,
    start: Position,
    start_is_explicit: bool,
) -> Result<Arc<Named>, Rejection> {
    // Tenants are names without a zero byte, so the spaces of two tenants never meet.
    let key = format!("{}\0{name}", tenant.map_or("", |tenant| tenant.as_str()));
    let before = hub.readers.named.lock().get(&key).cloned();
    if let Some(before) = before {
        // Its last word; if that cannot be written, what it says is delivered again.
        let _ = keep(hub, std::slice::from_ref(&before)).await;
        before.take_over();
    }
    let reader = rand::random::<u64>().max(1);
    let take = |(shard, start): (usize, &u64)| Ask {
        shard: hub.rooms[shard].id,
        name: key.clone(),
        what: What::Take { reader, start: *start, start_is_explicit },
    };
    let asks: Vec<Ask> = start.0.iter().enumerate().map(take).collect();
    let said = hub.cursors(&asks, Instant::now() + TAKE).await?;
    let stands = said.into_iter().zip(&start.0).map(|(said, start)| match said {
        Said::At(sequence) => sequence,
        Said::Taken => *start,
    });
    let careless = hub.options.sabotage == Some(Sabotage::CursorAhead);
    let named = Arc::new(Named::new(key.clone(), reader, Position(stands.collect()), careless));
    let meanwhile = hub.readers.named.lock().insert(key.clone(), named.clone());
    if let Some(meanwhile) = meanwhile {
        meanwhile.take_over();
    }
    hub.tell_cursor_taken(&key, reader);
    Ok(named)
}

/// Writes what these cursors have to say, one commit a shard. Those that were taken over elsewhere end.
async fn keep(hub: &Arc<Hub>, named: &[Arc<Named>]) -> Result<(), Rejection> {
    let mut asks = Vec::new();
    let mut whose = Vec::new();
    for cursor in named {
        for (shard, sequence) in cursor.to_say() {
            let what = What::Move { reader: cursor.reader, sequence };
            asks.push(Ask { shard: hub.rooms[shard].id, name: cursor.key.clone(), what });
            whose.push((cursor, shard, sequence));
        }
    }
    if asks.is_empty() {
        return Ok(());
    }
    let said = hub.cursors(&asks, Instant::now() + KEEP).await?;
    for ((cursor, shard, sequence), said) in whose.into_iter().zip(said) {
        match said {
            Said::At(_) => cursor.kept(shard, sequence),
            Said::Taken => cursor.take_over(),
        }
    }
    Ok(())
}

/// Writes everything acknowledged until now.
pub(crate) async fn keep_all(hub: &Arc<Hub>) {
    let all: Vec<Arc<Named>> = hub.readers.named.lock().values().cloned().collect();
    if let Err(rejection) = keep(hub, &all).await {
        tracing::debug!(%rejection, "cursors cannot be kept now; again later");
        return;
    }
    // A cursor without a reader that has nothing more to say lives on in its rows only.
    let gone = |named: &Arc<Named>| {
        named.reader_gone.load(Ordering::Acquire) && (named.is_taken_over() || named.unkept().is_empty())
    };
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
