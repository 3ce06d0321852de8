//! A full disk: the node stops acknowledging, says why, and has lost nothing.

use super::*;
use std::process::Command;

struct Mount(std::path::PathBuf);

impl Mount {
    /// A file system of `megabytes`; `None`, with the reason printed, where that is not allowed.
    fn new(at: &Path, megabytes: u32) -> Option<Self> {
        let size = format!("size={megabytes}m");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        match done {
            Ok(done) if done.status.success() => Some(Self(at.to_path_buf())),
            other => {
                println!("skipped: a small file system cannot be mounted here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).output().ok();
    }
}

/// [K3] Nothing is acknowledged that is not on disk, and what was is there when there is room again.
#[tokio::test]
async fn a_full_disk_loses_nothing_acknowledged() {
    for state in [StateBackend::Sled, StateBackend::Fjall] {
        let dir = tempfile::tempdir().unwrap();
        // The start afterwards needs much room at once: rows are replayed into the store, and a whole snapshot is written
        // beside the one that is there.
        let Some(mount) = Mount::new(dir.path(), 256) else { return };
        std::fs::write(dir.path().join("ballast"), vec![0; 168 << 20]).unwrap();
        let data = dir.path().join("data");
        let (host, owner) = open(&data, state).await;
        let mut acknowledged = 0u64;
        let refusal = loop {
            let value = vec![acknowledged as u8; 200_000];
            let turn = Turn { outbox: vec![event([])], ..puts([row(1, &acknowledged.to_string(), value)]) };
            match owner.commit("k", acknowledged, turn).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 10_000, "the disk never filled");
        };
        assert!(matches!(refusal, Error::Unknown(_) | Error::Storage(_)), "{refusal}");
        let again = owner.commit("k", acknowledged, Turn::default()).await;
        assert!(matches!(again, Err(Error::Storage(_) | Error::NotLeader { .. })), "{again:?}");
        assert!(host.stopped().is_some());
        let closed = tokio::time::timeout(Duration::from_secs(10), host.close()).await.expect("the close is bounded");
        assert!(matches!(closed, Err(Error::Storage(_))), "it says why it was not in order: {closed:?}");
        drop((host, owner));

        std::fs::remove_file(dir.path().join("ballast")).unwrap();
        let (host, owner) = open(&data, state).await;
        let found = owner.shard.grain(&grain("k")).unwrap();
        // The one whose outcome was not known may be there.
        let revision = found.revision.0;
        assert!(revision == acknowledged || revision == acknowledged + 1, "{revision} {acknowledged}");
        assert_eq!(found.rows.len() as u64, revision);
        for found in &found.rows {
            let n: u64 = std::str::from_utf8(&found.key.key).unwrap().parse().unwrap();
            assert_eq!(*found, row(1, &n.to_string(), vec![n as u8; 200_000]));
        }
        assert_eq!(owner.shard.outbox_bounds().0, revision + 1);
        owner.commit("k", revision, puts([row(1, "again", "1")])).await.unwrap();
        host.close().await.unwrap();
        drop((host, owner));
        drop(mount);
    }
}
