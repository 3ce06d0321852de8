//! One gRPC connection that this node dialled: Hello first, then Raft's stream and, where nothing better is there, calls.
//!
//! The connection is dialled here and handed to the channel as it is; when it ends the channel is thrown away, so nothing
//! is ever sent over a connection on which the other side has not said and proven who it is. Both sides ping; a peer that
//! does not answer in time loses its connection, and the end of Raft's stream is how that is noticed.

use super::lane::Lane;
use super::line::Line;
use super::options::MeshTiming;
use crate::peers::{CALL_BYTES_MAX, CallError};
use futures::future::BoxFuture;
use granary_proto::peers::peers_client::PeersClient;
use granary_proto::peers::raft_client::RaftClient;
use granary_proto::peers::{Envelope, EnvelopeReply, Ping};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Uri};

/// What one stream, and all of a connection, may send ahead. Bytes.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;
/// A message of Raft's stream: a batch of frames and one more, with the largest turn in it.
pub(super) const RAFT_MESSAGE_BYTES_MAX: usize = 40 << 20;
/// An envelope around the largest body.
pub(super) const CALL_MESSAGE_BYTES_MAX: usize = CALL_BYTES_MAX + (64 << 10);

pub(super) struct Wire {
    pub boot: u64,
    pub lane: Arc<Lane>,
    channel: Channel,
    end: CancellationToken,
}

impl Wire {
    pub(super) fn new(channel: Channel, boot: u64, end: CancellationToken) -> Arc<Self> {
        Arc::new(Self { boot, lane: Arc::default(), channel, end })
    }

    pub(super) fn raft(&self) -> RaftClient<Channel> {
        raft(self.channel.clone())
    }

    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    pub(super) fn close(&self) {
        self.lane.close();
        self.end.cancel();
    }
}

impl Line for Wire {
    fn call(&self, envelope: Envelope, within: Duration) -> BoxFuture<'static, Result<EnvelopeReply, CallError>> {
        let mut client = peers(self.channel.clone());
        let end = self.end.clone();
        Box::pin(async move {
            let mut request = tonic::Request::new(envelope);
            request.set_timeout(within);
            let answered = tokio::select! {
                () = end.cancelled() => return Err(CallError::Unknown("the connection ended".into())),
                answered = client.call(request) => answered,
            };
            answered.map(tonic::Response::into_inner).map_err(|status| CallError::Unknown(status.message().to_owned()))
        })
    }

    fn answers(&self, within: Duration) -> BoxFuture<'static, bool> {
        let mut client = peers(self.channel.clone());
        let boot = self.boot;
        Box::pin(async move {
            let answer = tokio::time::timeout(within, client.alive(Ping { boot })).await;
            matches!(answer, Ok(Ok(pong)) if pong.get_ref().boot == boot)
        })
    }

    fn close(&self) {
        Wire::close(self);
    }
}

pub(super) fn peers(channel: Channel) -> PeersClient<Channel> {
    PeersClient::new(channel)
        .max_decoding_message_size(CALL_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(CALL_MESSAGE_BYTES_MAX)
}

pub(super) fn raft(channel: Channel) -> RaftClient<Channel> {
    RaftClient::new(channel)
        .max_decoding_message_size(RAFT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(RAFT_MESSAGE_BYTES_MAX)
}

/// A channel over this very connection.
pub(super) async fn channel(
    stream: TlsStream<TcpStream>,
    timing: &MeshTiming,
) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        std::future::ready(stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    // The name is never looked up nor checked: the connection is there already.
    Endpoint::from_static("http://peer.granary")
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(timing.ping)
        .keep_alive_timeout(timing.deadline.saturating_sub(timing.ping))
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
}
