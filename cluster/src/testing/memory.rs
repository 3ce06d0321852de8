//! A shard in memory that fails on command. Same promises as `shard::Shard`, in the plainest way.
//!
//! Several silos may have a replica of one shard: each a store of its own over the same rows ([`MemoryStore::beside`]). Who
//! leads is said by the test; a replica that is cut off knows nothing of it.

use crate::store::Store;
use futures::future::BoxFuture;
use grain_contract::{
    CommandId, Epoch, GrainId, IndexChange, IndexEntry, OutboxMessage, ReminderChange, Revision, Row, RowKey, Table,
    TenantId, Timestamp,
};
use parking_lot::Mutex;
use shard::{
    Commit, Committed, Cursor, Error, GrainRows, Housekeeping, Leadership, NodeId, OutboxItem, OutboxRecord,
    ReminderRecord,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{Semaphore, watch};

/// What happens to the next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Applied, but the caller is told that the outcome is not known.
    AppliedThenUnknown,
    /// Applied only just before the next commit; the caller is told at once that the outcome is not known.
    UnknownThenApplied,
    /// Not applied, and the caller is told that the outcome is not known.
    LostThenUnknown,
    /// Applied by the next housekeeping, as an entry that a leader finds a majority for at last; the caller was told that
    /// the outcome is not known.
    LateThenUnknown,
    Fenced,
    Full,
}

#[derive(Default)]
struct Stored {
    revision: u64,
    rows: BTreeMap<RowKey, Vec<u8>>,
    reminders: BTreeMap<String, Timestamp>,
}

type IndexKey = (String, String, Vec<u8>, Vec<u8>);

#[derive(Default)]
struct State {
    epoch: u64,
    grains: HashMap<GrainId, Stored>,
    due: BTreeSet<(Timestamp, Vec<u8>, String)>,
    outbox: BTreeMap<u64, OutboxRecord>,
    next: u64,
    kept: u64,
    replies: HashMap<(GrainId, CommandId), Vec<u8>>,
    index: BTreeMap<IndexKey, (GrainId, Vec<u8>)>,
    cursors: BTreeMap<String, u64>,
}

pub(crate) struct MemoryStore {
    state: Arc<Mutex<State>>,
    leadership: watch::Sender<Leadership>,
    arrivals: Arc<watch::Sender<u64>>,
    /// This silo has a replica at all.
    pub(crate) hosted: AtomicBool,
    /// Hears nothing from the other replicas, and they nothing from it.
    pub(crate) cut: AtomicBool,
    /// Outbox rows from this number on have not arrived here yet.
    pub(crate) lags_from: AtomicU64,
    /// Who can lead beside it.
    pub(crate) others: Mutex<Vec<NodeId>>,
    /// Whom it handed the leadership to, told by the test then.
    pub(crate) handed_over: watch::Sender<Option<NodeId>>,
    faults: Mutex<VecDeque<Fault>>,
    /// Of [`Fault::UnknownThenApplied`].
    late: Mutex<Option<Commit>>,
    /// Of [`Fault::LateThenUnknown`].
    in_doubt: Mutex<Vec<Commit>>,
    /// A commit passes with one permit; plenty unless a test holds them.
    gate: Semaphore,
    /// Commits that wait for one.
    pub(crate) at_gate: AtomicUsize,
    /// Grains in the order of their commits.
    pub(crate) commits: Mutex<Vec<GrainId>>,
    pub(crate) loads: Mutex<HashMap<GrainId, usize>>,
    pub(crate) reminder_scans: AtomicUsize,
    pub(crate) panic_in_scan: AtomicBool,
    /// So many of the next lists of an index fail.
    pub(crate) failing_lists: AtomicUsize,
    /// So many of the next loads of a grain fail.
    pub(crate) failing_loads: AtomicUsize,
    pub(crate) housekeepings: AtomicUsize,
}

const OPEN_GATE: usize = 1 << 20;

impl MemoryStore {
    pub(crate) fn new() -> Self {
        let store = Self::over(Arc::new(Mutex::new(State { next: 1, kept: 1, ..State::default() })), Arc::default());
        store.arrivals.send_replace(1);
        store.elect();
        store
    }

    /// Another silo's replica of the same shard; it does not lead.
    pub(crate) fn beside(&self) -> Self {
        Self::over(self.state.clone(), self.arrivals.clone())
    }

    fn over(state: Arc<Mutex<State>>, arrivals: Arc<watch::Sender<u64>>) -> Self {
        Self {
            state,
            leadership: watch::Sender::new(Leadership::default()),
            arrivals,
            hosted: AtomicBool::new(true),
            cut: AtomicBool::new(false),
            lags_from: AtomicU64::new(u64::MAX),
            others: Mutex::default(),
            handed_over: watch::Sender::new(None),
            faults: Mutex::default(),
            late: Mutex::default(),
            in_doubt: Mutex::default(),
            gate: Semaphore::new(OPEN_GATE),
            at_gate: AtomicUsize::new(0),
            commits: Mutex::default(),
            loads: Mutex::default(),
            reminder_scans: AtomicUsize::new(0),
            panic_in_scan: AtomicBool::new(false),
            failing_lists: AtomicUsize::new(0),
            failing_loads: AtomicUsize::new(0),
            housekeepings: AtomicUsize::new(0),
        }
    }

    /// What this replica hears of the leadership now. A leader begins a new epoch.
    pub(crate) fn led_by(&self, epoch: u64, leader: Option<NodeId>, is_here: bool) {
        let epoch = is_here.then_some(Epoch(epoch));
        self.leadership.send_if_modified(|known| {
            let now = Leadership { epoch, leader };
            std::mem::replace(known, now) != now
        });
    }

    pub(crate) fn next_epoch(&self) -> u64 {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.epoch
    }

    /// Every replica looks again.
    pub(crate) fn nudge(&self) {
        self.arrivals.send_modify(|_| {});
    }

    /// A new leadership begins here.
    pub(crate) fn elect(&self) {
        let epoch = {
            let mut state = self.state.lock();
            state.epoch += 1;
            Epoch(state.epoch)
        };
        self.leadership.send_replace(Leadership { epoch: Some(epoch), leader: Some(1) });
    }

    /// Another process leads now.
    pub(crate) fn depose(&self) {
        self.state.lock().epoch += 1;
        self.leadership.send_replace(Leadership { epoch: None, leader: Some(2) });
    }

    pub(crate) fn fail_next(&self, fault: Fault) {
        self.faults.lock().push_back(fault);
    }

    /// No commit ends until [`MemoryStore::release`].
    pub(crate) fn hold(&self) {
        self.gate.forget_permits(OPEN_GATE);
    }

    pub(crate) fn release(&self, commits: usize) {
        self.gate.add_permits(commits);
    }

    pub(crate) fn release_all(&self) {
        self.gate.add_permits(OPEN_GATE);
    }

    pub(crate) fn reminder_rows(&self) -> usize {
        self.state.lock().due.len()
    }

    pub(crate) fn events_kept(&self) -> usize {
        self.state.lock().outbox.len()
    }

    pub(crate) fn spoil(&self, grain: &GrainId, key: RowKey, value: &[u8]) {
        self.state.lock().grains.entry(grain.clone()).or_default().rows.insert(key, value.to_vec());
    }

    fn apply(&self, commit: Commit) -> Result<Committed, Error> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let fenced = |expected: String, found: String| Err(Error::Fenced { expected, found });
        if commit.epoch.0 != state.epoch {
            return fenced(format!("epoch {}", commit.epoch.0), format!("{}", state.epoch));
        }
        let stored = state.grains.entry(commit.grain.clone()).or_default();
        if commit.expected.0 != stored.revision {
            return fenced(format!("revision {}", commit.expected.0), format!("{}", stored.revision));
        }
        stored.revision += 1;
        let grain_bytes = commit.grain.storage_bytes();
        for row in commit.turn.puts {
            stored.rows.insert(row.key, row.value);
        }
        for key in &commit.turn.deletes {
            stored.rows.remove(key);
        }
        for change in commit.turn.reminders {
            let (name, due) = match change {
                ReminderChange::Set { name, due } => (name, Some(due)),
                ReminderChange::Clear { name } => (name, None),
            };
            if let Some(before) = stored.reminders.remove(&name) {
                state.due.remove(&(before, grain_bytes.clone(), name.clone()));
            }
            if let Some(due) = due {
                stored.reminders.insert(name.clone(), due);
                state.due.insert((due, grain_bytes.clone(), name));
            }
        }
        let revision = Revision(stored.revision);
        for change in commit.turn.index {
            let tenant = commit.grain.tenant.as_str().to_owned();
            match change {
                IndexChange::Put { index, sort, value } => {
                    let key = (index.to_owned(), tenant, sort, grain_bytes.clone());
                    state.index.insert(key, (commit.grain.clone(), value));
                }
                IndexChange::Delete { index, sort } => {
                    state.index.remove(&(index.to_owned(), tenant, sort, grain_bytes.clone()));
                }
            }
        }
        let mut numbers = Vec::new();
        for message in commit.turn.outbox {
            let item = match message {
                OutboxMessage::Event { body } => OutboxItem::Event(body),
                OutboxMessage::Call { target, method, body, on_rejected } => {
                    OutboxItem::Call { target, method, body, on_rejected }
                }
            };
            let sequence = state.next;
            state.next += 1;
            numbers.push(sequence);
            state.outbox.insert(sequence, OutboxRecord { sequence, grain: commit.grain.clone(), at: commit.at, item });
        }
        if let Some(command) = commit.command {
            state.replies.insert((commit.grain.clone(), command), commit.turn.reply);
        }
        if !numbers.is_empty() {
            self.arrivals.send_replace(state.next);
        }
        self.commits.lock().push(commit.grain);
        Ok(Committed { revision, outbox: numbers })
    }
}

fn fail_if_told(left: &AtomicUsize) -> Result<(), Error> {
    match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
        Ok(_) => Err(Error::Storage("told to, not to be read now".to_owned())),
        Err(_) => Ok(()),
    }
}

impl Store for MemoryStore {
    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Committed, Error>> {
        Box::pin(async move {
            // Where the disk would be waited for, others get their turn.
            tokio::task::yield_now().await;
            self.at_gate.fetch_add(1, Ordering::SeqCst);
            let permit = self.gate.acquire().await;
            self.at_gate.fetch_sub(1, Ordering::SeqCst);
            permit.map_err(|_| Error::Closed)?.forget();
            let fault = self.faults.lock().pop_front();
            let late = self.late.lock().take();
            if let Some(late) = late {
                self.apply(late)?;
            }
            match fault {
                None if self.cut.load(Ordering::SeqCst) => Err(Error::Unknown("cut off".to_owned())),
                None => self.apply(commit),
                Some(Fault::AppliedThenUnknown) => {
                    self.apply(commit).and(Err(Error::Unknown("told to, applied".to_owned())))
                }
                Some(Fault::UnknownThenApplied) => {
                    *self.late.lock() = Some(commit);
                    Err(Error::Unknown("told to, on its way".to_owned()))
                }
                Some(Fault::LateThenUnknown) => {
                    self.in_doubt.lock().push(commit);
                    Err(Error::Unknown("told to, late".to_owned()))
                }
                Some(Fault::LostThenUnknown) => Err(Error::Unknown("told to, lost".to_owned())),
                Some(Fault::Fenced) => {
                    Err(Error::Fenced { expected: "nothing".to_owned(), found: "a fault".to_owned() })
                }
                Some(Fault::Full) => Err(Error::Storage("no space left".to_owned())),
            }
        })
    }

    fn housekeeping(&self, work: Housekeeping) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.housekeepings.fetch_add(1, Ordering::SeqCst);
            let in_doubt = std::mem::take(&mut *self.in_doubt.lock());
            for commit in in_doubt {
                self.apply(commit).ok();
            }
            let mut state = self.state.lock();
            if work.epoch.0 != state.epoch || self.cut.load(Ordering::SeqCst) {
                return Err(Error::NotLeader { shard: 0, leader: None });
            }
            for sequence in work.calls_done {
                state.outbox.remove(&sequence);
            }
            for cursor in work.cursors {
                state.cursors.insert(cursor.name, cursor.sequence);
            }
            for name in work.cursors_dropped {
                state.cursors.remove(&name);
            }
            if let Some(below) = work.trim_events_below {
                state.outbox.retain(|n, record| *n >= below || !matches!(record.item, OutboxItem::Event(_)));
                state.kept = state.kept.max(below);
            }
            Ok(())
        })
    }

    fn grain(&self, id: &GrainId) -> Result<GrainRows, Error> {
        fail_if_told(&self.failing_loads)?;
        *self.loads.lock().entry(id.clone()).or_default() += 1;
        let state = self.state.lock();
        let Some(stored) = state.grains.get(id) else { return Ok(GrainRows::default()) };
        let rows = stored.rows.iter().filter(|(key, _)| key.table.is_loaded());
        Ok(GrainRows {
            revision: Revision(stored.revision),
            rows: rows.map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect(),
            reminders: stored.reminders.iter().map(|(name, due)| (name.clone(), *due)).collect(),
        })
    }

    fn rows(&self, id: &GrainId, table: Table, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, Error> {
        let state = self.state.lock();
        let Some(stored) = state.grains.get(id) else { return Ok(Vec::new()) };
        let rows = stored.rows.iter().filter(|(key, _)| key.table == table && after.is_none_or(|a| &*key.key > a));
        Ok(rows.take(limit).map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect())
    }

    fn stored_reply(&self, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.state.lock().replies.get(&(id.clone(), command.clone())).cloned())
    }

    fn index(
        &self,
        index: &str,
        tenant: &TenantId,
        after: Option<&IndexEntry>,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, Error> {
        let all = self.index_all(index, None, usize::MAX)?;
        let behind = |entry: &IndexEntry| {
            after.is_none_or(|a| (&entry.sort, entry.grain.storage_bytes()) > (&a.sort, a.grain.storage_bytes()))
        };
        Ok(all.into_iter().filter(|entry| entry.grain.tenant == *tenant && behind(entry)).take(limit).collect())
    }

    fn index_all(&self, index: &str, after: Option<&IndexEntry>, limit: usize) -> Result<Vec<IndexEntry>, Error> {
        fail_if_told(&self.failing_lists)?;
        let state = self.state.lock();
        let after = after.map(|entry| {
            let tenant = entry.grain.tenant.as_str().to_owned();
            (index.to_owned(), tenant, entry.sort.clone(), entry.grain.storage_bytes())
        });
        let entries = state.index.iter().filter(|(key, _)| key.0 == index && after.as_ref().is_none_or(|a| *key > a));
        let entry = |((_, _, sort, _), (grain, value)): (&IndexKey, &(GrainId, Vec<u8>))| IndexEntry {
            grain: grain.clone(),
            sort: sort.clone(),
            value: value.clone(),
        };
        Ok(entries.take(limit).map(entry).collect())
    }

    fn reminders(
        &self,
        until: Timestamp,
        after: Option<&ReminderRecord>,
        limit: usize,
    ) -> Result<Vec<ReminderRecord>, Error> {
        assert!(!self.panic_in_scan.swap(false, Ordering::SeqCst), "told to panic in a scan");
        self.reminder_scans.fetch_add(1, Ordering::SeqCst);
        let after = after.map(|record| (record.due, record.grain.storage_bytes(), record.name.clone()));
        let state = self.state.lock();
        let due = state.due.iter().filter(|key| key.0 <= until && after.as_ref().is_none_or(|a| *key > a));
        let record = |(due, grain, name): &(Timestamp, Vec<u8>, String)| {
            let (grain, _) = GrainId::from_storage_bytes(grain).expect("stored by us");
            ReminderRecord { due: *due, grain, name: name.clone() }
        };
        Ok(due.take(limit).map(record).collect())
    }

    fn outbox(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        let until = self.lags_from.load(Ordering::SeqCst).max(from);
        Ok(self.state.lock().outbox.range(from..until).take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn open_calls(&self, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
        let state = self.state.lock();
        let calls = state.outbox.range(from..).filter(|(_, record)| matches!(record.item, OutboxItem::Call { .. }));
        Ok(calls.take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn outbox_bounds(&self) -> (u64, u64) {
        let state = self.state.lock();
        if !self.hosted.load(Ordering::SeqCst) {
            return (1, 1);
        }
        (state.next.min(self.lags_from.load(Ordering::SeqCst)), state.kept)
    }

    fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        let state = self.state.lock();
        Ok(state.cursors.iter().map(|(name, sequence)| Cursor { name: name.clone(), sequence: *sequence }).collect())
    }

    fn outbox_watch(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    fn aside(&self) -> Option<String> {
        None
    }

    fn hosted(&self) -> bool {
        self.hosted.load(Ordering::SeqCst)
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), Error>> {
        let still = self.leadership.borrow().epoch == Some(epoch) && self.state.lock().epoch == epoch.0;
        let answer = match still && !self.cut.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(Error::NotLeader { shard: 0, leader: None }),
        };
        Box::pin(std::future::ready(answer))
    }

    fn heirs(&self) -> Vec<NodeId> {
        self.others.lock().clone()
    }

    fn hand_over(&self, to: NodeId) -> BoxFuture<'_, Result<(), Error>> {
        self.handed_over.send_replace(Some(to));
        Box::pin(std::future::ready(Ok(())))
    }

    fn stopped(&self) -> Option<String> {
        None
    }
}
