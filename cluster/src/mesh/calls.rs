//! Calls that go out: over the gate if it is up, over gRPC otherwise, and never more than the peer's permits allow.

use super::answering::Answering;
use super::line::Line;
use super::shared::Shared;
use crate::peers::{Attached, CALL_BYTES_MAX, CallError, Peers, Refused};
use crate::trace::{TRACEPARENT, Trace};
use bytes::Bytes;
use futures::future::BoxFuture;
use granary_proto::peers::envelope_error::Kind;
use granary_proto::peers::{Envelope, EnvelopeReply, envelope_reply::Answer};
use shard::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Bodies above it go over gRPC where that is up: the gate's one connection lets the small wait behind the big.
const GATE_BODY_BYTES: usize = 256 << 10;

pub(super) struct Calls {
    shared: Arc<Shared>,
    me: NodeId,
    last_request: AtomicU64,
}

impl Calls {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let me = shared.me.identity().node_id;
        Self { shared, me, last_request: AtomicU64::new(0) }
    }

    fn envelope(&self, protocol_max: u32, method: &str, body: Bytes, within: Duration) -> Envelope {
        let me = self.shared.me.identity();
        Envelope {
            protocol: me.protocol_max.min(protocol_max),
            from_node: me.node_id,
            from_boot: me.boot,
            request_id: self.last_request.fetch_add(1, Ordering::Relaxed) + 1,
            within_ms: within.as_millis().min(u128::from(u32::MAX)) as u32,
            method: method.to_owned(),
            body,
            trace: Trace::current()
                .map(|trace| (TRACEPARENT.to_owned(), trace.child().to_string()))
                .into_iter()
                .collect(),
        }
    }
}

impl Peers for Calls {
    fn me(&self) -> NodeId {
        self.me
    }

    fn call(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let size = body.len();
        if size > CALL_BYTES_MAX {
            let why = format!("Expected a body of at most {CALL_BYTES_MAX} bytes, but it has {size}");
            return Box::pin(std::future::ready(Err(CallError::NotSent(why))));
        }
        if to == self.me {
            let envelope = self.envelope(u32::MAX, method, body, within);
            return Box::pin(to_myself(self.shared.answering.clone(), to, envelope, within));
        }
        let Some(ways) = self.shared.roster.ways(to) else {
            return Box::pin(std::future::ready(Err(CallError::NotSent("the node is not known here".into()))));
        };
        let envelope = self.envelope(ways.protocol_max, method, body, within);
        let wire = ways.wire.map(|wire| -> Arc<dyn Line> { wire });
        let (first, second) = if size > GATE_BODY_BYTES { (wire, ways.gate) } else { (ways.gate, wire) };
        let permit = match ways.permits.take(size) {
            Ok(permit) => permit,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        Box::pin(async move {
            let _permit = permit;
            let calling = async {
                let mut error = CallError::NotSent("the node cannot be reached".into());
                for line in [first, second].into_iter().flatten() {
                    match line.call(envelope.clone(), within).await {
                        // It never left, so the other way may be tried.
                        Err(CallError::NotSent(why)) => error = CallError::NotSent(why),
                        Err(error) => return Err(error),
                        Ok(reply) => return read(reply),
                    }
                }
                Err(error)
            };
            let late = || Err(CallError::Unknown("no answer in time".into()));
            tokio::time::timeout(within, calling).await.unwrap_or_else(|_| late())
        })
    }

    fn attached(&self) -> watch::Receiver<Attached> {
        self.shared.roster.attached()
    }

    fn say_leaving(&self) {
        self.shared.me.set_leaving();
    }

    fn leaving(&self) -> BTreeSet<NodeId> {
        self.shared.roster.leaving()
    }
}

async fn to_myself(
    answering: Arc<Answering>,
    me: NodeId,
    envelope: Envelope,
    within: Duration,
) -> Result<Bytes, CallError> {
    match tokio::time::timeout(within, answering.answer(me, envelope)).await {
        Ok(reply) => read(reply),
        Err(_) => Err(CallError::Unknown("no answer in time".into())),
    }
}

fn read(reply: EnvelopeReply) -> Result<Bytes, CallError> {
    let error = match reply.answer {
        Some(Answer::Ok(body)) => return Ok(body),
        Some(Answer::Error(error)) => error,
        None => return Err(CallError::Unknown("the answer cannot be read".into())),
    };
    Err(match error.kind() {
        Kind::UnknownMethod => CallError::Refused(Refused::UnknownMethod(error.message)),
        Kind::BadRequest => CallError::Refused(Refused::BadRequest(error.message)),
        Kind::Overloaded => CallError::Refused(Refused::Overloaded),
        Kind::NotMe => CallError::Refused(Refused::NotMe(error.message)),
        Kind::Refused => CallError::Refused(Refused::Other(error.message)),
        // A kind of a newer build says nothing about what was done.
        Kind::OutcomeUnknown | Kind::Unspecified => CallError::Unknown(error.message),
    })
}
