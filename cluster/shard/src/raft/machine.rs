//! openraft's state machine of one shard: reads entries, fences them, puts their rows into the overlay.
//!
//! Nothing here touches the disk on the way (but for the head of a grain seen for the first time in a while), nothing
//! panics on what it reads, and an entry that this build cannot read sets its grain aside instead of stopping the shard.

use super::entry::FORMAT;
use super::heads::Heads;
use super::snapshot::{self, SnapshotFile, SnapshotFolder};
use super::types::{Applied, Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::Error;
use crate::state::keys::{self, Key};
use crate::state::overlay::{Hold, Mark, Overlay, Slot};
use crate::state::writer::Checkpoints;
use crate::state::{head, housekeeping, turn};
use crate::testing::{Seen, Stage};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use grain_contract::GrainId;
use granary_proto::storage::{self, GrainHead, HousekeepingEntry, TurnEntry, entry::Body};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use prost::Message;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::watch;

/// What a shard's machine tells the rest of the process.
#[derive(Clone)]
pub struct Told {
    /// Term of the newest applied entry: a leader whose own first entry was applied has applied all before it.
    pub term: watch::Sender<u64>,
    /// The number that the next outbox row gets.
    pub outbox: watch::Sender<u64>,
    /// Counts snapshots that could not be written.
    pub snapshots: watch::Sender<u64>,
    pub counters: Arc<Counters>,
}

/// Things that should stay zero.
#[derive(Debug, Default)]
pub struct Counters {
    /// Stores or shards of a store that were made again from snapshot and log.
    pub rebuilds: AtomicU64,
    /// Replicas that ended by themselves and were started again.
    pub restarts: AtomicU64,
    /// Entries that this build could not read.
    pub unreadable: AtomicU64,
}

pub struct Machine {
    pub overlay: Arc<Overlay>,
    pub checkpoints: Arc<dyn Checkpoints>,
    pub folder: SnapshotFolder,
    pub told: Told,
    pub heads: Heads,
    /// The last entry that the log held when it was opened. Up to there the store may hold rows of a former life, so no
    /// row counts as fresh.
    pub replay_until: Option<u64>,
    pub stage: Stage,
}

impl Machine {
    pub(super) fn apply_one(&mut self, entry: Entry) -> Result<Applied, Error> {
        let id = entry.log_id;
        match entry.payload {
            EntryPayload::Normal(proposal) => match storage::Entry::decode(proposal.0.clone()) {
                Ok(storage::Entry { format: FORMAT, body: Some(Body::Turn(turn)) }) => self.turn(id, turn),
                Ok(storage::Entry { format: FORMAT, body: Some(Body::Housekeeping(work)) }) => {
                    Ok(self.housekeeping(id, work))
                }
                Ok(other) => self.unreadable(id, other),
                Err(error) => {
                    self.told.counters.unreadable.fetch_add(1, Relaxed);
                    tracing::error!(shard = self.overlay.shard, %id, %error, "an entry that is no entry was skipped");
                    self.overlay.apply([], |mark| mark.applied = Some(id));
                    Ok(unread("an entry", &error.to_string()))
                }
            },
            EntryPayload::Membership(membership) => {
                self.overlay.apply([], |mark| {
                    mark.applied = Some(id);
                    mark.membership = StoredMembership::new(Some(id), membership);
                });
                Ok(Applied::Nothing)
            }
            EntryPayload::Blank => {
                self.overlay.apply([], |mark| mark.applied = Some(id));
                Ok(Applied::Nothing)
            }
        }
    }

    fn turn(&mut self, id: LogId, entry: TurnEntry) -> Result<Applied, Error> {
        let place = turn::Place { shard: self.overlay.shard, term: id.leader_id.term, index: id.index };
        let Some((grain, _)) = GrainId::from_storage_bytes(&entry.grain) else {
            self.told.counters.unreadable.fetch_add(1, Relaxed);
            self.overlay.apply([], |mark| mark.applied = Some(id));
            return Ok(unread("a grain's name", &entry.grain.escape_ascii().to_string()));
        };
        let head = self.head(&entry.grain, id.index)?;
        let fenced = turn::fence(place, &head, &entry).err().filter(|fenced| !self.stage.overlooks(fenced));
        if let Some(witness) = self.stage.witness() {
            let revision = fenced.is_none().then(|| head.revision + 1);
            let (shard, term, index) = (place.shard, place.term, place.index);
            witness.applied(Seen { shard, term, index, entry: &entry, revision });
        }
        if let Some(turn::Fenced { expected, found }) = fenced {
            self.heads.put(entry.grain, head);
            self.overlay.apply([], |mark| mark.applied = Some(id));
            return Ok(Applied::Fenced { expected, found });
        }
        let (outbox_next, _) = self.overlay.outbox_bounds();
        let bytes = entry.grain.clone();
        let mut changes = turn::changes(place, &grain, head, entry, outbox_next);
        self.no_fresh_rows_in_replay(id, &mut changes.rows);
        let added = changes.outbox.len() as u64;
        self.overlay.apply(changes.rows, |mark| {
            mark.applied = Some(id);
            mark.outbox_next += added;
        });
        let revision = changes.head.revision;
        self.heads.put(bytes, changes.head);
        Ok(Applied::Committed { revision, outbox: changes.outbox })
    }

    fn housekeeping(&mut self, id: LogId, work: HousekeepingEntry) -> Applied {
        if work.epoch != id.leader_id.term {
            self.overlay.apply([], |mark| mark.applied = Some(id));
            let (expected, found) = (format!("epoch {}", work.epoch), format!("epoch {}", id.leader_id.term));
            return Applied::Fenced { expected, found };
        }
        let (next, low) = self.overlay.outbox_bounds();
        let (rows, low) = housekeeping::changes(self.overlay.shard, work, low, next);
        self.overlay.apply(rows, |mark| {
            mark.applied = Some(id);
            mark.events_low = low;
        });
        Applied::Nothing
    }

    /// An entry of a newer build. Its grain can be named (messages change only by adding), so it alone is set aside.
    fn unreadable(&mut self, id: LogId, entry: storage::Entry) -> Result<Applied, Error> {
        self.told.counters.unreadable.fetch_add(1, Relaxed);
        let why = format!("an entry of format {}, but this build reads {FORMAT}", entry.format);
        tracing::error!(shard = self.overlay.shard, %id, why, "an entry was not applied");
        let mut rows = Vec::new();
        if let Some(Body::Turn(turn)) = entry.body {
            let head = self.head(&turn.grain, id.index)?;
            let head = GrainHead { quarantined: why.clone(), applied_index: id.index, ..head };
            let row = Slot::Put(Bytes::from(head.encode_to_vec()));
            rows.push((keys::head(self.overlay.shard, &turn.grain), row));
            self.heads.put(turn.grain, head);
        }
        self.overlay.apply(rows, |mark| mark.applied = Some(id));
        Ok(unread("a readable entry", &why))
    }

    /// The grain's head as it was before the entry `index`. Taken out of the cache: put it back.
    fn head(&mut self, grain: &[u8], index: u64) -> Result<GrainHead, Error> {
        if let Some(head) = self.heads.take(grain) {
            return Ok(head);
        }
        let key = keys::head(self.overlay.shard, grain);
        let Some(row) = self.overlay.get(&key)? else { return Ok(GrainHead::default()) };
        let row = head::read(&key, &row)?;
        Ok(index.checked_sub(1).and_then(|before| head::at(row, before)).unwrap_or_default())
    }

    fn no_fresh_rows_in_replay(&self, id: LogId, rows: &mut [(Key, Slot)]) {
        if Some(id.index) > self.replay_until {
            return;
        }
        for (_, slot) in rows {
            if let Slot::Fresh(value) = slot {
                *slot = Slot::Put(std::mem::take(value));
            }
        }
    }

    fn tell(&self) {
        let term = self.overlay.applied().map_or(0, |id| id.leader_id.term);
        let (next, _) = self.overlay.outbox_bounds();
        let moved = |known: &mut u64, now: u64| std::mem::replace(known, now) != now;
        self.told.term.send_if_modified(|known| moved(known, term));
        self.told.outbox.send_if_modified(|known| moved(known, next));
    }
}

fn unread(expected: &str, found: &str) -> Applied {
    Applied::Fenced { expected: expected.into(), found: found.into() }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let mark = self.overlay.mark();
        Ok((mark.applied, mark.membership))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.overlay.room().await.map_err(io::Error::other)?;
            let applied = self.apply_one(entry).map_err(|error| self.overlay.fatal(error))?;
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        self.tell();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        // The overlay gives up only when the node has stopped; then the builder says why.
        let held = self.overlay.hold().await;
        Builder {
            overlay: self.overlay.clone(),
            held: Some(held),
            folder: self.folder.clone(),
            failed: self.told.snapshots.clone(),
            stage: self.stage.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, file: SnapshotFile) -> Result<(), io::Error> {
        let (hold, _) = self.overlay.hold().await.map_err(io::Error::other)?;
        hold.written().await.map_err(io::Error::other)?;
        let (folder, checkpoints, meta) = (self.folder.clone(), self.checkpoints.clone(), meta.clone());
        let stage = self.stage.clone();
        let installed = super::blocking(&stage, move || snapshot::install(&hold, &*checkpoints, &folder, &meta, file));
        installed.await.map_err(|error| self.overlay.fatal(error))?;
        self.heads.clear();
        self.tell();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<SnapshotFile>>, io::Error> {
        self.folder.current().map_err(io::Error::other)
    }
}

/// Builds one snapshot, holding the shard's writer for that long.
pub struct Builder {
    overlay: Arc<Overlay>,
    held: Option<Result<(Hold, Mark), Error>>,
    folder: SnapshotFolder,
    stage: Stage,
    failed: watch::Sender<u64>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotFile;

    /// A snapshot that cannot be written is not the end of a shard that is whole: the log stays. openraft knows no such
    /// answer, so it gets the snapshot that was there before, which it knows, or one of nothing, which it does not take.
    async fn build_snapshot(&mut self) -> Result<Snapshot<SnapshotFile>, io::Error> {
        match self.build().await {
            Ok(snapshot) => Ok(snapshot),
            Err(error) => {
                tracing::error!(shard = self.overlay.shard, %error, "a snapshot could not be written");
                let before = self.folder.current().map_err(io::Error::other)?;
                self.failed.send_modify(|failed| *failed += 1);
                let nothing = SnapshotFile { path: self.folder.path(), _incoming: None };
                Ok(before.unwrap_or(Snapshot { meta: SnapshotMeta::default(), snapshot: nothing }))
            }
        }
    }
}

impl Builder {
    async fn build(&mut self) -> Result<Snapshot<SnapshotFile>, Error> {
        let (hold, mark) = self.held.take().unwrap_or(Err(Error::Closed))?;
        hold.written().await?;
        let folder = self.folder.clone();
        super::blocking(&self.stage, move || snapshot::build(hold.overlay(), &mark, &folder)).await
    }
}
