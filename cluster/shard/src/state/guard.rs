//! Opening a store that may have been torn: whatever goes wrong, the answer is an empty store, because snapshot files and
//! log can fill it again.
//!
//! sled may panic at open or at a read after a crash, so both run under `catch_unwind` in a thread of their own. A store
//! that aborts the process, or never returns, would need a child process instead; neither was ever seen.

use super::fjall::FjallStore;
use super::memory::MemoryStore;
use super::sled::SledStore;
use super::store::StateStore;
use crate::Error;
use crate::api::StateBackend;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Stores set aside that are kept for a look; older ones are removed.
const SET_ASIDE_MAX: usize = 2;

pub struct Opened {
    pub store: Arc<dyn StateStore>,
    /// Why the store that was there could not be used, if so; the one given is empty.
    pub set_aside: Option<String>,
}

/// Opens the store in `dir`. After an unclean stop (`doubtful`) every row is read and checked.
pub fn open(dir: &Path, backend: StateBackend, cache_bytes: u64, doubtful: bool) -> Result<Opened, Error> {
    match attempt(dir, backend, cache_bytes, doubtful) {
        Ok(store) => Ok(Opened { store, set_aside: None }),
        Err(error) => {
            let why = error.to_string();
            set_aside(dir)?;
            tracing::warn!(%why, "state store set aside; it is made again from snapshots and log");
            Ok(Opened { store: attempt(dir, backend, cache_bytes, false)?, set_aside: Some(why) })
        }
    }
}

fn attempt(dir: &Path, backend: StateBackend, cache_bytes: u64, doubtful: bool) -> Result<Arc<dyn StateStore>, Error> {
    let dir = dir.to_path_buf();
    let work = move || -> Result<Arc<dyn StateStore>, Error> {
        let store: Arc<dyn StateStore> = match backend {
            StateBackend::Sled => Arc::new(SledStore::open(&dir, cache_bytes)?),
            StateBackend::Fjall => Arc::new(FjallStore::open(&dir, cache_bytes)?),
            StateBackend::Memory => Arc::new(MemoryStore::default()),
        };
        if doubtful {
            store.verify()?;
        }
        Ok(store)
    };
    let thread = std::thread::Builder::new().name("state-open".into()).spawn(work);
    let thread = thread.map_err(|error| Error::Storage(error.to_string()))?;
    // A join gives the panic as an error: the same as `catch_unwind`.
    thread.join().unwrap_or_else(|_| Err(Error::Storage("the state store panicked at open".into())))
}

/// Renames the store's folder out of the way.
fn set_aside(dir: &Path) -> Result<(), Error> {
    let io = |error: std::io::Error| Error::Storage(format!("setting the state store aside: {error}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let stem = dir.file_name().and_then(|name| name.to_str()).unwrap_or("state").to_string();
    if dir.exists() {
        std::fs::rename(dir, dir.with_file_name(format!("{stem}.bad-{now:015}"))).map_err(io)?;
    }
    let mut bad: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir.parent().unwrap_or(Path::new("."))).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(&format!("{stem}.bad-"))) {
            bad.push(path);
        }
    }
    bad.sort();
    for old in bad.iter().rev().skip(SET_ASIDE_MAX) {
        std::fs::remove_dir_all(old).map_err(io)?;
    }
    Ok(())
}
