//! How a shard's replicas reach each other. There are none yet: a shard has one voter, and openraft asks nobody.

use super::snapshot::SnapshotFile;
use super::types::{Snapshot, TypeConfig, Vote};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use std::io;

/// Answers "unreachable" for every peer.
#[derive(Clone, Copy, Default)]
pub struct NoPeers;

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = Self;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Self {
        Self
    }
}

fn unreachable() -> Unreachable<TypeConfig> {
    Unreachable::new(&io::Error::new(io::ErrorKind::NotConnected, "this node has no peers"))
}

impl RaftNetworkV2<TypeConfig> for NoPeers {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn vote(
        &mut self,
        _: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    // The provided body grants every pre-vote.
    async fn pre_vote(
        &mut self,
        _: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: Snapshot<SnapshotFile>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(unreachable()))
    }
}
