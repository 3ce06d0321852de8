//! All shards of one process: opening in order, closing in order.

use super::checkpoint::LogCheckpoints;
use super::folder::Folder;
use super::opening::{Ground, Starts, starts};
use super::replica::Parts;
use super::shard::ShardInner;
use super::snapshot::SnapshotFolder;
use super::{blocking, mend, pulse, ticks, upkeep};
use crate::Error;
use crate::api::*;
use crate::link::NodeId;
use crate::log::Wal;
use crate::state::Stop;
use crate::state::closable::Closable;
use crate::state::overlay::Overlay;
use crate::state::writer::{Bell, Checkpoints, Writer};
use crate::testing::Stage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub struct HostInner {
    pub(super) slots: Vec<Arc<ShardInner>>,
    pub(super) parts: Arc<Parts>,
    wal: Arc<Wal>,
    store: Arc<Closable>,
    writer: Arc<Writer>,
    stop: Stop,
    stage: Stage,
    pub(super) closed: Arc<AtomicBool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Places for snapshots that come in.
    pub(super) receiving: Arc<Semaphore>,
    /// Let go last.
    folder: Arc<Mutex<Option<Folder>>>,
}

impl HostInner {
    pub async fn open(options: HostOptions) -> Result<Self, Error> {
        ticks::align(options.timing.tick());
        let stop = Stop::default();
        let ground = {
            let (options, stop) = (options.clone(), stop.clone());
            blocking(&options.stage.clone(), move || Ground::open(&options, stop)).await?
        };
        let Ground { folder, wal, store, counters, set_aside } = ground;
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(LogCheckpoints(wal.clone()));
        let bell = Bell::new();
        let Starts { marks, aside } =
            starts(&options, &folder, &wal, &store, &checkpoints, &counters, set_aside).await?;
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
        let stage = options.stage.clone();
        let parts = Arc::new(Parts { node: folder.node_id(), options, checkpoints, counters });
        let (hosted, snapshots) = (folder.replicas(), folder.snapshots());
        let slots: Vec<_> = overlays
            .into_iter()
            .map(|overlay| {
                let snapshots = SnapshotFolder::new(&snapshots, overlay.shard);
                Arc::new(ShardInner::new(parts.node, &parts.options, overlay, snapshots, &wal, &stop, &closed))
            })
            .collect();
        let host = Self {
            slots,
            parts,
            wal,
            store,
            writer: Arc::new(writer),
            stop,
            stage: stage.clone(),
            closed,
            tasks: Mutex::default(),
            receiving: Arc::new(Semaphore::new(super::incoming::RECEIVE_AT_ONCE_MAX)),
            folder: Arc::new(Mutex::new(Some(folder))),
        };
        for (shard, why) in aside {
            tracing::error!(shard, why, "what is here of a shard is damaged; it is set aside, the other shards go on");
            host.slots[shard as usize].set_aside(why);
        }
        let hosted = host.slots.iter().filter(|slot| hosted.contains(&slot.id.0) && slot.aside().is_none());
        let started = futures::future::join_all(hosted.map(|slot| slot.start(&host.parts))).await;
        started.into_iter().collect::<Result<(), Error>>()?;
        let pulse = pulse::run(host.slots.clone(), host.parts.options.timing.heartbeat);
        let upkeep = upkeep::run(host.slots.clone(), host.wal.clone(), host.parts.clone());
        let mend = mend::run(host.slots.clone(), host.parts.clone(), host.stop.clone());
        host.tasks.lock().extend([tokio::spawn(pulse), tokio::spawn(upkeep), tokio::spawn(mend)]);
        Ok(host)
    }

    pub fn node_id(&self) -> NodeId {
        self.parts.node
    }

    pub fn cluster_id(&self) -> Option<Uuid> {
        self.folder.lock().as_ref().and_then(Folder::cluster_id)
    }

    pub async fn adopt(&self, cluster: Uuid) -> Result<(), Error> {
        self.stamp(move |folder| folder.adopt(cluster)).await
    }

    pub async fn start_replica(&self, id: ShardId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let _changing = slot.changing.lock().await;
        self.stamp(move |folder| folder.host(id.0, true)).await?;
        slot.start(&self.parts).await
    }

    /// The stamp is written first: from then on nothing of the replica counts, and an open removes what is left of it.
    pub async fn stop_replica(&self, id: ShardId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let _changing = slot.changing.lock().await;
        if self.parts.options.alone {
            return Err(Error::Change { shard: id.0, why: "a node that is alone hosts every shard".into() });
        }
        self.stamp(move |folder| folder.host(id.0, false)).await?;
        slot.stop(&self.parts).await
    }

    pub(super) async fn stamp(
        &self,
        write: impl FnOnce(&mut Folder) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let folder = self.folder.clone();
        blocking(&self.stage, move || folder.lock().as_mut().map_or(Err(Error::Closed), write)).await
    }

    pub fn hosted(&self) -> Vec<ShardId> {
        self.slots.iter().filter(|slot| slot.hosted()).map(|slot| slot.id).collect()
    }

    pub fn set_aside(&self) -> BTreeMap<ShardId, String> {
        self.slots.iter().filter_map(|slot| Some((slot.id, slot.aside()?))).collect()
    }

    pub async fn found(&self, id: ShardId, voters: BTreeSet<NodeId>) -> Result<(), Error> {
        self.slot(id)?.found(voters).await
    }

    pub fn shards(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn shard(&self, id: ShardId) -> Option<Arc<ShardInner>> {
        self.slots.get(id.0 as usize).cloned()
    }

    pub(super) fn slot(&self, id: ShardId) -> Result<&Arc<ShardInner>, Error> {
        self.slots.get(id.0 as usize).ok_or(Error::NotHosted { shard: id.0 })
    }

    pub fn overlay(&self, id: ShardId) -> Option<Arc<Overlay>> {
        self.slots.get(id.0 as usize).map(|shard| shard.overlay.clone())
    }

    pub fn stopped(&self) -> Option<String> {
        self.stop.why().or_else(|| self.wal.stopped())
    }

    pub fn rebuilds(&self) -> u64 {
        self.parts.counters.rebuilds.load(Ordering::Relaxed)
    }

    pub fn restarts(&self) -> u64 {
        self.parts.counters.restarts.load(Ordering::Relaxed)
    }

    pub fn unreadable(&self) -> u64 {
        self.parts.counters.unreadable.load(Ordering::Relaxed)
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
        for slot in &self.slots {
            let _changing = slot.changing.lock().await;
            if let Some(replica) = slot.take() {
                replica.end().await;
            }
        }
        for task in tasks {
            task.await.ok();
        }
        // A snapshot in progress runs outside of Raft's tasks; the next host on this folder must not meet it.
        futures::future::join_all(self.slots.iter().map(|slot| slot.overlay.settle())).await;
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
