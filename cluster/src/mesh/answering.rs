//! Calls that come in, whatever carried them: bounded, always answered, and never the end of anything but themselves.

use crate::peers::{CALL_BYTES_MAX, PeerService, Refused, Switchboard};
use bytes::Bytes;
use futures::FutureExt;
use granary_proto::peers::envelope_error::Kind;
use granary_proto::peers::{Envelope, EnvelopeError, EnvelopeReply, envelope_reply::Answer};
use shard::NodeId;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Calls of all peers that are answered at once.
const CALLS_MAX: u32 = 4_096;
/// No call is worked on for longer, whatever the caller asks.
const WITHIN_MAX: Duration = Duration::from_secs(120);

pub(super) struct Answering {
    services: Arc<Switchboard>,
    permits: Semaphore,
}

impl Answering {
    pub(super) fn new(services: Arc<Switchboard>) -> Self {
        Self { services, permits: Semaphore::new(CALLS_MAX as usize) }
    }

    /// `from` has been checked against the connection.
    pub(super) async fn answer(&self, from: NodeId, envelope: Envelope) -> EnvelopeReply {
        let Ok(_permit) = self.permits.try_acquire() else {
            return error(Kind::Overloaded, "");
        };
        if envelope.body.len() > CALL_BYTES_MAX {
            return error(Kind::BadRequest, "the body is too large");
        }
        let within = Duration::from_millis(envelope.within_ms.into()).min(WITHIN_MAX);
        let handled =
            AssertUnwindSafe(async { self.services.handle(from, &envelope.method, envelope.body, within).await });
        match tokio::time::timeout(within, handled.catch_unwind()).await {
            Ok(Ok(Ok(body))) if body.len() <= CALL_BYTES_MAX => ok(body),
            Ok(Ok(Ok(_))) => error(Kind::OutcomeUnknown, "the answer is too large"),
            Ok(Ok(Err(refused))) => refusal(refused),
            Ok(Err(_)) => {
                tracing::error!(method = envelope.method, "a call of another node panicked");
                error(Kind::OutcomeUnknown, "the call failed in the node")
            }
            Err(_) => error(Kind::OutcomeUnknown, "the node did not finish in time"),
        }
    }

    /// Takes no more calls; comes when those in progress have ended.
    pub(super) async fn drain(&self) {
        if let Ok(all) = self.permits.acquire_many(CALLS_MAX).await {
            all.forget();
        }
    }
}

pub(super) fn not_me(message: &str) -> EnvelopeReply {
    error(Kind::NotMe, message)
}

pub(super) fn unreadable(message: &str) -> EnvelopeReply {
    error(Kind::BadRequest, message)
}

fn ok(body: Bytes) -> EnvelopeReply {
    EnvelopeReply { answer: Some(Answer::Ok(body)) }
}

fn refusal(refused: Refused) -> EnvelopeReply {
    match refused {
        Refused::UnknownMethod(method) => error(Kind::UnknownMethod, &method),
        Refused::BadRequest(why) => error(Kind::BadRequest, &why),
        Refused::Overloaded => error(Kind::Overloaded, ""),
        Refused::NotMe(why) => error(Kind::NotMe, &why),
        Refused::Other(why) => error(Kind::Refused, &why),
    }
}

fn error(kind: Kind, message: &str) -> EnvelopeReply {
    EnvelopeReply { answer: Some(Answer::Error(EnvelopeError { kind: kind.into(), message: message.to_owned() })) }
}
