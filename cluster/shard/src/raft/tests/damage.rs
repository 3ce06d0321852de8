//! Whatever happens to the files of the state store, nothing acknowledged is lost.

use super::picture::{picture, work};
use super::snapshots::{open_eager, work_until_purged};
use super::*;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug)]
enum Harm {
    CutByOne,
    Halve,
    Empty,
    Flip,
    Remove,
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn harm(file: &Path, how: Harm) {
    let length = fs::metadata(file).unwrap().len();
    let cut = |to: u64| OpenOptions::new().write(true).open(file).unwrap().set_len(to).unwrap();
    match how {
        Harm::CutByOne => cut(length.saturating_sub(1)),
        Harm::Halve => cut(length / 2),
        Harm::Empty => cut(0),
        Harm::Flip => {
            let mut bytes = fs::read(file).unwrap();
            for at in (0..bytes.len()).step_by(512) {
                bytes[at] ^= 0x40;
            }
            fs::write(file, bytes).unwrap();
        }
        Harm::Remove => fs::remove_file(file).unwrap(),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Opens until reads go through. Damage that a clean stop hides is met at a read, stops the node, and is gone after the
/// next start.
async fn settled(dir: &Path, state: StateBackend) -> (String, u64) {
    for _ in 0..2 {
        let (host, owner) = open(dir, state).await;
        let seen = picture(&owner.shard);
        let rebuilds = host.rebuilds();
        match seen {
            Ok(seen) => {
                host.close().await.unwrap();
                return (seen, rebuilds);
            }
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "{error}");
                assert!(host.stopped().is_some());
                host.close().await.ok();
            }
        }
    }
    panic!("damage outlived a restart");
}

/// [FR-083] Cut, emptied, garbled or removed store files, after a kill and after a clean stop: the node opens each time with
/// everything acknowledged.
#[tokio::test]
async fn a_torn_store_is_made_again() {
    for state in [StateBackend::Sled, StateBackend::Fjall] {
        for clean in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let origin = dir.path().join("origin");
            let (host, owner) = open_eager(&origin, state).await;
            work_until_purged(&owner, 1, None).await;
            work(&owner, 2, 15).await;
            let before = picture(&owner.shard).unwrap();
            if clean {
                host.close().await.unwrap();
            } else {
                host.inner.crash().await;
            }
            let names: Vec<_> = files(&origin.join("state"));
            let mut rebuilt = 0;
            for (n, name) in names.iter().enumerate() {
                let all = [Harm::CutByOne, Harm::Flip, Harm::Empty, Harm::Halve, Harm::Remove];
                // A clean stop differs in that no row is read at the next start.
                for how in all.into_iter().take(if clean { 2 } else { 5 }) {
                    let copied = dir.path().join(format!("copy-{n}-{how:?}"));
                    copy(&origin, &copied);
                    harm(&copied.join(name.strip_prefix(&origin).unwrap()), how);
                    let (after, rebuilds) = settled(&copied, state).await;
                    assert!(after == before, "{state:?} clean={clean} {} {how:?}", name.display());
                    rebuilt += rebuilds;
                    fs::remove_dir_all(&copied).unwrap();
                }
            }
            assert!(rebuilt > 0, "{state:?}: some harm must have been noticed");
        }
    }
}

/// [FR-083] One flipped byte, for which sled often gives old rows, or panics at a read: the next start has everything, after a
/// clean stop and after a kill.
#[tokio::test]
async fn one_flipped_byte_costs_nothing() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let origin = dir.path().join("origin");
        let (host, owner) = open_eager(&origin, StateBackend::Sled).await;
        work_until_purged(&owner, 1, None).await;
        let before = picture(&owner.shard).unwrap();
        if clean {
            host.close().await.unwrap();
        } else {
            host.inner.crash().await;
        }
        let written = fs::read(origin.join("state/db")).unwrap();
        let end = written.iter().rposition(|byte| *byte != 0).unwrap();
        for part in 0..24 {
            let copied = dir.path().join(format!("copy-{part}"));
            copy(&origin, &copied);
            let mut bytes = written.clone();
            bytes[end * (2 * part + 1) / 48] ^= 0x10;
            fs::write(copied.join("state/db"), bytes).unwrap();
            let (after, _) = settled(&copied, StateBackend::Sled).await;
            assert!(after == before, "clean={clean} part {part}");
            fs::remove_dir_all(&copied).unwrap();
        }
    }
}

/// [FR-083] A damaged snapshot beside a whole store is made again from the store; without the store its shard is set aside and
/// named, the other shards serve, and the file put back makes all well.
#[tokio::test]
async fn a_damaged_snapshot_heals_from_the_store_or_sets_its_shard_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open_eager(dir.path(), StateBackend::Sled).await;
    work_until_purged(&owner, 1, None).await;
    let before = picture(&owner.shard).unwrap();
    host.close().await.unwrap();
    let file = dir.path().join("snapshots/shard-0.snap");
    harm(&file, Harm::Empty);
    let (host, owner) = open(dir.path(), StateBackend::Sled).await;
    assert_eq!(picture(&owner.shard).unwrap(), before);
    host.close().await.unwrap();
    crate::raft::snapshot::verify(&file, 0).unwrap();

    let whole = fs::read(&file).unwrap();
    harm(&file, Harm::Halve);
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    for _ in 0..2 {
        let host = Host::open(options(dir.path(), StateBackend::Sled)).await.unwrap();
        let why = &host.set_aside()[&ShardId(0)];
        assert!(why.contains("shard-0.snap"), "{why}");
        assert_eq!(host.hosted(), [ShardId(1)]);
        let shard = host.shard(ShardId(0)).unwrap();
        assert_eq!(shard.aside().as_ref(), Some(why));
        assert!(matches!(shard.grain(&grain("r")), Err(Error::NotHosted { shard: 0 })));
        assert!(matches!(host.start_replica(ShardId(0)).await, Err(Error::SetAside { shard: 0, .. })));
        let other = Owner::of(&host, 1).await;
        let revision = other.shard.grain(&grain("other")).unwrap().revision.0;
        other.commit("other", revision, puts([row(1, "n", "v")])).await.unwrap();
        host.close().await.unwrap();
    }
    fs::write(&file, whole).unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Sled).await;
    assert_eq!(picture(&owner.shard).unwrap(), before);
    assert!(host.set_aside().is_empty());
    host.close().await.unwrap();
}

/// The stamp of the folder is not guessed.
#[tokio::test]
async fn a_damaged_stamp_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = open(dir.path(), StateBackend::Memory).await;
    host.close().await.unwrap();
    for how in [Harm::Flip, Harm::CutByOne, Harm::Empty, Harm::Remove] {
        let whole = fs::read(dir.path().join("folder")).unwrap();
        harm(&dir.path().join("folder"), how);
        let opened = Host::open(options(dir.path(), StateBackend::Memory)).await;
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{how:?}");
        fs::write(dir.path().join("folder"), whole).unwrap();
    }
}
