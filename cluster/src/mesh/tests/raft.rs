//! Raft's messages and snapshots.

use super::nodes::{Authority, Node, PATIENCE, soon, start};
use bytes::Bytes;
use shard::{LinkError, RaftFrame, RaftKind, RaftLink, ShardId};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

fn frame(shard: u32, kind: RaftKind, body: &'static [u8]) -> RaftFrame {
    RaftFrame { shard: ShardId(shard), kind, body: Bytes::from_static(body) }
}

async fn pair(authority: &Authority) -> (Node, Node) {
    let first = start(authority, "a", 1, &[]).await;
    let second = start(authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    second.sees(&[&first]).await;
    (first, second)
}

#[tokio::test]
async fn requests_of_all_shards_share_one_stream_and_each_gets_its_answer() {
    let (first, second) = pair(&Authority::new()).await;
    let answers = (0..500).map(|shard| {
        let kind = [RaftKind::Append, RaftKind::Vote, RaftKind::PreVote, RaftKind::Transfer][shard as usize % 4];
        let request = first.pipe.request(2, frame(shard + 10, kind, b"body"), PATIENCE);
        async move { assert_eq!(request.await, Ok(format!("1 {kind:?} body").into())) }
    });
    futures::future::join_all(answers).await;
    let refused = second.pipe.request(1, frame(1, RaftKind::Append, b""), PATIENCE).await;
    assert_eq!(refused, Err(LinkError::Refused("not hosted".into())));
    let late = first.pipe.request(2, frame(2, RaftKind::Append, b""), Duration::from_millis(20)).await;
    assert_eq!(late, Err(LinkError::TimedOut));
    let panicked = first.pipe.request(2, frame(3, RaftKind::Append, b""), Duration::from_millis(20)).await;
    assert_eq!(panicked, Err(LinkError::TimedOut));
    // Neither stopped the others.
    let answer = first.pipe.request(2, frame(9, RaftKind::Append, b"x"), PATIENCE).await;
    assert_eq!(answer, Ok("1 Append x".into()));
}

/// [K7]
#[tokio::test]
async fn requests_in_flight_to_a_node_that_ends_are_over_at_once() {
    let (first, second) = pair(&Authority::new()).await;
    let waiting = tokio::spawn(first.pipe.request(2, frame(2, RaftKind::Append, b""), Duration::from_secs(3_600)));
    soon("the request", second.raft.arrived.notified()).await;
    second.stop().await;
    assert_eq!(soon("the outcome", waiting).await.unwrap(), Err(LinkError::TimedOut));
    first.sees(&[]).await;
    let next = first.pipe.request(2, frame(9, RaftKind::Append, b""), PATIENCE).await;
    assert!(matches!(next, Err(LinkError::Unreachable(_))));
    let nobody = first.pipe.request(77, frame(9, RaftKind::Append, b""), PATIENCE).await;
    assert!(matches!(nobody, Err(LinkError::Unreachable(_))));
}

#[tokio::test]
async fn a_request_larger_than_a_window_arrives() {
    let (first, second) = pair(&Authority::new()).await;
    let body = Bytes::from(vec![b'x'; 20 << 20]);
    let big = RaftFrame { shard: ShardId(9), kind: RaftKind::Append, body: body.clone() };
    let answer = first.pipe.request(2, big, PATIENCE).await.unwrap();
    assert_eq!(answer.len(), "1 Append ".len() + body.len());
    drop(second);
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot");
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    (folder, path)
}

#[tokio::test]
async fn a_snapshot_arrives_whole_and_behind_its_head() {
    let (first, second) = pair(&Authority::new()).await;
    let bytes: Vec<u8> = (0..(5 << 20) + 17).map(|at: u32| at.to_le_bytes()[0]).collect();
    let (_folder, path) = file(&bytes);
    let answer = first.pipe.snapshot(2, ShardId(0), "head".into(), path.clone(), PATIENCE).await;
    assert_eq!(answer, Ok("installed".into()));
    assert!(*second.raft.snapshots.lock() == [("head".into(), bytes)]);
    let refused = first.pipe.snapshot(2, ShardId(1), "head".into(), path, PATIENCE).await;
    assert_eq!(refused, Err(LinkError::Refused("not hosted".into())));
    let missing = first.pipe.snapshot(2, ShardId(0), "head".into(), "/nowhere".into(), PATIENCE).await;
    assert!(matches!(missing, Err(LinkError::Unreachable(_))), "{missing:?}");
    let (_folder, empty) = file(b"");
    assert_eq!(first.pipe.snapshot(2, ShardId(0), "e".into(), empty, PATIENCE).await, Ok("installed".into()));
    assert_eq!(second.raft.snapshots.lock().len(), 2);
    assert_eq!((first.mesh.figures().snapshots_sent, second.mesh.figures().snapshots_received), (2, 2));
}

/// A sender that goes away in the middle must not look like the end of the file.
#[tokio::test]
async fn half_a_snapshot_is_none() {
    let (first, second) = pair(&Authority::new()).await;
    // A pipe gives its first bytes and then nothing, and never ends.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let feeding = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            pipe.write_all(&vec![1; 3 << 20]).unwrap();
            pipe
        }
    });
    let sending = tokio::spawn(first.pipe.snapshot(2, ShardId(0), "head".into(), path, PATIENCE));
    let pipe = soon("the feeding", feeding).await.unwrap();
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    soon("the receiver's end", second.raft.dropped.notified()).await;
    assert!(second.raft.snapshots.lock().is_empty());
    drop(pipe);
}
