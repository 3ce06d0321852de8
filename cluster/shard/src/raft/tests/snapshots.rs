//! Snapshot files are the truth behind the log, and the log goes behind them.

use super::picture::{picture, work};
use super::*;
use crate::raft::snapshot::{SnapshotFolder, verify};
use openraft::async_runtime::WatchReceiver;

/// Snapshots after every few turns.
fn eager(dir: &Path, state: StateBackend) -> HostOptions {
    HostOptions { snapshot_log_bytes: 4 << 10, ..options(dir, state) }
}

pub async fn open_eager(dir: &Path, state: StateBackend) -> (Host, Owner) {
    let host = Host::open(eager(dir, state)).await.unwrap();
    let owner = Owner::of(&host, 0).await;
    (host, owner)
}

/// Works until the log of the shard was let go up to somewhere behind `index`. A snapshot is due when the log since the
/// last one is larger than that, so it takes more and more.
pub async fn work_until_purged(owner: &Owner, seed: u64, index: Option<u64>) -> Option<u64> {
    let metrics = owner.shard.inner.replica().unwrap().raft.metrics();
    for part in 0..500 {
        work(owner, 1_000 * seed + part, 10).await;
        let purged = metrics.borrow_watched().purged.map(|id| id.index);
        if purged > index {
            return purged;
        }
    }
    panic!("the log is not let go");
}

/// [K3] Snapshots are taken while turns go on; each is a state at one log position, since snapshot and log make the same
/// state again, fenced entries and outbox numbers included.
#[tokio::test]
async fn snapshot_and_log_make_the_state_again() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let mut purged = None;
        for round in 0..3 {
            let (host, owner) = open_eager(dir.path(), state).await;
            for part in 0..2 {
                purged = work_until_purged(&owner, 10 * round + part, purged).await;
            }
            work(&owner, 1_000 + round, 7).await;
            let before = picture(&owner.shard).unwrap();
            host.inner.crash().await;
            if state != StateBackend::Memory {
                std::fs::remove_dir_all(dir.path().join("state")).unwrap();
            }
            let (host, owner) = open_eager(dir.path(), state).await;
            assert_eq!(picture(&owner.shard).unwrap(), before, "{state:?} {round}");
            host.close().await.unwrap();
        }
        let file = SnapshotFolder::new(&dir.path().join("snapshots"), 0).path();
        verify(&file, 0).unwrap();
        assert!(verify(&file, 1).is_err(), "another shard's");
    }
}

/// [FR-083] What a crash left of an unfinished snapshot is removed; the finished one before it counts.
#[tokio::test]
async fn an_unfinished_snapshot_file_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open_eager(dir.path(), StateBackend::Memory).await;
    work_until_purged(&owner, 1, None).await;
    let before = picture(&owner.shard).unwrap();
    host.inner.crash().await;
    let snapshots = dir.path().join("snapshots");
    let whole = std::fs::read(snapshots.join("shard-0.snap")).unwrap();
    for (name, bytes) in [("shard-0.tmp", &whole[..whole.len() / 2]), ("shard-1.tmp", &[][..])] {
        std::fs::write(snapshots.join(name), bytes).unwrap();
    }
    // Not the eager options: this host must not be building a snapshot of its own, under the same name, while we look.
    let (host, owner) = open(dir.path(), StateBackend::Memory).await;
    assert_eq!(picture(&owner.shard).unwrap(), before);
    let unfinished = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "tmp");
    assert!(!std::fs::read_dir(&snapshots).unwrap().any(|entry| unfinished(&entry.unwrap())));
    host.close().await.unwrap();
}

/// Any one byte, any length: the file is refused with its role and the place, or is whole.
#[tokio::test]
async fn a_changed_snapshot_file_is_noticed_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open_eager(dir.path(), StateBackend::Memory).await;
    // The same grain over and over: much log, little state.
    for revision in 0..100 {
        owner.commit("g", revision, puts([row(1, "a", [7; 40])])).await.unwrap();
    }
    let purged = owner.shard.inner.replica().unwrap().raft.wait(Some(Duration::from_secs(30)));
    purged.metrics(|m| m.purged.is_some(), "purged").await.unwrap();
    host.close().await.unwrap();
    let whole = std::fs::read(dir.path().join("snapshots/shard-0.snap")).unwrap();
    let other = dir.path().join("other.snap");
    let check = |bytes: &[u8]| {
        std::fs::write(&other, bytes).unwrap();
        verify(&other, 0)
    };
    check(&whole).unwrap();
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        let error = check(&bad).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file.starts_with("snapshot file")), "{at}: {error}");
        assert!(check(&whole[..at]).is_err(), "{at}");
    }
    assert!(check(&[&whole[..], &[0]].concat()).is_err());
}
