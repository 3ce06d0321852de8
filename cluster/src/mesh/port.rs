//! The gRPC listener for peers. Nobody is served anything but a hello before the hello.

use super::answering::not_me;
use super::exchange::Answers;
use super::hello;
use super::session::{Accepted, Session};
use super::shared::Shared;
use super::snapshot::Snapshots;
use super::socket::{Secured, accept};
use super::tls::Purpose;
use super::wire::{CALL_MESSAGE_BYTES_MAX, CONNECTION_WINDOW, RAFT_MESSAGE_BYTES_MAX, STREAM_WINDOW};
use futures::StreamExt;
use granary_proto::peers::peers_server::{Peers, PeersServer};
use granary_proto::peers::raft_server::{Raft, RaftServer};
use granary_proto::peers::{
    Envelope, EnvelopeReply, HelloReply, HelloRequest, Ping, RaftFrames, SnapshotAnswer, SnapshotPart,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// Hellos and calls of one connection at once.
const STREAMS_MAX: u32 = 2_048;
/// An accepted connection without sign of life for twice this long is closed. Its dialler notices sooner, by its own pings.
const KEEPALIVE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Port {
    shared: Arc<Shared>,
    snapshots: Arc<Snapshots>,
}

pub(super) fn serve(shared: &Arc<Shared>, snapshots: &Arc<Snapshots>, listener: TcpListener) {
    let (sender, accepted) = mpsc::channel::<Secured>(1);
    let (credentials, stop) = (shared.credentials.clone(), shared.stop.clone());
    shared.tasks.spawn(accept(listener, credentials, Purpose::Peer, shared.timing.handshake, sender, stop.clone()));
    let port = Port { shared: shared.clone(), snapshots: snapshots.clone() };
    let incoming = ReceiverStream::new(accepted).map(|secured| Ok::<_, Infallible>(Accepted::from(secured)));
    let peers = PeersServer::new(port.clone())
        .max_decoding_message_size(CALL_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(CALL_MESSAGE_BYTES_MAX);
    let raft = RaftServer::new(port)
        .max_decoding_message_size(RAFT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(RAFT_MESSAGE_BYTES_MAX);
    shared.tasks.spawn(async move {
        let server = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(peers)
            .add_service(raft)
            .serve_with_incoming(incoming);
        // Dropped at the stop, with every connection it has.
        if let Some(Err(error)) = stop.run_until_cancelled(server).await {
            tracing::error!(%error, "the listener for peers has ended");
        }
    });
}

fn session<T>(request: &Request<T>) -> Result<Arc<Session>, Status> {
    request
        .extensions()
        .get::<Arc<Session>>()
        .cloned()
        .ok_or_else(|| Status::internal("a connection without a session"))
}

#[tonic::async_trait]
impl Peers for Port {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let session = session(&request)?;
        Ok(Response::new(hello::receive(&self.shared, &session, request.into_inner()).await))
    }

    async fn call(&self, request: Request<Envelope>) -> Result<Response<EnvelopeReply>, Status> {
        let guest = session(&request)?.guest().map_err(|status| *status)?;
        let envelope = request.into_inner();
        if envelope.from_node != guest.node || envelope.from_boot != guest.boot {
            return Ok(Response::new(not_me("Expected a call of the node at the other end, but it is another's")));
        }
        Ok(Response::new(self.shared.answering.answer(guest.node, envelope).await))
    }

    async fn alive(&self, request: Request<Ping>) -> Result<Response<Ping>, Status> {
        session(&request)?.guest().map_err(|status| *status)?;
        Ok(Response::new(Ping { boot: self.shared.me.identity().boot }))
    }
}

#[tonic::async_trait]
impl Raft for Port {
    type ExchangeStream = Answers;

    async fn exchange(&self, request: Request<Streaming<RaftFrames>>) -> Result<Response<Answers>, Status> {
        let guest = session(&request)?.guest().map_err(|status| *status)?;
        let end = guest.life.cancelled_owned();
        Ok(Response::new(Answers::new(request.into_inner(), guest.node, self.shared.raft.clone(), end)))
    }

    async fn snapshot(&self, request: Request<Streaming<SnapshotPart>>) -> Result<Response<SnapshotAnswer>, Status> {
        let guest = session(&request)?.guest().map_err(|status| *status)?;
        let received = self.snapshots.receive(&*self.shared.raft, guest.node, request.into_inner());
        match guest.life.run_until_cancelled(received).await {
            Some(answer) => answer.map(Response::new),
            None => Err(Status::unavailable("another process has the sender's place")),
        }
    }
}
