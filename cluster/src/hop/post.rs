//! Puts a question to another silo and brings the answer, whatever their size.
//!
//! Every answer begins with one byte: 0 = the answer follows; 1 = it is large and waits under a number (u64 big-endian) with
//! its length behind it.

use super::parcel::{BODY_BYTES_MAX, PART_BYTES};
use super::wire;
use crate::hub::Hub;
use crate::peers::{CallError, Refused};
use bytes::{BufMut, Bytes, BytesMut};
use granary_proto::peers::{BodyPart, FetchPart, WholeBody};
use prost::Message;
use shard::NodeId;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const PART: &str = "grain.part";
pub(crate) const WHOLE: &str = "grain.whole";
pub(crate) const FETCH: &str = "grain.fetch";

const FOLLOWS: u8 = 0;
const WAITS: u8 = 1;
const WAITS_BYTES: usize = 17;

impl Hub {
    /// One question to a node and its answer, before `deadline`.
    pub(crate) async fn post(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let answer = if body.len() <= PART_BYTES {
            self.around.peers.call(to, method, body, left(deadline)?).await?
        } else {
            self.post_large(to, method, &body, deadline).await?
        };
        self.open(to, answer, deadline).await
    }

    async fn post_large(
        &self,
        to: NodeId,
        method: &'static str,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let id: u64 = rand::random();
        let total = body.len() as u64;
        for offset in (0..body.len()).step_by(PART_BYTES) {
            let bytes = body.slice(offset..(offset + PART_BYTES).min(body.len())).to_vec();
            let part = BodyPart { id, offset: offset as u64, total, bytes };
            let sent = self.around.peers.call(to, PART, part.encode_to_vec().into(), left(deadline)?).await;
            // Parts alone do nothing, so whatever happened to one, nothing happened.
            sent.map_err(|error| match error {
                CallError::Unknown(why) => CallError::NotSent(why),
                error => error,
            })?;
        }
        let whole = WholeBody { id, method: method.to_owned() };
        self.around.peers.call(to, WHOLE, whole.encode_to_vec().into(), left(deadline)?).await
    }

    async fn open(&self, to: NodeId, answer: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        let unreadable = || CallError::Unknown("the answer cannot be read".to_owned());
        match answer.first() {
            Some(&FOLLOWS) => Ok(answer.slice(1..)),
            Some(&WAITS) if answer.len() == WAITS_BYTES => {
                let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| answer[at + n]));
                let (id, total) = (number(1), usize::try_from(number(9)).unwrap_or(usize::MAX));
                if total > BODY_BYTES_MAX {
                    return Err(unreadable());
                }
                let mut body = BytesMut::with_capacity(total);
                while body.len() < total {
                    let ask = FetchPart { id, offset: body.len() as u64 };
                    let ask = ask.encode_to_vec().into();
                    let part = match left(deadline) {
                        Ok(left) => self.around.peers.call(to, FETCH, ask, left).await,
                        Err(late) => Err(late),
                    };
                    // What was asked has happened; only its answer is lost.
                    let part = part.map_err(|error| CallError::Unknown(error.to_string()))?;
                    if part.is_empty() || body.len() + part.len() > total {
                        return Err(unreadable());
                    }
                    body.extend_from_slice(&part);
                }
                Ok(body.freeze())
            }
            _ => Err(unreadable()),
        }
    }

    /// An answer as it leaves.
    pub(super) fn wrap(&self, answer: &impl Message) -> Result<Bytes, Refused> {
        let len = answer.encoded_len();
        if len <= PART_BYTES {
            let mut body = BytesMut::with_capacity(len + 1);
            body.put_u8(FOLLOWS);
            answer.encode(&mut body).map_err(|error| Refused::Other(error.to_string()))?;
            return Ok(body.freeze());
        }
        let id = self.parcels.keep(self.clock.monotonic_ms(), answer.encode_to_vec().into())?;
        let mut body = BytesMut::with_capacity(WAITS_BYTES);
        body.put_u8(WAITS);
        body.put_u64(id);
        body.put_u64(len as u64);
        Ok(body.freeze())
    }

    pub(super) fn take_part(&self, from: NodeId, body: &[u8]) -> Result<Bytes, Refused> {
        let part: BodyPart = wire::read(body)?;
        let size = |n: u64| usize::try_from(n).map_err(|_| Refused::BadRequest("a size beyond all bounds".to_owned()));
        let place = (size(part.offset)?, size(part.total)?);
        self.parcels.put(self.clock.monotonic_ms(), from, part.id, place, &part.bytes)?;
        Ok(Bytes::new())
    }

    pub(super) fn give_part(&self, body: &[u8]) -> Result<Bytes, Refused> {
        let ask: FetchPart = wire::read(body)?;
        self.parcels.fetch(self.clock.monotonic_ms(), ask.id, usize::try_from(ask.offset).unwrap_or(usize::MAX))
    }
}

/// The time that is left for a call.
fn left(deadline: Instant) -> Result<Duration, CallError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(CallError::NotSent("the deadline came first".to_owned())) } else { Ok(left) }
}
