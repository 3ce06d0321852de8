//! Calls that come in, whatever carried them: bounded, always answered, and never the end of anything but themselves.

use super::options::PROTOCOL;
use crate::peers::{CALL_BYTES_MAX, PeerService, Refused, Switchboard};
use crate::trace::{TRACEPARENT, Trace};
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
        if !PROTOCOL.contains(&envelope.protocol) {
            return error(
                Kind::BadRequest,
                &format!("Expected protocol {PROTOCOL:?}, but it is {}", envelope.protocol),
            );
        }
        if envelope.body.len() > CALL_BYTES_MAX {
            return error(Kind::BadRequest, "the body is too large");
        }
        let within = Duration::from_millis(envelope.within_ms.into()).min(WITHIN_MAX);
        let trace = envelope.trace.get(TRACEPARENT).and_then(|text| Trace::parse(text));
        let work = async { self.services.handle(from, &envelope.method, envelope.body, within).await };
        let handled = AssertUnwindSafe(async {
            match trace {
                Some(trace) => trace.follow(work).await,
                None => work.await,
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use prost::Message;

    struct Echo;

    impl PeerService for Echo {
        fn handle(&self, _: NodeId, _: &str, body: Bytes, _: Duration) -> BoxFuture<'static, Result<Bytes, Refused>> {
            Box::pin(std::future::ready(Ok(body)))
        }
    }

    fn envelope(protocol: u32) -> Envelope {
        Envelope { protocol, within_ms: 60_000, method: "echo.back".into(), body: "x".into(), ..Envelope::default() }
    }

    async fn answer(envelope: Envelope) -> Answer {
        let switchboard = Arc::<Switchboard>::default();
        switchboard.mount("echo", Arc::new(Echo));
        Answering::new(switchboard).answer(1, envelope).await.answer.unwrap()
    }

    /// [P8]
    #[tokio::test]
    async fn an_envelope_of_a_version_that_is_not_spoken_is_refused() {
        assert_eq!(answer(envelope(1)).await, Answer::Ok("x".into()));
        for protocol in [0, 99] {
            assert!(matches!(answer(envelope(protocol)).await, Answer::Error(e) if e.kind() == Kind::BadRequest));
        }
    }

    /// [FR-124]
    #[tokio::test]
    async fn a_field_of_a_newer_build_does_no_harm() {
        let mut bytes = envelope(1).encode_to_vec();
        // Field 99, a varint.
        bytes.extend([0x98, 0x06, 0x01]);
        let read = Envelope::decode(bytes.as_slice()).unwrap();
        assert_eq!(answer(read).await, Answer::Ok("x".into()));
    }
}
