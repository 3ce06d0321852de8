//! What was acknowledged is there after a restart, however the process ended.

use super::picture::{picture, work};
use super::*;

/// [K3]
#[tokio::test]
async fn a_clean_close_and_reopen_changes_nothing() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let (host, owner) = open(dir.path(), state).await;
            let epoch = owner.epoch;
            work(&owner, round, 60).await;
            let before = picture(&owner.shard).unwrap();
            host.close().await.unwrap();
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(picture(&owner.shard).unwrap(), before, "{state:?}");
            assert_eq!(host.rebuilds(), 0, "{state:?}");
            assert!(owner.epoch > epoch);
            host.close().await.unwrap();
        }
    }
}

/// [K3] The store may be ahead of the checkpoint from which the log is replayed, anywhere; each entry is decided again as it
/// was, fenced ones among them, and outbox numbers come out the same.
#[tokio::test]
async fn replay_over_a_store_that_is_ahead_is_exact() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..8 {
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(host.rebuilds(), 0, "{state:?} {round}");
            work(&owner, 100 + round, 30 + 11 * round).await;
            let before = picture(&owner.shard).unwrap();
            host.inner.crash().await;
            let (host, owner) = open(dir.path(), state).await;
            assert_eq!(picture(&owner.shard).unwrap(), before, "{state:?} {round}");
            // And once more, with a checkpoint inside what was replayed.
            host.inner.crash().await;
        }
    }
}

#[tokio::test]
async fn two_hosts_on_one_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = open(dir.path(), StateBackend::Sled).await;
    let second = Host::open(options(dir.path(), StateBackend::Sled)).await;
    assert!(matches!(second, Err(Error::FolderInUse { .. })));
    host.close().await.unwrap();
    let (host, _) = open(dir.path(), StateBackend::Sled).await;
    host.close().await.unwrap();
}

#[tokio::test]
async fn a_folder_of_another_shape_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = open(dir.path(), StateBackend::Memory).await;
    host.close().await.unwrap();
    let other = HostOptions { shards: 3, ..options(dir.path(), StateBackend::Memory) };
    assert!(matches!(Host::open(other).await, Err(Error::WrongFolder { .. })));
    let other = options(dir.path(), StateBackend::Fjall);
    assert!(matches!(Host::open(other).await, Err(Error::WrongFolder { .. })));
}

/// [FR-083] A node that began anew beside its own state would have forgotten its votes and what it acknowledged, and would
/// empty the state after it.
#[tokio::test]
async fn a_folder_that_lost_its_log_is_refused_and_left_as_it_is() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let (host, owner) = open(dir.path(), state).await;
        work(&owner, 1, 20).await;
        let before = picture(&owner.shard).unwrap();
        host.close().await.unwrap();
        drop((host, owner));
        let (log, kept) = (dir.path().join("log"), dir.path().join("kept"));
        std::fs::rename(&log, &kept).unwrap();
        for made in ["no folder", "an empty folder", "only segments that hold nothing"] {
            match made {
                "an empty folder" => std::fs::create_dir_all(&log).unwrap(),
                "only segments that hold nothing" => {
                    let mut all: Vec<_> = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap()).collect();
                    all.sort_by_key(|entry| entry.file_name());
                    let last = all.last().unwrap();
                    std::fs::copy(last.path(), log.join(last.file_name())).unwrap();
                }
                _ => {}
            }
            let Err(error) = Host::open(options(dir.path(), state)).await.map(|_| ()) else {
                panic!("{state:?}: {made} was taken for a log");
            };
            assert!(matches!(&error, Error::Damaged { file, .. } if file.contains("log")), "{made}: {error}");
            assert!(error.to_string().contains("missing"), "{made}: {error}");
        }
        std::fs::remove_dir_all(&log).unwrap();
        std::fs::rename(&kept, &log).unwrap();
        let (host, owner) = open(dir.path(), state).await;
        assert_eq!(picture(&owner.shard).unwrap(), before, "{state:?}");
        assert_eq!(host.rebuilds(), 0, "{state:?}");
        host.close().await.unwrap();
    }
}

/// [FR-083] A stopped node takes no last checkpoint; the next one recovers as after a kill.
#[tokio::test]
async fn a_stopped_node_closes_at_once_says_why_and_loses_nothing() {
    for state in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let (host, owner) = open(dir.path(), state).await;
        work(&owner, 1, 40).await;
        let before = picture(&owner.shard).unwrap();
        owner.shard.inner.stop.because("the disk is full");
        let closed = tokio::time::timeout(Duration::from_secs(8), host.close()).await.expect("the close is bounded");
        assert!(matches!(&closed, Err(Error::Storage(why)) if why == "the disk is full"), "{state:?}: {closed:?}");
        drop((host, owner));
        let (host, owner) = open(dir.path(), state).await;
        assert_eq!(picture(&owner.shard).unwrap(), before, "{state:?}");
        host.close().await.unwrap();
    }
}
