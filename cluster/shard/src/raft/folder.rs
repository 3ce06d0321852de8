//! The data folder: one process at a time, one shape for ever, a format that only grows, and a log that is not forgotten.
//!
//! A folder is made in this order: the stamp, the log, the stamp once more, now saying that the log was begun, then the
//! state store. So a process may die anywhere on the way and the next one goes on; but from the second stamp on, a folder
//! without a log has lost it, and a node that began anew there would have forgotten its votes and everything it promised.
//!
//! The stamp also says who the node is (a number drawn when the folder was made), which cluster it belongs to, and which
//! shards it hosts.

use super::snapshot::sync_dir;
use crate::Error;
use crate::api::{HostOptions, StateBackend};
use crate::link::NodeId;
use granary_proto::storage::FolderStamp;
use prost::Message;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use uuid::Uuid;

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
        if self.stamp.log_begun {
            return Ok(());
        }
        self.restamp(FolderStamp { log_begun: true, ..self.stamp.clone() })
    }

    pub fn node_id(&self) -> NodeId {
        self.stamp.node_id
    }

    pub fn cluster_id(&self) -> Option<Uuid> {
        // Checked when it was read.
        Uuid::parse_str(&self.stamp.cluster_id).ok()
    }

    /// Durable on return.
    pub fn adopt(&mut self, cluster: Uuid) -> Result<(), Error> {
        match self.cluster_id() {
            Some(known) if known == cluster => Ok(()),
            Some(known) => Err(Error::WrongFolder {
                expected: format!("a node of cluster {cluster}"),
                found: format!("one of cluster {known}"),
            }),
            None => self.restamp(FolderStamp { cluster_id: cluster.to_string(), ..self.stamp.clone() }),
        }
    }

    pub fn replicas(&self) -> BTreeSet<u32> {
        if self.stamp.member { self.stamp.replicas.iter().copied().collect() } else { (0..self.stamp.shards).collect() }
    }

    /// Durable on return. For a node that is alone there is nothing to say: it hosts everything.
    pub fn host(&mut self, shard: u32, hosted: bool) -> Result<(), Error> {
        let mut replicas = self.replicas();
        let changed = if hosted { replicas.insert(shard) } else { replicas.remove(&shard) };
        if !changed || !self.stamp.member {
            return Ok(());
        }
        self.restamp(FolderStamp { replicas: replicas.into_iter().collect(), ..self.stamp.clone() })
    }

    fn restamp(&mut self, stamp: FolderStamp) -> Result<(), Error> {
        write(&self.dir, &stamp_path(&self.dir), &stamp)?;
        self.stamp = stamp;
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
        cluster_id: if options.alone { Uuid::new_v4().to_string() } else { String::new() },
        shards: options.shards,
        node_id: options.node_id.unwrap_or_else(draw),
        state_backend: backend(options.state).to_string(),
        log_begun: false,
        member: !options.alone,
        replicas: Vec::new(),
    };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let found = read(&path, &bytes)?;
            fits(&found, &wanted, options.node_id.is_some())?;
            if !found.cluster_id.is_empty() && Uuid::parse_str(&found.cluster_id).is_err() {
                return Err(damaged(&path, "the cluster in the stamp of the data folder has no readable id"));
            }
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

/// A node number that no other folder has. Never 0, which messages use for "none".
fn draw() -> NodeId {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    // Six bits of a UUID are fixed; the halves together leave none fixed but by chance.
    (high.rotate_left(32) ^ low).max(1)
}

/// The node's number matters only if the caller insists on one.
fn fits(found: &FolderStamp, wanted: &FolderStamp, same_node: bool) -> Result<(), Error> {
    if found.format > FORMAT {
        return Err(Error::NewerFormat { known: FORMAT, found: found.format });
    }
    let shape = |stamp: &FolderStamp| {
        let kind = if stamp.member { "a node of a cluster" } else { "a node that is alone" };
        let number = if same_node { format!(", number {}", stamp.node_id) } else { String::new() };
        format!("{kind}{number}, with {} shards in {}", stamp.shards, stamp.state_backend)
    };
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
            member: false,
            replicas: Vec::new(),
        }
    }

    #[test]
    fn another_shape_is_refused_and_says_both() {
        let options = HostOptions::new("unused", 8);
        assert!(fits(&stamp(), &stamp(), true).is_ok());
        let other_node = FolderStamp { node_id: 2, ..stamp() };
        assert!(fits(&other_node, &stamp(), false).is_ok(), "nobody insists on a number");
        for other in [
            FolderStamp { shards: 16, ..stamp() },
            other_node,
            FolderStamp { state_backend: "fjall".into(), ..stamp() },
            FolderStamp { member: true, ..stamp() },
        ] {
            assert!(matches!(fits(&other, &stamp(), true), Err(Error::WrongFolder { .. })));
        }
        assert_eq!(options.shards, 8);
    }

    /// [P8]
    #[test]
    fn a_newer_format_is_refused() {
        let newer = FolderStamp { format: FORMAT + 1, ..stamp() };
        assert!(matches!(fits(&newer, &stamp(), false), Err(Error::NewerFormat { known: FORMAT, found: 2 })));
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

    /// [K8] Who a node is and what it hosts outlives the process; a folder that was lost is somebody else.
    #[test]
    fn number_cluster_and_replicas_are_kept_and_another_cluster_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = HostOptions { alone: false, ..HostOptions::new(dir.path(), 8) };
        let mut folder = Folder::open(&options).unwrap();
        let (node, cluster) = (folder.node_id(), Uuid::new_v4());
        assert_eq!((folder.cluster_id(), folder.replicas()), (None, BTreeSet::new()));
        folder.adopt(cluster).unwrap();
        folder.host(3, true).unwrap();
        folder.host(5, true).unwrap();
        folder.host(3, false).unwrap();
        drop(folder);
        let mut folder = Folder::open(&options).unwrap();
        assert_eq!((folder.node_id(), folder.cluster_id()), (node, Some(cluster)));
        assert_eq!(folder.replicas(), BTreeSet::from([5]));
        folder.adopt(cluster).unwrap();
        assert!(matches!(folder.adopt(Uuid::new_v4()), Err(Error::WrongFolder { .. })));
        let other = tempfile::tempdir().unwrap();
        let other = Folder::open(&HostOptions { alone: false, ..HostOptions::new(other.path(), 8) }).unwrap();
        assert_ne!(other.node_id(), node);
    }

    #[test]
    fn a_node_that_is_alone_hosts_everything_and_has_a_cluster_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&HostOptions::new(dir.path(), 3)).unwrap();
        assert_eq!(folder.replicas(), BTreeSet::from([0, 1, 2]));
        assert!(folder.cluster_id().is_some());
        drop(folder);
        let member = HostOptions { alone: false, ..HostOptions::new(dir.path(), 3) };
        assert!(matches!(Folder::open(&member), Err(Error::WrongFolder { .. })));
    }
}
