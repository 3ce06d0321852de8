//! The gate: answers other nodes. It never waits for anything itself.

use super::{GROUP, SCOPE};
use crate::mesh::answering::{not_me, unreadable};
use crate::mesh::shared::Shared;
use granary_proto::peers::hello_refusal::Kind;
use granary_proto::peers::{Envelope, EnvelopeReply, HelloRefusal, HelloReply, HelloRequest};
use prost::Message;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, pg};
use ractor_cluster::RactorClusterMessage;
use std::sync::Arc;

/// What goes over the wire. These three never change: everything that may change is inside the bytes.
#[derive(RactorClusterMessage)]
pub(super) enum GateMessage {
    /// A sign of life: the same number comes back.
    #[rpc]
    Ping(u64, RpcReplyPort<u64>),
    /// `HelloRequest` → `HelloReply`
    #[rpc]
    Hello(Vec<u8>, RpcReplyPort<Vec<u8>>),
    /// `Envelope` → `EnvelopeReply`
    #[rpc]
    Call(Vec<u8>, RpcReplyPort<Vec<u8>>),
}

pub(super) struct Gate;

impl Actor for Gate {
    type Msg = GateMessage;
    type State = Arc<Shared>;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        me: ActorRef<GateMessage>,
        shared: Arc<Shared>,
    ) -> Result<Self::State, ActorProcessingErr> {
        pg::join_scoped(SCOPE.into(), GROUP.into(), vec![me.get_cell()]);
        Ok(shared)
    }

    /// Never an error, which would end the gate; a port that was given up is no error either.
    async fn handle(
        &self,
        _: ActorRef<GateMessage>,
        message: GateMessage,
        shared: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GateMessage::Ping(number, port) => {
                port.send(number).ok();
            }
            GateMessage::Hello(request, port) => {
                port.send(hello(shared, request).encode_to_vec()).ok();
            }
            GateMessage::Call(request, port) => {
                let shared = shared.clone();
                // Answering is bounded and always ends, so these tasks are and do too.
                tokio::spawn(async move { port.send(answer(&shared, request).await.encode_to_vec()).ok() });
            }
        }
        Ok(())
    }
}

/// Who is here. Whether the asker is welcome was judged on its gRPC connection, and is judged by its certificate on this one
/// when it is asked in turn; until the first of these has happened it has to come again.
fn hello(shared: &Shared, request: Vec<u8>) -> HelloReply {
    let request = HelloRequest::decode(request.as_slice()).unwrap_or_default();
    let asker = request.me.unwrap_or_default();
    let refused = shared.roster.life(asker.node_id, asker.boot).is_none().then(|| HelloRefusal {
        kind: Kind::BadRequest.into(),
        message: "Expected to have met the node already, but it was not yet".into(),
    });
    HelloReply { me: Some(shared.me.identity()), refused, ..HelloReply::default() }
}

async fn answer(shared: &Shared, request: Vec<u8>) -> EnvelopeReply {
    // From one buffer, so that the body is not copied.
    let Ok(envelope) = Envelope::decode(bytes::Bytes::from(request)) else {
        return unreadable("Expected an envelope, but it is none");
    };
    let from = envelope.from_node;
    match shared.roster.life(from, envelope.from_boot) {
        Some(life) if !life.is_cancelled() => shared.answering.answer(from, envelope).await,
        _ => not_me("Expected a call of a node that was met, but another process has its place, or none"),
    }
}
