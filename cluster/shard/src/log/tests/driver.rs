//! Calls of the log without a runtime.

use crate::log::disk::Disk;
use crate::log::{Entry, GroupLog, LeaderTerm, LogId, Vote, Wal, WalOptions};
use crate::raft::types::{Proposal, TypeConfig};
use futures::executor::block_on;
use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::OneshotReceiverOf;
use std::io;
use std::sync::Arc;

pub const GROUPS: u32 = 3;

/// Small files and no cache, so that rolling, recycling and reading back happen all the time.
pub fn options() -> WalOptions {
    WalOptions { segment_bytes: 8 << 10, cache_bytes: 0, groups: GROUPS, begun: false }
}

pub fn open(disk: &(impl Disk + Clone + 'static)) -> Arc<Wal> {
    Wal::open_on(Arc::new(disk.clone()), options()).unwrap()
}

pub fn id(term: u64, index: u64) -> LogId {
    LogId { leader_id: LeaderTerm { term }, index }
}

/// A normal entry whose payload tells where it belongs.
pub fn entry(group: u32, term: u64, index: u64, bytes: usize) -> Entry {
    let mut payload = format!("{group}/{term}/{index}/").into_bytes();
    payload.resize(payload.len().max(bytes), b'.');
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(Proposal(payload.into())) }
}

pub fn vote(term: u64, node: u64, committed: bool) -> Vote {
    Vote { leader_id: LeaderId { term, voted_for: node }, committed }
}

/// An append that was taken, not yet acknowledged.
pub type Pending = OneshotReceiverOf<TypeConfig, io::Result<()>>;

pub fn append(log: &GroupLog, entries: Vec<Entry>) -> Pending {
    let (sender, receiver) = TypeConfig::oneshot();
    // A refusal is told through the callback as well.
    let _ = block_on(log.clone().append(entries, IOFlushed::<TypeConfig>::signal(sender)));
    receiver
}

pub fn acked(pending: Pending) -> io::Result<()> {
    block_on(pending).unwrap_or_else(|_| Err(io::Error::other("dropped")))
}

/// Appends one entry and waits.
pub fn put(log: &GroupLog, entry: Entry) {
    acked(append(log, vec![entry])).unwrap();
}

pub fn entries(log: &GroupLog) -> Vec<Entry> {
    use openraft::RaftLogReader;
    block_on(log.clone().try_get_log_entries(..)).unwrap()
}

pub fn save_vote(log: &GroupLog, vote: Vote) -> io::Result<()> {
    block_on(log.clone().save_vote(&vote))
}

pub fn truncate(log: &GroupLog, after: Option<LogId>) -> io::Result<()> {
    block_on(log.clone().truncate_after(after))
}

pub fn purge(log: &GroupLog, upto: LogId) -> io::Result<()> {
    block_on(log.clone().purge(upto))
}

pub fn forget(log: &GroupLog) -> io::Result<()> {
    block_on(log.forget())
}

pub fn save_committed(log: &GroupLog, committed: Option<LogId>) {
    block_on(log.clone().save_committed(committed)).unwrap();
}

/// (purged, last)
pub fn state(log: &GroupLog) -> (Option<LogId>, Option<LogId>) {
    let state = block_on(log.clone().get_log_state()).unwrap();
    (state.last_purged_log_id, state.last_log_id)
}

pub fn read_vote(log: &GroupLog) -> Option<Vote> {
    use openraft::RaftLogReader;
    block_on(log.clone().read_vote()).unwrap()
}
