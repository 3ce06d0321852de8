//! An entry that cannot be read costs its grain, not the shard.

use super::*;
use crate::raft::types::Proposal;
use bytes::Bytes;
use granary_proto::storage::{Entry, TurnEntry, entry::Body};
use prost::Message;

/// A newer build's entry: the grain is set aside and shown, also after a restart; the others go on.
#[tokio::test]
async fn an_entry_of_a_newer_format_sets_its_grain_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Fjall).await;
    owner.commit("a", 0, puts([row(1, "a", "1")])).await.unwrap();
    owner.commit("b", 0, puts([row(1, "a", "1")])).await.unwrap();
    let turn = TurnEntry {
        grain: grain("a").storage_bytes(),
        epoch: owner.epoch.0,
        expected_revision: 1,
        ..TurnEntry::default()
    };
    let newer = Entry { format: 2, body: Some(Body::Turn(turn)) };
    for bytes in [newer.encode_to_vec(), b"\xff\xff no entry at all".to_vec(), vec![]] {
        owner.shard.inner.replica().unwrap().raft.client_write(Proposal(Bytes::from(bytes))).await.unwrap();
    }
    let check = async |owner: &Owner, revision| {
        assert!(matches!(owner.shard.grain(&grain("a")), Err(Error::Quarantined { .. })));
        assert!(matches!(owner.commit("a", 1, Turn::default()).await, Err(Error::Fenced { .. })));
        owner.commit("b", revision, puts([row(1, "a", "2")])).await.unwrap();
    };
    check(&owner, 1).await;
    assert_eq!(host.unreadable(), 3);
    host.inner.crash().await;
    let (host, owner) = open(dir.path(), StateBackend::Fjall).await;
    check(&owner, 2).await;
    host.close().await.unwrap();
    let (host, owner) = open(dir.path(), StateBackend::Fjall).await;
    check(&owner, 3).await;
    host.close().await.unwrap();
}
