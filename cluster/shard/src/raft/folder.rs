//! The data folder: one process at a time, one shape for ever, a format that only grows, and a log that is not forgotten.
//!
//! A folder is made in this order: the stamp, the log, the stamp once more, now saying that the log was begun, then the
//! state store. So a process may die anywhere on the way and the next one goes on; but from the second stamp on, a folder
//! without a log has lost it, and a node that began anew there would have forgotten its votes and everything it promised.

use super::snapshot::sync_dir;
use crate::Error;
use crate::api::{HostOptions, StateBackend};
use granary_proto::storage::FolderStamp;
use prost::Message;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Format of the folder as this build writes it.
const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"GRANFLD1";

/// Holds the lock until it is dropped.
pub struct Folder {
    dir: PathBuf,
    stamp: FolderStamp,
    _lock: File,
}

impl Folder {
    pub fn open(options: &HostOptions) -> Result<Self, Error> {
        let dir = options.data_dir.clone();
        std::fs::create_dir_all(&dir).map_err(|error| io(&dir, error))?;
        let path = dir.join("lock");
        let lock = File::create(&path).map_err(|error| io(&path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::FolderInUse { folder: dir.display().to_string() }),
            Err(TryLockError::Error(error)) => return Err(io(&path, error)),
        }
        let stamp = stamp(&dir, options)?;
        let folder = Self { dir, stamp, _lock: lock };
        if folder.log_begun() && !folder.log().exists() {
            return Err(damaged(&folder.log(), "the folder of the log is missing"));
        }
        Ok(folder)
    }

    /// Whether there was a log in it: the stamp says so, or what is only made after the log. (Stamps written before they
    /// said it are believed by the latter.)
    pub fn log_begun(&self) -> bool {
        self.stamp.log_begun || self.state().exists() || holds_snapshots(&self.snapshots())
    }

    /// To be called when the log is durable and before anything is made from it.
    pub fn say_log_begun(&mut self) -> Result<(), Error> {
        if !self.stamp.log_begun {
            self.stamp.log_begun = true;
            write(&self.dir, &stamp_path(&self.dir), &self.stamp)?;
        }
        Ok(())
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.dir.join("snapshots")
    }
}

/// The stamp that is there, or a first one.
fn stamp(dir: &Path, options: &HostOptions) -> Result<FolderStamp, Error> {
    let path = stamp_path(dir);
    let wanted = FolderStamp {
        format: FORMAT,
        cluster_id: uuid::Uuid::new_v4().to_string(),
        shards: options.shards,
        node_id: options.node_id,
        state_backend: backend(options.state).to_string(),
        log_begun: false,
    };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let found = read(&path, &bytes)?;
            fits(&found, &wanted)?;
            Ok(found)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Without a stamp but with data it is not a new folder.
            if ["log", "state", "snapshots"].iter().any(|name| dir.join(name).exists()) {
                return Err(damaged(&path, "the stamp of the data folder is missing"));
            }
            write(dir, &path, &wanted)?;
            Ok(wanted)
        }
        Err(error) => Err(io(&path, error)),
    }
}

fn stamp_path(dir: &Path) -> PathBuf {
    dir.join("folder")
}

fn holds_snapshots(dir: &Path) -> bool {
    let is_one = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "snap");
    std::fs::read_dir(dir).is_ok_and(|entries| entries.flatten().any(|entry| is_one(&entry)))
}

fn backend(backend: StateBackend) -> &'static str {
    match backend {
        StateBackend::Sled => "sled",
        StateBackend::Fjall => "fjall",
        StateBackend::Memory => "memory",
    }
}

fn fits(found: &FolderStamp, wanted: &FolderStamp) -> Result<(), Error> {
    if found.format > FORMAT {
        return Err(Error::NewerFormat { known: FORMAT, found: found.format });
    }
    let shape =
        |stamp: &FolderStamp| format!("node {} with {} shards in {}", stamp.node_id, stamp.shards, stamp.state_backend);
    if shape(found) != shape(wanted) {
        return Err(Error::WrongFolder { expected: shape(wanted), found: shape(found) });
    }
    Ok(())
}

fn read(path: &Path, bytes: &[u8]) -> Result<FolderStamp, Error> {
    let content = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<4>());
    match content {
        Some((crc, stamp)) if crc32c::crc32c(stamp).to_be_bytes() == *crc => {
            FolderStamp::decode(stamp).map_err(|error| damaged(path, &error.to_string()))
        }
        _ => Err(damaged(path, "the stamp of the data folder does not match its checksum")),
    }
}

fn write(dir: &Path, path: &Path, stamp: &FolderStamp) -> Result<(), Error> {
    let stamp = stamp.encode_to_vec();
    let unfinished = path.with_extension("tmp");
    let mut file = File::create(&unfinished).map_err(|error| io(&unfinished, error))?;
    file.write_all(MAGIC)
        .and_then(|()| file.write_all(&crc32c::crc32c(&stamp).to_be_bytes()))
        .and_then(|()| file.write_all(&stamp))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&unfinished, path))
        .map_err(|error| io(path, error))?;
    sync_dir(dir)
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged { file: path.display().to_string(), offset: 0, what: what.to_string() }
}

fn io(path: &Path, error: std::io::Error) -> Error {
    Error::Storage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> FolderStamp {
        FolderStamp {
            format: FORMAT,
            cluster_id: String::new(),
            shards: 8,
            node_id: 1,
            state_backend: "sled".into(),
            log_begun: true,
        }
    }

    #[test]
    fn another_shape_is_refused_and_says_both() {
        let options = HostOptions::new("unused", 8);
        assert!(fits(&stamp(), &stamp()).is_ok());
        for other in [
            FolderStamp { shards: 16, ..stamp() },
            FolderStamp { node_id: 2, ..stamp() },
            FolderStamp { state_backend: "fjall".into(), ..stamp() },
        ] {
            assert!(matches!(fits(&other, &stamp()), Err(Error::WrongFolder { .. })));
        }
        assert_eq!(options.shards, 8);
    }

    /// [P8]
    #[test]
    fn a_newer_format_is_refused() {
        let newer = FolderStamp { format: FORMAT + 1, ..stamp() };
        assert!(matches!(fits(&newer, &stamp()), Err(Error::NewerFormat { known: FORMAT, found: 2 })));
    }

    /// The process may die after the first stamp, and after the log but before the second stamp.
    #[test]
    fn an_unfinished_new_folder_is_gone_on_with_and_a_lost_log_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let options = HostOptions::new(dir.path(), 8);
        let opened = || Folder::open(&options);
        assert!(!opened().unwrap().log_begun());
        assert!(!opened().unwrap().log_begun(), "died before the log");
        std::fs::create_dir(opened().unwrap().log()).unwrap();
        assert!(!opened().unwrap().log_begun(), "died before the second stamp");
        opened().unwrap().say_log_begun().unwrap();
        assert!(opened().unwrap().log_begun());
        std::fs::remove_dir(dir.path().join("log")).unwrap();
        assert!(matches!(opened(), Err(Error::Damaged { file, .. }) if file.ends_with("log")));
    }
}
