//! The state of one shard as its readers see it: what was applied and not yet written, over what the store has.
//!
//! Apply puts rows into `dirty`. At a checkpoint the writer takes the whole of it as `frozen`, writes it to the store in
//! key order, syncs, and keeps a durable checkpoint of the log position that `frozen` stands for; only then is it let go.
//! A row that changes ten times between two checkpoints is written once, and the value of one that is deleted again never.
//! Readers look in dirty, frozen, store, in this order.
//!
//! Nothing is durable here, and nothing needs to be: the log has everything behind the last checkpoint.

use super::store::StateStore;
use super::writer::Bell;
use super::{Stop, keys};
use crate::Error;
use crate::raft::types::{LogId, StoredMembership};
use bytes::Bytes;
use keys::Key;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes of unwritten rows of one shard at which the writer is woken ahead of time.
pub const DIRTY_BYTES_WAKE: usize = 2 << 20;
/// Bytes of unwritten rows of one shard beyond which apply waits for the writer. One more entry may come on top, and as
/// much again may be frozen.
pub const DIRTY_BYTES_MAX: usize = 8 << 20;
/// What a row costs in the map besides its bytes, roughly.
const ROW_BYTES: usize = 96;
/// A reader that was overtaken by this many freezes in a row gives up; one takes half a second as a rule.
const READ_RETRIES_MAX: usize = 100;

/// A row in the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    Put(Bytes),
    /// A row that the store cannot have: its number was given just now. If it goes before it was written, it leaves no
    /// trace.
    Fresh(Bytes),
    Gone,
}

impl Slot {
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Slot::Put(value) | Slot::Fresh(value) => Some(value),
            Slot::Gone => None,
        }
    }
}

/// Where in the log a state stands, and the counters that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    /// The number that the next outbox row gets.
    pub outbox_next: u64,
    /// Events below are gone.
    pub events_low: u64,
}

impl Mark {
    /// Before the first entry. Outbox numbers start at 1.
    pub fn origin() -> Self {
        Self { outbox_next: 1, events_low: 1, ..Self::default() }
    }

    pub fn index(&self) -> Option<u64> {
        self.applied.map(|id| id.index)
    }
}

/// Rows on their way to the store.
pub struct Frozen {
    pub rows: BTreeMap<Key, Slot>,
    pub mark: Mark,
}

struct Mem {
    dirty: BTreeMap<Key, Slot>,
    dirty_bytes: usize,
    frozen: Option<Arc<Frozen>>,
    mark: Mark,
    /// Of the newest durable checkpoint; `None` until there is one.
    durable: Option<u64>,
    /// The writer may finish what is frozen, but freeze nothing new: the store is being read or replaced as a whole.
    held: bool,
    /// No further hold is given.
    closing: bool,
    /// Counts freezes: a reader that saw the same number before and after looked at one state.
    freezes: u64,
}

pub struct Overlay {
    pub shard: u32,
    pub store: Arc<dyn StateStore>,
    mem: Mutex<Mem>,
    /// Rung when something frozen was written, or a hold ended.
    written: Notify,
    bell: Bell,
    stop: Stop,
}

/// A range to read: `from..end`, at most `limit` rows.
pub struct Range {
    pub from: Key,
    pub end: Key,
    pub limit: usize,
}

impl Range {
    pub fn one(key: Key) -> Self {
        Self { end: keys::behind(&key), from: key, limit: 1 }
    }
}

pub type Rows = Vec<(Key, Bytes)>;

impl Overlay {
    pub fn new(shard: u32, store: Arc<dyn StateStore>, mark: Mark, bell: Bell, stop: Stop) -> Self {
        let durable = mark.index();
        let mem = Mem {
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            frozen: None,
            mark,
            durable,
            held: false,
            closing: false,
            freezes: 0,
        };
        Self { shard, store, mem: Mutex::new(mem), written: Notify::new(), bell, stop }
    }

    pub fn mark(&self) -> Mark {
        self.mem.lock().mark.clone()
    }

    /// Raft index of the last entry applied.
    pub fn applied(&self) -> Option<LogId> {
        self.mem.lock().mark.applied
    }

    /// The number that the next outbox row gets, and the lowest event kept.
    pub fn outbox_bounds(&self) -> (u64, u64) {
        let mem = self.mem.lock();
        (mem.mark.outbox_next, mem.mark.events_low)
    }

    /// Says why the node must stop acknowledging, and passes the reason on.
    pub fn fatal(&self, error: impl std::fmt::Display) -> std::io::Error {
        let why = format!("shard {}: {error}", self.shard);
        self.stop.because(why.clone());
        std::io::Error::other(why)
    }

    /// Bytes applied and not yet taken by the writer.
    #[cfg(test)]
    pub fn dirty_bytes(&self) -> usize {
        self.mem.lock().dirty_bytes
    }

    /// Waits until there is room for one more entry.
    pub async fn room(&self) -> Result<(), Error> {
        loop {
            let written = self.written.notified();
            self.stop.check()?;
            let bytes = self.mem.lock().dirty_bytes;
            if bytes > DIRTY_BYTES_WAKE {
                self.bell.ring();
            }
            if bytes <= DIRTY_BYTES_MAX {
                return Ok(());
            }
            written.await;
        }
    }

    /// Puts one entry's rows and its mark in place, visible together.
    pub fn apply(&self, rows: impl IntoIterator<Item = (Key, Slot)>, marked: impl FnOnce(&mut Mark)) {
        let mut mem = self.mem.lock();
        let mem = &mut *mem;
        for (key, slot) in rows {
            let size = key.len() + ROW_BYTES;
            let new = size + slot.value().map_or(0, Bytes::len);
            let vanishes = slot == Slot::Gone && matches!(mem.dirty.get(&key), Some(Slot::Fresh(_)));
            let old = if vanishes { mem.dirty.remove(&key) } else { mem.dirty.insert(key, slot) };
            if !vanishes {
                mem.dirty_bytes += new;
            }
            if let Some(old) = old {
                mem.dirty_bytes -= size + old.value().map_or(0, Bytes::len);
            }
        }
        marked(&mut mem.mark);
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        {
            let mem = self.mem.lock();
            let slot = mem.dirty.get(key).or_else(|| mem.frozen.as_ref().and_then(|frozen| frozen.rows.get(key)));
            if let Some(slot) = slot {
                return Ok(slot.value().cloned());
            }
        }
        Ok(self.store.get(key)?.map(Bytes::from))
    }

    /// Reads several ranges as of one moment. Gives the last entry applied at that moment with them.
    pub fn read(&self, ranges: &[Range]) -> Result<(Option<u64>, Vec<Rows>), Error> {
        for _ in 0..READ_RETRIES_MAX {
            let (copies, frozen, applied, freezes) = {
                let mem = self.mem.lock();
                let copies: Vec<_> = ranges.iter().map(|range| Copy::of(&mem.dirty, range)).collect();
                (copies, mem.frozen.clone(), mem.mark.index(), mem.freezes)
            };
            let mut all = Vec::with_capacity(ranges.len());
            for (range, copy) in ranges.iter().zip(&copies) {
                all.push(self.merge(range, copy, frozen.as_deref())?);
            }
            // Rows applied after the copy reach the store only through a later freeze.
            if self.mem.lock().freezes == freezes {
                return Ok((applied, all));
            }
        }
        Err(Error::Storage("a read was overtaken by checkpoints again and again".into()))
    }

    pub fn scan(&self, from: Key, end: Key, limit: usize) -> Result<Rows, Error> {
        let (_, mut all) = self.read(&[Range { from, end, limit }])?;
        Ok(all.pop().unwrap_or_default())
    }

    fn merge(&self, range: &Range, copy: &Copy, frozen: Option<&Frozen>) -> Result<Rows, Error> {
        let mut rows = Rows::new();
        let end: &[u8] = copy.end.as_deref().unwrap_or(&range.end);
        if range.limit == 0 || range.from.as_slice() >= end {
            return Ok(rows);
        }
        let bounds = (Included(range.from.as_slice()), Excluded(end));
        let mut dirty = copy.rows.iter().map(|(key, slot)| (key.as_slice(), slot)).peekable();
        let mut frozen = frozen
            .into_iter()
            .flat_map(|frozen| frozen.rows.range::<[u8], _>(bounds))
            .map(|(key, slot)| (key.as_slice(), slot))
            .peekable();
        // The overlay's next row at or before `upto`; what both hold is taken from dirty.
        let mut over = |upto: Option<&[u8]>| -> Option<(&[u8], &Slot)> {
            let due = |key: Option<&&[u8]>| key.is_some_and(|key| upto.is_none_or(|upto| *key <= upto));
            let (d, f) = (dirty.peek().map(|row| row.0), frozen.peek().map(|row| row.0));
            match (due(d.as_ref()), due(f.as_ref())) {
                (false, false) => None,
                (true, false) => dirty.next(),
                (false, true) => frozen.next(),
                (true, true) if d == f => {
                    frozen.next();
                    dirty.next()
                }
                (true, true) if d < f => dirty.next(),
                (true, true) => frozen.next(),
            }
        };
        let limit = range.limit;
        let take = |rows: &mut Rows, key: &[u8], slot: &Slot| {
            if let Some(value) = slot.value() {
                rows.push((key.to_vec(), value.clone()));
            }
        };
        self.store.scan(&range.from, end, &mut |key, value| {
            while rows.len() < limit {
                match over(Some(key)) {
                    None => {
                        rows.push((key.to_vec(), Bytes::copy_from_slice(value)));
                        break;
                    }
                    Some((other, slot)) => {
                        take(&mut rows, other, slot);
                        if other == key {
                            break;
                        }
                    }
                }
            }
            rows.len() < limit
        })?;
        while rows.len() < limit {
            let Some((key, slot)) = over(None) else { break };
            take(&mut rows, key, slot);
        }
        Ok(rows)
    }

    // ---- the writer's side ----

    /// What the writer has to write now: frozen already, or frozen by this call.
    pub fn freeze(&self) -> Option<Arc<Frozen>> {
        let mut mem = self.mem.lock();
        if mem.frozen.is_none() && !mem.held && mem.mark.index() != mem.durable {
            mem.freeze();
        }
        mem.frozen.clone()
    }

    pub fn is_frozen(&self) -> bool {
        self.mem.lock().frozen.is_some()
    }

    pub fn durable(&self) -> Option<u64> {
        self.mem.lock().durable
    }

    /// The frozen rows are in the store and their checkpoint is durable.
    pub fn done(&self) {
        let mut mem = self.mem.lock();
        if let Some(frozen) = mem.frozen.take() {
            mem.durable = frozen.mark.index();
        }
        drop(mem);
        self.written.notify_waiters();
    }

    /// Wakes whoever waits for the writer, so that it sees that there is none any more.
    pub fn give_up(&self) {
        self.written.notify_waiters();
    }

    // ---- as a whole ----

    /// Waits for the end of a hold and gives no other: whoever reads or replaces the store as a whole has let go of its
    /// files.
    pub async fn settle(&self) {
        loop {
            let written = self.written.notified();
            {
                let mut mem = self.mem.lock();
                mem.closing = true;
                if !mem.held {
                    break;
                }
            }
            written.await;
        }
        // Whoever waits for a hold of its own.
        self.written.notify_waiters();
    }

    /// Freezes what there is and keeps the writer from freezing more until the hold is dropped. When it has written that
    /// (see [`Hold::written`]), the store is exactly the state at the mark given back.
    pub async fn hold(self: &Arc<Self>) -> Result<(Hold, Mark), Error> {
        loop {
            let written = self.written.notified();
            self.stop.check()?;
            {
                let mut mem = self.mem.lock();
                if mem.closing {
                    return Err(Error::Closed);
                }
                if mem.frozen.is_none() && !mem.held {
                    mem.held = true;
                    if mem.mark.index() != mem.durable {
                        mem.freeze();
                    }
                    let mark = mem.mark.clone();
                    return Ok((Hold { overlay: self.clone() }, mark));
                }
            }
            self.bell.ring();
            written.await;
        }
    }
}

impl Mem {
    fn freeze(&mut self) {
        self.freezes += 1;
        self.dirty_bytes = 0;
        self.frozen = Some(Arc::new(Frozen { rows: std::mem::take(&mut self.dirty), mark: self.mark.clone() }));
    }
}

pub struct Hold {
    overlay: Arc<Overlay>,
}

impl Hold {
    /// Waits until the store holds the state of the hold's mark.
    pub async fn written(&self) -> Result<(), Error> {
        loop {
            let written = self.overlay.written.notified();
            self.overlay.stop.check()?;
            if self.overlay.mem.lock().frozen.is_none() {
                return Ok(());
            }
            self.overlay.bell.ring();
            written.await;
        }
    }

    /// The store was replaced under this hold: forget what was applied.
    pub fn replaced(&self, mark: Mark) {
        let mut mem = self.overlay.mem.lock();
        mem.freezes += 1;
        mem.dirty.clear();
        mem.dirty_bytes = 0;
        mem.frozen = None;
        mem.durable = mark.index();
        mem.mark = mark;
    }

    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.overlay.mem.lock().held = false;
        self.overlay.written.notify_waiters();
    }
}

/// A range of `dirty`, copied under the lock: rows up to the `limit`-th live one, which is enough, since the result cannot
/// reach behind it.
struct Copy {
    rows: Vec<(Key, Slot)>,
    /// Where the result must end because copying ended.
    end: Option<Key>,
}

impl Copy {
    fn of(dirty: &BTreeMap<Key, Slot>, range: &Range) -> Self {
        let mut copy = Self { rows: Vec::new(), end: None };
        if range.from >= range.end {
            return copy;
        }
        let mut live = 0;
        for (key, slot) in dirty.range::<[u8], _>((Included(range.from.as_slice()), Excluded(range.end.as_slice()))) {
            copy.rows.push((key.clone(), slot.clone()));
            live += usize::from(slot.value().is_some());
            if live >= range.limit {
                copy.end = Some(keys::behind(key));
                break;
            }
        }
        copy
    }
}
