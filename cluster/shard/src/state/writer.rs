//! The one thread that writes to the state store, for all shards of the node.
//!
//! A round: take what is frozen or can be, write it shard by shard in key order, the shard's stamp last; one sync for all;
//! one durable checkpoint for each; let go. The next round begins only then: `head` builds on that.

use super::overlay::{Frozen, Mark, Overlay, Slot};
use super::store::{Change, StateStore};
use super::{Stop, head, keys};
use crate::Error;
use crate::testing::Stage;
use granary_proto::storage::StoreStamp;
use parking_lot::{Condvar, Mutex};
use prost::Message;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Where checkpoints are kept. On return they are durable.
pub trait Checkpoints: Send + Sync {
    fn keep(&self, marks: Vec<(u32, Option<Mark>)>) -> Result<(), Error>;
}

/// Wakes the writer ahead of its time.
#[derive(Clone)]
pub struct Bell(Arc<Shared>);

struct Shared {
    asked: Mutex<Asked>,
    ring: Condvar,
    /// Rung as well, if the writer is a task.
    task: OnceLock<Arc<Notify>>,
    /// Told when the thread is about to end.
    ended: Condvar,
    /// The newest request for a round that a whole round has followed; `u64::MAX` when there will be none any more.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Asked {
    wake: bool,
    round: u64,
    end: bool,
    ended: bool,
}

impl Bell {
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            asked: Mutex::default(),
            ring: Condvar::new(),
            task: OnceLock::new(),
            ended: Condvar::new(),
            done: watch::channel(0).0,
        }))
    }

    pub fn ring(&self) {
        let mut asked = self.0.asked.lock();
        if !asked.wake {
            asked.wake = true;
            self.0.rung();
        }
    }
}

impl Shared {
    fn rung(&self) {
        self.ring.notify_one();
        if let Some(task) = self.task.get() {
            task.notify_one();
        }
    }
}

pub struct Writer {
    bell: Bell,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// On a stage, in the place of the thread.
    task: Option<Arc<Work>>,
    stop: Stop,
}

impl Writer {
    #[cfg(test)]
    pub fn start(
        bell: Bell,
        overlays: Vec<Arc<Overlay>>,
        store: Arc<dyn StateStore>,
        checkpoints: Arc<dyn Checkpoints>,
        every: Duration,
        stop: Stop,
    ) -> Result<Self, Error> {
        Self::start_on(bell, overlays, store, checkpoints, every, stop, &Stage::default())
    }

    pub fn start_on(
        bell: Bell,
        overlays: Vec<Arc<Overlay>>,
        store: Arc<dyn StateStore>,
        checkpoints: Arc<dyn Checkpoints>,
        every: Duration,
        stop: Stop,
        stage: &Stage,
    ) -> Result<Self, Error> {
        let work = Work { bell: bell.clone(), overlays, store, checkpoints, every, stop: stop.clone() };
        if stage.scene().is_some() {
            let work = Arc::new(work);
            tokio::spawn(work.clone().run_as_task(bell.0.task.get_or_init(Arc::default).clone()));
            return Ok(Self { bell, thread: Mutex::default(), task: Some(work), stop });
        }
        let thread = std::thread::Builder::new()
            .name("state-writer".into())
            .spawn(move || work.run())
            .map_err(|error| Error::Storage(error.to_string()))?;
        Ok(Self { bell, thread: Mutex::new(Some(thread)), task: None, stop })
    }

    /// Returns when everything applied before the call is in the store and behind a durable checkpoint (but what a hold
    /// keeps back).
    pub async fn flush(&self) -> Result<(), Error> {
        let mut done = self.bell.0.done.subscribe();
        let ticket = {
            let mut asked = self.bell.0.asked.lock();
            asked.round += 1;
            asked.wake = true;
            self.bell.0.rung();
            asked.round
        };
        // The sender lives in the bell, which we hold.
        let patience = self.stop.patience();
        if tokio::time::timeout(patience, done.wait_for(|done| *done >= ticket)).await.is_err() {
            self.stop.because(format!("the state store took no checkpoint within {patience:?}"));
        }
        self.stop.check()
    }

    /// Ends the thread after the round it is in. Blocks for that long, but not for ever: a round may hang in the store.
    pub fn end(&self) {
        if let Some(work) = &self.task {
            self.bell.0.asked.lock().end = true;
            self.bell.0.rung();
            return work.over();
        }
        let patience = self.stop.patience();
        let ended = {
            let mut asked = self.bell.0.asked.lock();
            asked.end = true;
            self.bell.0.ring.notify_one();
            let until = std::time::Instant::now() + patience;
            while !asked.ended && !self.bell.0.ended.wait_until(&mut asked, until).timed_out() {}
            asked.ended
        };
        if !ended {
            self.stop.because(format!("the state writer did not end within {patience:?}"));
        } else if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            self.stop.because("the state writer panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

struct Work {
    bell: Bell,
    overlays: Vec<Arc<Overlay>>,
    store: Arc<dyn StateStore>,
    checkpoints: Arc<dyn Checkpoints>,
    every: Duration,
    stop: Stop,
}

impl Work {
    fn run(self) {
        let shared = &self.bell.0;
        loop {
            {
                let mut asked = shared.asked.lock();
                if !asked.wake && !asked.end {
                    shared.ring.wait_for(&mut asked, self.every);
                }
            }
            if !self.serve() {
                break;
            }
        }
        self.over();
    }

    async fn run_as_task(self: Arc<Self>, rung: Arc<Notify>) {
        loop {
            let _ = tokio::time::timeout(self.every, rung.notified()).await;
            if !self.serve() {
                break;
            }
        }
        self.over();
    }

    /// Does what is asked for now; false if that was the end.
    fn serve(&self) -> bool {
        let shared = &self.bell.0;
        let round = {
            let mut asked = shared.asked.lock();
            if asked.end {
                return false;
            }
            asked.wake = false;
            asked.round
        };
        // The store's code is not ours: a panic in it ends the acknowledging, not the process.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.rounds()));
        match done.unwrap_or_else(|_| Err(Error::Storage("the state store panicked".into()))) {
            Ok(()) => {
                shared.done.send_replace(round);
                true
            }
            Err(error) => {
                self.stop.because(format!("state store: {error}"));
                false
            }
        }
    }

    fn over(&self) {
        let shared = &self.bell.0;
        shared.done.send_replace(u64::MAX);
        self.overlays.iter().for_each(|overlay| overlay.give_up());
        shared.asked.lock().ended = true;
        shared.ended.notify_all();
    }

    fn rounds(&self) -> Result<(), Error> {
        // What a hold had frozen before may have newer rows behind it.
        let frozen_before = self.overlays.iter().any(|overlay| overlay.is_frozen());
        self.round()?;
        if frozen_before { self.round() } else { Ok(()) }
    }

    fn round(&self) -> Result<(), Error> {
        let work: Vec<_> = self.overlays.iter().filter_map(|o| o.freeze().map(|frozen| (o, frozen))).collect();
        if work.is_empty() {
            return Ok(());
        }
        for (overlay, frozen) in &work {
            write(&*self.store, overlay.shard, frozen, overlay.durable())?;
        }
        self.store.sync()?;
        self.checkpoints.keep(work.iter().map(|(o, frozen)| (o.shard, Some(frozen.mark.clone()))).collect())?;
        work.iter().for_each(|(overlay, _)| overlay.done());
        Ok(())
    }
}

fn write(store: &dyn StateStore, shard: u32, frozen: &Frozen, durable: Option<u64>) -> Result<(), Error> {
    frozen.rows.iter().try_for_each(|(key, slot)| write_row(store, key, slot, durable))?;
    write_stamp(store, shard, &frozen.mark)
}

/// `durable` is the log index of the shard's newest durable checkpoint.
pub fn write_row(store: &dyn StateStore, key: &[u8], slot: &Slot, durable: Option<u64>) -> Result<(), Error> {
    match slot.value() {
        None => store.write(&[Change::Delete(key)]),
        Some(value) if keys::is_head(key) => {
            let old = store.get(key)?.map(|old| head::read(key, &old)).transpose()?;
            let row = head::with_base(head::read(key, value)?, old, durable);
            store.write(&[Change::Put(key, &row.encode_to_vec())])
        }
        Some(value) => store.write(&[Change::Put(key, value)]),
    }
}

/// Says up to where a shard's rows have been written.
pub fn write_stamp(store: &dyn StateStore, shard: u32, mark: &Mark) -> Result<(), Error> {
    let Some(applied) = mark.applied else { return Ok(()) };
    let stamp = StoreStamp { term: applied.leader_id.term, index: applied.index };
    store.write(&[Change::Put(&keys::stamp(shard), &stamp.encode_to_vec())])
}

pub fn read_stamp(store: &dyn StateStore, shard: u32) -> Result<Option<StoreStamp>, Error> {
    let key = keys::stamp(shard);
    let row = store.get(&key)?;
    row.map(|row| {
        StoreStamp::decode(&*row).map_err(|error| super::value::damaged("state store", &key, &error.to_string()))
    })
    .transpose()
}
