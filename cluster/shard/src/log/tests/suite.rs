//! openraft's own suite for a log, beside the smallest state machine that it accepts.

use super::driver::GROUPS;
use crate::log::{GroupLog, Wal, WalOptions};
use crate::raft::types::{Applied, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, OptionalSend, StorageError};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

#[derive(Clone, Default)]
struct Machine {
    applied: Arc<Mutex<(Option<LogId>, StoredMembership)>>,
    snapshot: Arc<Mutex<Option<SnapshotMeta>>>,
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<Snapshot<()>, io::Error> {
        let (last_log_id, last_membership) = self.applied.lock().clone();
        let meta = SnapshotMeta { last_log_id, last_membership };
        *self.snapshot.lock() = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok(self.applied.lock().clone())
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let mut applied = self.applied.lock();
            applied.0 = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                applied.1 = StoredMembership::new(Some(entry.log_id), membership);
            }
            if let Some(responder) = responder {
                responder.send(Applied::Nothing);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, _: ()) -> Result<(), io::Error> {
        *self.applied.lock() = (meta.last_log_id, meta.last_membership.clone());
        *self.snapshot.lock() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<()>>, io::Error> {
        Ok(self.snapshot.lock().clone().map(|meta| Snapshot { meta, snapshot: () }))
    }
}

struct Builder;

impl StoreBuilder<TypeConfig, GroupLog, Machine, (Arc<Wal>, tempfile::TempDir)> for Builder {
    async fn build(&self) -> Result<((Arc<Wal>, tempfile::TempDir), GroupLog, Machine), StorageError<TypeConfig>> {
        let folder = tempfile::tempdir().unwrap();
        let options = WalOptions { segment_bytes: 16 << 10, cache_bytes: 0, groups: GROUPS, begun: false };
        let wal = Wal::open(folder.path(), options).unwrap();
        let log = wal.group(1);
        Ok(((wal, folder), log, Machine::default()))
    }
}

/// [K3]
#[tokio::test]
async fn openrafts_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}
