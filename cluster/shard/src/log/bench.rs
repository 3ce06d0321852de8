//! The log for `benches/append.rs`, without Raft around it. Not part of this crate's face.

use super::{Entry, GroupLog, LeaderTerm, LogId, Wal, WalOptions};
use crate::Error;
use crate::raft::types::{Proposal, TypeConfig};
use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Entries of a group between two purges.
const PURGE_EVERY: u64 = 4_096;

/// Appends entries to groups in turn.
pub struct Appender {
    wal: Arc<Wal>,
    groups: Vec<Mutex<(GroupLog, u64)>>,
}

impl Appender {
    pub fn open(folder: &Path, groups: u32) -> Result<Self, Error> {
        let wal =
            Wal::open(folder, WalOptions { segment_bytes: 64 << 20, cache_bytes: 64 << 20, groups, begun: false })?;
        let groups = (0..groups).map(|group| Mutex::new((wal.group(group), 0))).collect();
        Ok(Self { wal, groups })
    }

    /// Returns when the entry is on disk.
    pub async fn append(&self, writer: usize, payload: bytes::Bytes) -> io::Result<()> {
        let (sender, receiver) = TypeConfig::oneshot();
        {
            let mut group = self.groups[writer % self.groups.len()].lock().await;
            let (log, next) = &mut *group;
            let log_id = LogId { leader_id: LeaderTerm { term: 1 }, index: *next };
            let entry = Entry { log_id, payload: EntryPayload::Normal(Proposal(payload)) };
            log.append([entry], IOFlushed::signal(sender)).await?;
            if *next % PURGE_EVERY == PURGE_EVERY - 1 {
                log.purge(LogId { index: *next - PURGE_EVERY / 2, ..log_id }).await?;
            }
            *next += 1;
        }
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("dropped")))
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.wal.stats().syncs
    }
}
