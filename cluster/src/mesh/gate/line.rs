//! Calling a peer's gate.

use super::actor::GateMessage;
use crate::mesh::line::Line;
use crate::peers::CallError;
use futures::future::BoxFuture;
use granary_proto::peers::{Envelope, EnvelopeReply};
use parking_lot::Mutex;
use prost::Message;
use ractor::ActorRef;
use ractor::rpc::CallResult;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The peer's gate as this node sees it. Never stopped, killed or linked from here: on another node's actor each of these
/// would tear the whole session down.
pub(super) struct GateLine {
    gate: ActorRef<GateMessage>,
    end: CancellationToken,
    heard: Arc<Mutex<Instant>>,
}

impl GateLine {
    pub(super) fn new(gate: ActorRef<GateMessage>, end: CancellationToken) -> Self {
        Self { gate, end, heard: Arc::new(Mutex::new(Instant::now())) }
    }

    /// When the peer answered last, be it to a ping or to a call.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock()
    }
}

impl Line for GateLine {
    fn call(&self, envelope: Envelope, within: Duration) -> BoxFuture<'static, Result<EnvelopeReply, CallError>> {
        let (gate, heard, end) = (self.gate.clone(), self.heard.clone(), self.end.clone());
        Box::pin(async move {
            let message = envelope.encode_to_vec();
            drop(envelope);
            let calling = gate.call(|port| GateMessage::Call(message, port), Some(within));
            match end.run_until_cancelled(calling).await {
                Some(Ok(CallResult::Success(reply))) => {
                    *heard.lock() = Instant::now();
                    EnvelopeReply::decode(bytes::Bytes::from(reply))
                        .map_err(|_| CallError::Unknown("the answer cannot be read".into()))
                }
                // Two clocks race for the same timeout, and a lost session looks like either: it may have happened.
                Some(Ok(CallResult::Timeout | CallResult::SenderError)) | None => {
                    Err(CallError::Unknown("the gate did not answer".into()))
                }
                Some(Err(_)) => Err(CallError::NotSent("the gate is gone".into())),
            }
        })
    }

    fn answers(&self, within: Duration) -> BoxFuture<'static, bool> {
        let (gate, heard, end) = (self.gate.clone(), self.heard.clone(), self.end.clone());
        Box::pin(async move {
            let pinging = gate.call(|port| GateMessage::Ping(1, port), Some(within));
            let answers = matches!(end.run_until_cancelled(pinging).await, Some(Ok(CallResult::Success(1))));
            if answers {
                *heard.lock() = Instant::now();
            }
            answers
        })
    }

    fn close(&self) {
        self.end.cancel();
    }
}
