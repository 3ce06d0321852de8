//! The log as its node holds it.

use super::LogId;
use super::bounds::PINNED_SEGMENTS_MAX;
use super::committer::Committer;
use super::disk::{Disk, Folder};
use super::failure::Failure;
use super::inline::Inline;
use super::open::{Opened, open};
use super::queue::{Change, Done, Request};
use super::record::{self, Kind};
use super::shared::Shared;
use super::storage::GroupLog;
use super::supply::Supply;
use crate::Error;
use crate::testing::Stage;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Size of one segment file, brought between 8 KiB and 1 GiB.
    pub segment_bytes: u64,
    /// Bytes of entries of all groups that are kept in memory. Entries not yet on disk are kept beyond it.
    pub cache_bytes: u64,
    /// Groups are numbered from 0 to `groups - 1`.
    pub groups: u32,
    /// A log was written here before: a folder in which nothing is written has lost it and is refused.
    pub begun: bool,
}

/// How far a group's written-behind state is on disk: openraft replays from behind it after an unclean stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub last_applied: Option<LogId>,
    /// The stored membership, as JSON, at that entry.
    pub membership_json: Vec<u8>,
    /// Whatever else the state machine needs at that point (counters); not looked into here.
    pub extra: Vec<u8>,
}

/// Counted since the open, or as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub syncs: u64,
    /// Requests that those syncs served.
    pub requests: u64,
    pub bytes: u64,
    pub segments: u64,
    pub cached_bytes: u64,
}

#[derive(Default)]
struct Threads {
    committer: Option<JoinHandle<()>>,
    helper: Option<JoinHandle<()>>,
}

/// The shared log of a node.
pub struct Wal {
    shared: Arc<Shared>,
    supply: Arc<Supply>,
    unclean: bool,
    threads: Mutex<Threads>,
    /// In the place of both threads, on a stage.
    inline: Option<Arc<Inline>>,
}

impl Wal {
    /// Opens or makes the log in `dir`, which must be locked by the caller. Blocks while it reads everything.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`], [`Error::WrongFolder`] (a group beyond `groups`), [`Error::Storage`].
    pub fn open(dir: &Path, options: WalOptions) -> Result<Arc<Self>, Error> {
        let folder =
            Folder::new(dir.to_owned()).map_err(|error| Error::Storage(format!("{}: {error}", dir.display())))?;
        Self::open_on(Arc::new(folder), options)
    }

    pub(super) fn open_on(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Arc<Self>, Error> {
        Self::open_with(disk, options, Stage::default())
    }

    /// As [`Wal::open`], as the stage wants it.
    pub fn open_staged(dir: &Path, options: WalOptions, stage: &Stage) -> Result<Arc<Self>, Error> {
        match stage.scene() {
            Some(scene) => {
                // The folder is looked for at the next open; what would be in it is elsewhere.
                std::fs::create_dir_all(dir).map_err(|error| Error::Storage(format!("{}: {error}", dir.display())))?;
                Self::open_with(scene.log.clone(), options, stage.clone())
            }
            None => Self::open(dir, options),
        }
    }

    fn open_with(disk: Arc<dyn Disk>, options: WalOptions, stage: Stage) -> Result<Arc<Self>, Error> {
        let Opened { shared, supply, committer, unclean } = open(disk, options, stage)?;
        let wal = match shared.stage.scene().cloned() {
            Some(scene) => {
                let inline = Some(Inline::start(committer, scene));
                Arc::new(Self { shared, supply, unclean, threads: Mutex::default(), inline })
            }
            None => {
                let wal = Arc::new(Self { shared, supply, unclean, threads: Mutex::default(), inline: None });
                wal.start(committer).map_err(|error| Error::Storage(error.to_string()))?;
                wal
            }
        };
        // From here on a stop without `close` is seen as one, also if nothing else is written.
        let (told, opened) = mark(Kind::Opened);
        wal.push(opened);
        wal.wait(&told)?;
        Ok(wal)
    }

    fn start(&self, committer: Committer) -> io::Result<()> {
        let (supply, shared) = (self.supply.clone(), self.shared.clone());
        let helper = std::thread::Builder::new().name("log-supply".to_owned()).spawn(move || {
            // The committer must not wait for a helper that is gone.
            if catch_unwind(AssertUnwindSafe(|| supply.run())).is_err() {
                supply.close();
            }
        })?;
        self.threads.lock().helper = Some(helper);
        let writer = std::thread::Builder::new().name("log-commit".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| committer.run())).is_err() {
                // What was taken out of the queue is dropped unanswered, which its askers see; the rest is told.
                shared.stop(Failure::from(&io::Error::other("the log's committer panicked")));
                shared.queue.close();
                while let Some(batch) = shared.queue.next() {
                    batch.requests.into_iter().for_each(|request| request.done.tell(Err(&Failure::closed())));
                }
            }
        })?;
        self.threads.lock().committer = Some(writer);
        Ok(())
    }

    /// The log of one group, for openraft.
    ///
    /// # Panics
    /// If `id` is not below `options.groups`: the caller's own shard count made it.
    pub fn group(&self, id: u32) -> GroupLog {
        let groups = self.shared.options.groups;
        assert!(id < groups, "Expected a group below {groups}, but found {id}");
        GroupLog { group: id, shared: self.shared.clone() }
    }

    /// Keeps a checkpoint. Durable with the next batch, at the latest after half a second; a later one replaces it.
    pub fn checkpoint(&self, group: u32, checkpoint: Checkpoint) {
        {
            let mut group = self.shared.groups[group as usize].lock();
            group.checkpoint = Some(checkpoint);
            group.checkpoint_waits = true;
        }
        self.shared.queue.lazy(group);
    }

    /// Keeps checkpoints of several groups and returns when they are durable. Blocks for one sync.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log has stopped or is closed.
    pub fn keep_checkpoints(&self, checkpoints: Vec<(u32, Checkpoint)>) -> Result<(), Error> {
        for (group, checkpoint) in checkpoints {
            self.checkpoint(group, checkpoint);
        }
        // A batch takes all that is lazy with it. A further mark of a process that has begun means nothing new.
        let (told, mark) = mark(Kind::Opened);
        self.push(mark);
        self.wait(&told)
    }

    /// Log bytes of the entries behind `index` (of all entries if `None`).
    pub fn bytes_since(&self, group: u32, index: Option<u64>) -> u64 {
        self.shared.groups[group as usize].lock().index.bytes_behind(index)
    }

    /// The last entry of the group that has more than so many log bytes behind it; 0 if there is none.
    pub fn index_with_behind(&self, group: u32, bytes: u64) -> u64 {
        self.shared.groups[group as usize].lock().index.with_behind(bytes)
    }

    /// The group that holds the oldest segment while more than `PINNED_SEGMENTS_MAX` are alive: snapshot it and
    /// purge its log.
    pub fn pinning_group(&self) -> Option<u32> {
        if self.shared.alive.count() <= PINNED_SEGMENTS_MAX {
            return None;
        }
        let oldest = self.shared.alive.oldest()?;
        (0u32..)
            .zip(&self.shared.groups)
            .find(|(_, group)| group.lock().index.first_segment() == Some(oldest))
            .map(|(id, _)| id)
    }

    /// Writes what waits and the marker of a clean end, and stops the threads. Blocks for some milliseconds. Idempotent.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log has stopped before: its end is not clean then.
    pub fn close(&self) -> Result<(), Error> {
        let (told, closed) = mark(Kind::Closed);
        let result = match self.shared.queue.push_last(closed) {
            None => self.wait(&told),
            Some(_) => Ok(()),
        };
        self.end();
        result
    }

    /// Stops the threads without the marker of a clean end: the next open sees an unclean one. Idempotent.
    pub fn abandon(&self) {
        self.end();
    }

    /// `Some(why)` after a failed write or sync: nothing is acknowledged any more.
    pub fn stopped(&self) -> Option<String> {
        self.shared.failure().map(|failure| failure.why)
    }

    /// Whether the last process ended without [`Wal::close`]. A new folder is clean.
    pub fn unclean(&self) -> bool {
        self.unclean
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.shared.stats;
        Stats {
            syncs: counters.syncs.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            bytes: counters.bytes.load(Relaxed),
            segments: self.shared.alive.count() as u64,
            cached_bytes: self.shared.groups.iter().map(|group| group.lock().cache.bytes() as u64).sum(),
        }
    }

    fn push(&self, request: Request) {
        if let Some(request) = self.shared.queue.push(request) {
            request.done.tell(Err(&Failure::closed()));
        }
    }

    fn wait(&self, told: &std::sync::mpsc::Receiver<io::Result<()>>) -> Result<(), Error> {
        if let Some(inline) = &self.inline {
            inline.settle();
        }
        told.recv()
            .unwrap_or_else(|_| Err(io::Error::other("the log's committer has ended")))
            .map_err(|error| Error::Storage(error.to_string()))
    }

    fn end(&self) {
        self.shared.queue.close();
        if self.stopped().is_some() {
            // Nothing will be written any more, so the committer needs no segment to be filled for it.
            self.supply.close();
        }
        let mut threads = self.threads.lock();
        // Both catch their own panics. The committer may wait for the helper, so the helper goes last.
        if let Some(committer) = threads.committer.take() {
            let _ = committer.join();
        }
        self.supply.close();
        if let Some(helper) = threads.helper.take() {
            let _ = helper.join();
        }
    }
}

impl Drop for Wal {
    /// Without the marker of a clean end: a log that is only dropped ended uncleanly.
    fn drop(&mut self) {
        self.end();
    }
}

fn mark(kind: Kind) -> (std::sync::mpsc::Receiver<io::Result<()>>, Request) {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let mut bytes = Vec::new();
    record::push(&mut bytes, kind, 0, record::NOWHERE, &[]);
    (receiver, Request { group: 0, bytes, change: Change::Mark, done: Done::Thread(sender) })
}
