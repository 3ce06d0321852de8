//! All shards of one process: opening in order, closing in order.
//!
//! Order of opening: the folder's lock and stamp, the log (which verifies itself), the state store (verified if the last
//! process did not end in order, set aside if it is no good), then for each shard what its rows are worth; a shard whose
//! rows are worth nothing gets its checkpoint taken back before anything is written, and openraft fills it from snapshot
//! and log. The log and the votes were never in the store, so a rebuilt shard is still the same voter.

use super::checkpoint::{LogCheckpoints, Worth, worth};
use super::folder::Folder;
use super::heads::Heads;
use super::machine::{Counters, Machine, Told};
use super::network::NoPeers;
use super::shard::ShardInner;
use super::snapshot::{SnapshotFolder, verify};
use super::{leadership, upkeep};
use crate::Error;
use crate::api::*;
use crate::log::{Wal, WalOptions};
use crate::state::closable::Closable;
use crate::state::overlay::{Mark, Overlay};
use crate::state::store::wipe_shard;
use crate::state::writer::{Bell, Checkpoints, Writer, read_stamp};
use crate::state::{Stop, guard};
use crate::testing::Stage;
use grain_contract::limits::COMMITS_IN_FLIGHT_MAX;
use openraft::impls::BasicNode;
use openraft::storage::RaftLogStorage;
use openraft::{Config, Raft, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Bytes of log entries that are kept in memory, all shards together. Apply reads what was just appended, so the newest few
/// are enough; what a slow reader wants beyond that comes from the file.
const LOG_CACHE_BYTES: u64 = 8 << 20;

pub struct HostInner {
    shards: Vec<Arc<ShardInner>>,
    wal: Arc<Wal>,
    store: Arc<Closable>,
    writer: Arc<Writer>,
    stop: Stop,
    stage: Stage,
    counters: Arc<Counters>,
    closed: Arc<AtomicBool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Let go last.
    folder: Mutex<Option<Folder>>,
}

/// What opening found, before any Raft runs.
struct Ground {
    folder: Folder,
    wal: Arc<Wal>,
    store: Arc<Closable>,
    counters: Arc<Counters>,
    set_aside: bool,
}

impl HostInner {
    pub async fn open(options: HostOptions) -> Result<Self, Error> {
        let stop = Stop::default();
        let ground = {
            let (options, stop) = (options.clone(), stop.clone());
            blocking(&options.stage.clone(), move || Ground::open(&options, stop)).await?
        };
        let Ground { folder, wal, store, counters, set_aside } = ground;
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(LogCheckpoints(wal.clone()));
        let bell = Bell::new();
        let marks = marks(&options, &folder, &wal, &store, &checkpoints, &counters, set_aside).await?;
        let overlays: Vec<_> = (0..options.shards)
            .zip(marks)
            .map(|(shard, mark)| Arc::new(Overlay::new(shard, store.clone(), mark, bell.clone(), stop.clone())))
            .collect();
        let every = options.checkpoint_every;
        let writer = Writer::start_on(
            bell,
            overlays.clone(),
            store.clone(),
            checkpoints.clone(),
            every,
            stop.clone(),
            &options.stage,
        )?;
        let closed = Arc::new(AtomicBool::new(false));
        let mut host = Self {
            shards: Vec::new(),
            wal,
            store,
            writer: Arc::new(writer),
            stop,
            stage: options.stage.clone(),
            counters,
            closed,
            tasks: Mutex::default(),
            folder: Mutex::new(Some(folder)),
        };
        let started = overlays.into_iter().map(|overlay| host.start(&options, overlay, checkpoints.clone()));
        let started = futures::future::join_all(started).await;
        host.shards = started.into_iter().collect::<Result<_, Error>>()?;
        let upkeep = upkeep::run(host.shards.clone(), host.wal.clone(), every, options.snapshot_log_bytes);
        host.tasks.lock().push(tokio::spawn(upkeep));
        Ok(host)
    }

    async fn start(
        &self,
        options: &HostOptions,
        overlay: Arc<Overlay>,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> Result<Arc<ShardInner>, Error> {
        let shard = overlay.shard;
        let mut log = self.wal.group(shard);
        let last = log.get_log_state().await.map_err(storage)?.last_log_id;
        let snapshots = self.folder.lock().as_ref().map(Folder::snapshots).ok_or(Error::Closed)?;
        let folder = SnapshotFolder::new(&snapshots, shard);
        let (term, applied) = watch::channel(0);
        let (outbox_told, outbox) = watch::channel(overlay.mark().outbox_next);
        let machine = Machine {
            overlay: overlay.clone(),
            checkpoints,
            folder: folder.clone(),
            told: Told { term, outbox: outbox_told, counters: self.counters.clone() },
            heads: Heads::default(),
            replay_until: last.map(|id| id.index),
            stage: options.stage.clone(),
        };
        let config = Arc::new(config(shard)?);
        let raft = Raft::new(options.node_id, config, NoPeers, log, machine).await.map_err(storage)?;
        let (told, leadership) = watch::channel(Leadership::default());
        self.tasks.lock().push(tokio::spawn(leadership::follow(raft.clone(), applied, told)));
        if raft.is_initialized().await.map_err(storage)? {
            // Nobody else can lead, so there is no one to wait for.
            raft.trigger().elect(false).await.map_err(storage)?;
        } else {
            let members = BTreeMap::from([(options.node_id, BasicNode::default())]);
            raft.initialize(members).await.map_err(storage)?;
        }
        Ok(Arc::new(ShardInner {
            id: ShardId(shard),
            raft,
            overlay,
            folder,
            leadership,
            outbox,
            in_flight: Semaphore::new(COMMITS_IN_FLIGHT_MAX),
            wal: self.wal.clone(),
            stop: self.stop.clone(),
            closed: self.closed.clone(),
            stage: self.stage.clone(),
        }))
    }

    pub fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    pub fn shard(&self, id: ShardId) -> Option<Arc<ShardInner>> {
        self.shards.get(id.0 as usize).cloned()
    }

    pub fn overlay(&self, id: ShardId) -> Option<Arc<Overlay>> {
        self.shards.get(id.0 as usize).map(|shard| shard.overlay.clone())
    }

    pub fn stopped(&self) -> Option<String> {
        self.stop.why().or_else(|| self.wal.stopped())
    }

    pub fn rebuilds(&self) -> u64 {
        self.counters.rebuilds.load(Ordering::Relaxed)
    }

    pub fn unreadable(&self) -> u64 {
        self.counters.unreadable.load(Ordering::Relaxed)
    }

    pub async fn close(&self) -> Result<(), Error> {
        self.end(true).await
    }

    /// Ends as a crash would, as far as the disk can tell: no last checkpoint, no mark of a clean end.
    #[cfg(test)]
    pub async fn crash(&self) {
        self.end(false).await.ok();
    }

    async fn end(&self, in_order: bool) -> Result<(), Error> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(why) = self.wal.stopped() {
            self.stop.because(why);
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(JoinHandle::abort);
        let patience = self.stop.patience();
        if tokio::time::timeout(patience, self.end_raft(tasks)).await.is_err() {
            self.stop.because(format!("a shard did not end within {patience:?}"));
        }
        // After a stop there is no checkpoint to take: whoever waits for it waits for a disk that has said no.
        let flushed = if in_order && self.stop.why().is_none() { self.writer.flush().await } else { Ok(()) };
        let (writer, store, wal) = (self.writer.clone(), self.store.clone(), self.wal.clone());
        let (folder, stop) = (self.folder.lock().take(), self.stop.clone());
        blocking(&self.stage, move || {
            writer.end();
            let let_go = store.close();
            // A clean end is claimed only if the store stands where its checkpoints say.
            let in_order = in_order && flushed.is_ok() && let_go.is_ok() && stop.why().is_none();
            let closed = if in_order {
                wal.close()
            } else {
                wal.abandon();
                Ok(())
            };
            drop(folder);
            stop.check().and(flushed).and(let_go).and(closed)
        })
        .await
    }

    async fn end_raft(&self, tasks: Vec<JoinHandle<()>>) {
        for shard in &self.shards {
            // openraft gives no reason when its task has panicked; there is nothing to add here.
            shard.raft.shutdown().await.ok();
        }
        for task in tasks {
            task.await.ok();
        }
        // A snapshot in progress runs outside of Raft's tasks; the next host on this folder must not meet it.
        futures::future::join_all(self.shards.iter().map(|shard| shard.overlay.settle())).await;
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        // Raft's own tasks end a little later and still hold the store; the next open in this process must find it free.
        self.writer.end();
        self.store.close().ok();
    }
}

impl Ground {
    fn open(options: &HostOptions, stop: Stop) -> Result<Self, Error> {
        let mut folder = Folder::open(options)?;
        let wal = WalOptions {
            segment_bytes: options.segment_bytes,
            cache_bytes: LOG_CACHE_BYTES,
            groups: options.shards,
            begun: folder.log_begun(),
        };
        let wal = Wal::open_staged(&folder.log(), wal, &options.stage)?;
        folder.say_log_begun()?;
        SnapshotFolder::prepare(&folder.snapshots())?;
        let counters = Arc::new(Counters::default());
        let opened = guard::open(&folder.state(), options.state, options.cache_bytes, wal.unclean())?;
        let set_aside = opened.set_aside.is_some();
        if set_aside {
            counters.rebuilds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self { folder, wal, store: Arc::new(Closable::new(opened.store, stop)), counters, set_aside })
    }
}

/// Where each shard starts.
async fn marks(
    options: &HostOptions,
    folder: &Folder,
    wal: &Arc<Wal>,
    store: &Arc<Closable>,
    checkpoints: &Arc<dyn Checkpoints>,
    counters: &Counters,
    set_aside: bool,
) -> Result<Vec<Mark>, Error> {
    let clean = !wal.unclean();
    let (mut marks, mut empty) = (Vec::new(), Vec::new());
    for shard in 0..options.shards {
        let mut log = wal.group(shard);
        let state = log.get_log_state().await.map_err(storage)?;
        let stamp = read_stamp(&**store, shard)?;
        match worth(log.checkpoint().as_ref(), stamp.as_ref(), state.last_log_id, clean) {
            Worth::From(mark) => marks.push(mark),
            worth => {
                if let Worth::Nothing(why) = worth {
                    tracing::warn!(shard, why, "a shard is made again from snapshot and log");
                    if !set_aside && options.state != StateBackend::Memory {
                        counters.rebuilds.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if state.last_purged_log_id.is_some() {
                    // The log alone does not reach back: without a whole snapshot file this is the end, and says so.
                    let snapshots = folder.snapshots();
                    blocking(&options.stage, move || verify(&SnapshotFolder::new(&snapshots, shard).path(), shard))
                        .await?;
                }
                empty.push(shard);
                marks.push(Mark::origin());
            }
        }
    }
    let (store, checkpoints) = (store.clone(), checkpoints.clone());
    blocking(&options.stage, move || {
        if !empty.is_empty() {
            checkpoints.keep(empty.iter().map(|shard| (*shard, None)).collect())?;
        }
        empty.into_iter().try_for_each(|shard| wipe_shard(&*store, shard))
    })
    .await?;
    Ok(marks)
}

fn config(shard: u32) -> Result<Config, Error> {
    Config {
        cluster_name: format!("shard-{shard}"),
        heartbeat_interval: 150,
        election_timeout_min: 400,
        election_timeout_max: 800,
        enable_pre_vote: Some(true),
        max_payload_entries: 512,
        max_append_entries: Some(4_096),
        // `upkeep` decides, by bytes.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 5_000,
        replication_lag_threshold: 10_000,
        // Its own documentation warns of it for state that is written behind.
        enable_leader_restore: Some(false),
        api_batch_linger_ms: 0,
        ..Config::default()
    }
    .validate()
    .map_err(storage)
}

fn storage(error: impl std::fmt::Display) -> Error {
    Error::Storage(error.to_string())
}

async fn blocking<T: Send + 'static>(
    stage: &Stage,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    stage.offload(work).await.map_err(storage)?
}
