//! From a data folder to what its shards start from.
//!
//! Order of opening: the folder's lock and stamp, the log (which verifies itself), the state store (verified if the last
//! process did not end in order, set aside if it is no good), then for each shard what its rows are worth; a shard whose
//! rows are worth nothing gets its checkpoint taken back before anything is written, and openraft fills it from snapshot
//! and log. The log and the votes were never in the store, so a rebuilt shard is still the same voter. A shard of which
//! neither gives the whole is set aside, and the others never notice.

use super::checkpoint::{Worth, worth};
use super::folder::Folder;
use super::machine::Counters;
use super::snapshot::{SnapshotFolder, verify};
use super::{blocking, storage};
use crate::Error;
use crate::api::*;
use crate::log::{Wal, WalOptions};
use crate::state::closable::Closable;
use crate::state::overlay::Mark;
use crate::state::store::wipe_shard;
use crate::state::writer::{Checkpoints, read_stamp};
use crate::state::{Stop, guard};
use openraft::storage::RaftLogStorage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of log entries that are kept in memory, all shards together. Apply reads what was just appended, so the newest few
/// are enough; what a slow reader wants beyond that comes from the file.
const LOG_CACHE_BYTES: u64 = 8 << 20;

/// What opening found, before any Raft runs.
pub struct Ground {
    pub folder: Folder,
    pub wal: Arc<Wal>,
    pub store: Arc<Closable>,
    pub counters: Arc<Counters>,
    /// The whole store was no good.
    pub set_aside: bool,
}

impl Ground {
    pub fn open(options: &HostOptions, stop: Stop) -> Result<Self, Error> {
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
pub struct Starts {
    pub marks: Vec<Mark>,
    /// Shards of which neither rows nor log nor snapshot give the whole, and why.
    pub aside: BTreeMap<u32, String>,
}

/// What is left of a replica that is not hosted any more is removed.
pub async fn starts(
    options: &HostOptions,
    folder: &Folder,
    wal: &Arc<Wal>,
    store: &Arc<Closable>,
    checkpoints: &Arc<dyn Checkpoints>,
    counters: &Counters,
    set_aside: bool,
) -> Result<Starts, Error> {
    let clean = !wal.unclean();
    let hosted = folder.replicas();
    let (mut marks, mut empty, mut aside) = (Vec::new(), Vec::new(), BTreeMap::new());
    for shard in 0..options.shards {
        let mut log = wal.group(shard);
        if !hosted.contains(&shard) {
            log.forget().await.map_err(storage)?;
            SnapshotFolder::new(&folder.snapshots(), shard).remove()?;
            empty.push(shard);
            marks.push(Mark::origin());
            continue;
        }
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
                    // The log alone does not reach back: without a whole snapshot file this replica is at its end. Its vote
                    // and its log stay as they are, since its group still counts on what it promised.
                    let snapshots = folder.snapshots();
                    let whole =
                        blocking(&options.stage, move || verify(&SnapshotFolder::new(&snapshots, shard).path(), shard));
                    match whole.await {
                        Ok(()) => {}
                        // Another build can read it.
                        Err(error @ Error::NewerFormat { .. }) => return Err(error),
                        Err(error) => drop(aside.insert(shard, error.to_string())),
                    }
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
    Ok(Starts { marks, aside })
}
