//! What a simulator puts in the place of disks and threads, and what it is shown. Not part of this crate's face: no promise
//! is made about anything here, and a host without a [`Stage`] never comes here.
//!
//! A staged host has no thread of its own and calls none that outlives a poll: the log's committer and the state's writer are
//! tasks, and what blocks is done on the spot. So a whole cluster can live in one thread, and chance and time are the
//! simulator's alone.

mod digest;
mod double;
mod net;

pub use crate::log::disk::{Disk, DiskFile};
pub use digest::{Digest, digest};
pub use double::Double;
pub use net::Net;

use crate::state::turn::Fenced;
use granary_proto::storage::TurnEntry;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How a host does what takes a disk or a thread: by default with files and threads.
#[derive(Clone, Default)]
pub struct Stage(Option<Arc<Scene>>);

pub struct Scene {
    /// In the place of the folder `log`.
    pub log: Arc<dyn Disk>,
    /// How long the next sync of the log takes.
    pub sync_takes: Box<dyn Fn() -> Duration + Send + Sync>,
    pub witness: Arc<dyn Witness>,
    pub sabotage: Option<Sabotage>,
}

/// Deliberate bugs: a simulator that does not find them is worth nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A turn that was decided under an earlier leadership is applied.
    EpochUnchecked,
    /// A turn that was decided on an older revision is applied.
    RevisionUnchecked,
    /// A vote is given before it is on disk.
    VoteUnsynced,
}

/// An entry of a turn as one replica applied it.
pub struct Seen<'a> {
    pub shard: u32,
    pub term: u64,
    pub index: u64,
    pub entry: &'a TurnEntry,
    /// `None` if it was fenced.
    pub revision: Option<u64>,
}

/// Is told what replicas do, at the moment they do it.
pub trait Witness: Send + Sync {
    fn applied(&self, seen: Seen<'_>);
    /// This node has promised its vote of the term.
    fn voted(&self, shard: u32, term: u64, candidate: u64);
}

impl Stage {
    pub fn new(scene: Scene) -> Self {
        Self(Some(Arc::new(scene)))
    }

    pub(crate) fn scene(&self) -> Option<&Arc<Scene>> {
        self.0.as_ref()
    }

    pub(crate) fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.0.as_ref().is_some_and(|scene| scene.sabotage == Some(by))
    }

    /// Whether this reason to refuse a turn is one that the sabotage does not see.
    pub(crate) fn overlooks(&self, fenced: &Fenced) -> bool {
        let overlooked = match self.0.as_ref().and_then(|scene| scene.sabotage) {
            Some(Sabotage::EpochUnchecked) => "epoch",
            Some(Sabotage::RevisionUnchecked) => "revision",
            _ => return false,
        };
        fenced.expected.starts_with(overlooked)
    }

    pub(crate) fn witness(&self) -> Option<&dyn Witness> {
        self.0.as_ref().map(|scene| &*scene.witness)
    }

    /// Does work that blocks: on a thread for such work, or on the spot.
    pub(crate) async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        match &self.0 {
            None => tokio::task::spawn_blocking(work).await.map_err(io::Error::other),
            Some(_) => Ok(work()),
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stage(simulated)" } else { "Stage(real)" })
    }
}
