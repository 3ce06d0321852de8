//! openraft's own suite over the real log and the real machine.

use super::*;
use crate::log::{GroupLog, Wal, WalOptions};
use crate::raft::checkpoint::LogCheckpoints;
use crate::raft::heads::Heads;
use crate::raft::machine::{Machine, Told};
use crate::raft::snapshot::SnapshotFolder;
use crate::raft::types::TypeConfig;
use crate::state::Stop;
use crate::state::memory::MemoryStore;
use crate::state::overlay::{Mark, Overlay};
use crate::state::writer::{Bell, Writer};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use std::sync::Arc;
use tokio::sync::watch;

struct Builder;

/// Ends after log and machine: a writer, the log's threads, the folder.
type Guard = (Writer, Arc<Wal>, tempfile::TempDir);

impl StoreBuilder<TypeConfig, GroupLog, Machine, Guard> for Builder {
    async fn build(&self) -> Result<(Guard, GroupLog, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let options = WalOptions { segment_bytes: 64 << 10, cache_bytes: 1 << 20, groups: 1, begun: false };
        let wal = Wal::open(&dir.path().join("log"), options).unwrap();
        let store = Arc::new(MemoryStore::default());
        let (bell, stop) = (Bell::new(), Stop::default());
        let overlay = Arc::new(Overlay::new(0, store.clone(), Mark::origin(), bell.clone(), stop.clone()));
        let checkpoints = Arc::new(LogCheckpoints(wal.clone()));
        let every = Duration::from_millis(20);
        let writer = Writer::start(bell, vec![overlay.clone()], store, checkpoints.clone(), every, stop).unwrap();
        let snapshots = dir.path().join("snapshots");
        SnapshotFolder::prepare(&snapshots).unwrap();
        let machine = Machine {
            stage: Default::default(),
            overlay,
            checkpoints,
            folder: SnapshotFolder::new(&snapshots, 0),
            told: Told {
                term: watch::channel(0).0,
                outbox: watch::channel(0).0,
                snapshots: watch::channel(0).0,
                counters: Arc::default(),
            },
            heads: Heads::default(),
            replay_until: None,
        };
        let log = wal.group(0);
        Ok(((writer, wal, dir), log, machine))
    }
}

#[tokio::test]
async fn the_suite_of_openraft_passes() {
    Suite::test_all(Builder).await.unwrap();
}
