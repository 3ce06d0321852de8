//! How a replica asks the others: openraft's requests as bytes, over the link.
//!
//! Several appends are on their way at once, so that a follower's disk and the network are busy at the same time. Answers
//! are handed on in the order of the requests; `acks` says what they mean and when they may be.

use super::acks::{Acks, Told, unreadable};
use super::snapshot::SnapshotFile;
use super::types::{Snapshot, TypeConfig, Vote};
use super::wire::{self, SnapshotHead};
use crate::link::{LinkError, NodeId, RaftFrame, RaftKind, RaftLink};
use crate::{ShardId, Timing};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Appends on their way to one follower. Each has at most about a mebibyte.
const APPENDS_AHEAD_MAX: usize = 4;
/// The least time that a snapshot may take, and what is added for each of its mebibytes.
const SNAPSHOT_WITHIN_MIN: Duration = Duration::from_secs(60);
const SNAPSHOT_WITHIN_MIB: Duration = Duration::from_secs(1);

/// Makes the ways from one replica to its peers.
pub struct Network {
    shard: u32,
    link: Arc<dyn RaftLink>,
    /// How long an append may take. Longer than a disk's hiccup, as it is sent again when the time is over.
    append_within: Duration,
}

impl Network {
    pub fn new(shard: u32, link: Arc<dyn RaftLink>, timing: Timing) -> Self {
        Self { shard, link, append_within: timing.election_max }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, node: NodeId, _: &BasicNode) -> Peer {
        Peer { node, shard: self.shard, link: self.link.clone(), append_within: self.append_within }
    }
}

/// The way to one peer.
pub struct Peer {
    node: NodeId,
    shard: u32,
    link: Arc<dyn RaftLink>,
    append_within: Duration,
}

type Answer<T> = Result<T, RPCError<TypeConfig>>;
pub type Appended = Answer<StreamAppendResult<TypeConfig>>;

impl Peer {
    fn ask(&self, kind: RaftKind, body: Bytes, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        self.link.request(self.node, RaftFrame { shard: ShardId(self.shard), kind, body }, within)
    }

    /// Sends when called, not when the answer is awaited: the order of calls is the order on the way.
    fn append(
        &self,
        request: &AppendEntriesRequest<TypeConfig>,
        within: Duration,
    ) -> impl Future<Output = Answer<AppendEntriesResponse<TypeConfig>>> + Send + use<> {
        let asked = wire::append(self.shard, request).map(|body| self.ask(RaftKind::Append, body, within));
        async move {
            let answer = asked.map_err(|error| NetworkError::new(&error))?.await.map_err(failed)?;
            wire::read_append_answer(&answer).map_err(unreadable)
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Answer<AppendEntriesResponse<TypeConfig>> {
        self.append(&request, option.hard_ttl()).await
    }

    fn stream_append<'s, S>(&'s mut self, requests: S, _: RPCOption) -> BoxFuture<'s, Answer<BoxStream<'s, Appended>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let peer = &*self;
        let acks = Arc::new(Mutex::new(Acks::default()));
        let sent = acks.clone();
        let answers = requests
            .map(move |request| {
                let prev = request.prev_log_id;
                let last = request.entries.last().map(|entry| entry.log_id).or(prev);
                sent.lock().sent(prev, last);
                peer.append(&request, peer.append_within)
            })
            .buffered(APPENDS_AHEAD_MAX);
        let mut is_over = false;
        let told = answers.scan((), move |(), answer| {
            let told = (!is_over).then(|| acks.lock().answered(answer));
            is_over |= matches!(told, Some(Told::Last(_)));
            std::future::ready(told)
        });
        let handed_on = told.filter_map(|told| {
            std::future::ready(match told {
                Told::Nothing => None,
                Told::Acked(answer) | Told::Last(answer) => Some(answer),
            })
        });
        Box::pin(std::future::ready(Ok(handed_on.boxed())))
    }

    async fn vote(&mut self, request: VoteRequest<TypeConfig>, option: RPCOption) -> Answer<VoteResponse<TypeConfig>> {
        let asked = self.ask(RaftKind::Vote, wire::vote(&request), option.hard_ttl());
        wire::read_vote_answer(&asked.await.map_err(failed)?).map_err(unreadable)
    }

    // The provided body grants every pre-vote.
    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Answer<VoteResponse<TypeConfig>> {
        let asked = self.ask(RaftKind::PreVote, wire::vote(&request), option.hard_ttl());
        wire::read_vote_answer(&asked.await.map_err(failed)?).map_err(unreadable)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Answer<TransferLeaderResponse<TypeConfig>> {
        let asked = self.ask(RaftKind::Transfer, wire::transfer(&request), option.hard_ttl());
        wire::read_transfer_answer(&asked.await.map_err(failed)?).map_err(unreadable)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let file = snapshot.snapshot.path;
        // A newer snapshot may take this one's place at any time; the head must fit what is sent, else the peer refuses it
        // and it is tried again.
        let file_bytes = std::fs::metadata(&file).map_err(|error| NetworkError::new(&error))?.len();
        let within = SNAPSHOT_WITHIN_MIN + SNAPSHOT_WITHIN_MIB * u32::try_from(file_bytes >> 20).unwrap_or(u32::MAX);
        let head = SnapshotHead { vote, file_bytes }.write();
        let sent = self.link.snapshot(self.node, ShardId(self.shard), head, file, within);
        let answer = tokio::select! {
            answer = sent => answer.map_err(failed)?,
            closed = cancel => return Err(closed.into()),
        };
        let vote = wire::read_snapshot_answer(&answer).map_err(unreadable)?;
        Ok(SnapshotResponse::new(vote))
    }
}

/// Unreachable makes openraft wait a little before it tries again.
fn failed(error: LinkError) -> RPCError<TypeConfig> {
    match error {
        LinkError::Unreachable(_) | LinkError::Refused(_) => RPCError::Unreachable(Unreachable::new(&error)),
        LinkError::TimedOut => RPCError::Network(NetworkError::new(&error)),
    }
}
