//! Bodies above what one call may carry, in parts: a run with large values has replies above 4 MiB, and a re-projection brings
//! a whole journal.
//!
//! A question is sent ahead in parts and then made by its number; an answer waits under a number until its parts were
//! fetched. Both wait here, for a short while and within a bound of bytes: whoever does not come is forgotten, and makes the
//! call again.

use crate::peers::{CALL_BYTES_MAX, Refused};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::HashMap;

/// Of a body in one call; the rest of [`CALL_BYTES_MAX`] is for what is around it.
pub(crate) const PART_BYTES: usize = CALL_BYTES_MAX - 64 * 1024;
/// One body. A turn's rows are at most 16 MiB, a journal's pages 64.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
/// All that wait here.
const WAITING_BYTES_MAX: usize = 128 << 20;
/// Without a visit for this long it is forgotten.
const FORGET_AFTER_MS: u64 = 15_000;

#[derive(Default)]
pub(crate) struct Parcels(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    bytes: usize,
    answers: HashMap<u64, Parcel<Bytes>>,
    questions: HashMap<(NodeId, u64), Parcel<BytesMut>>,
}

struct Parcel<B> {
    body: B,
    /// What it counts for: for a question its announced size.
    size: usize,
    seen_ms: u64,
}

impl Parcels {
    /// Keeps an answer until it was fetched; gives its number.
    pub(crate) fn keep(&self, now_ms: u64, body: Bytes) -> Result<u64, Refused> {
        let mut state = self.0.lock();
        state.admit(now_ms, body.len())?;
        state.next += 1;
        let (id, size) = (state.next, body.len());
        state.answers.insert(id, Parcel { body, size, seen_ms: now_ms });
        Ok(id)
    }

    /// One part of an answer from `offset` on; the last one ends its keeping.
    pub(crate) fn fetch(&self, now_ms: u64, id: u64, offset: usize) -> Result<Bytes, Refused> {
        let mut state = self.0.lock();
        let parcel = state.answers.get_mut(&id).filter(|parcel| offset < parcel.body.len()).ok_or_else(gone)?;
        parcel.seen_ms = now_ms;
        let end = (offset + PART_BYTES).min(parcel.body.len());
        let part = parcel.body.slice(offset..end);
        if end == parcel.body.len() {
            let size = parcel.size;
            state.answers.remove(&id);
            state.bytes -= size;
        }
        Ok(part)
    }

    /// Takes one part of a question; parts come in order.
    pub(crate) fn put(
        &self,
        now_ms: u64,
        from: NodeId,
        id: u64,
        (offset, total): (usize, usize),
        part: &[u8],
    ) -> Result<(), Refused> {
        let mut state = self.0.lock();
        if offset == 0 {
            if let Some(before) = state.questions.remove(&(from, id)) {
                state.bytes -= before.size;
            }
            state.admit(now_ms, total)?;
            state.questions.insert((from, id), Parcel { body: BytesMut::new(), size: total, seen_ms: now_ms });
        }
        let parcel = state.questions.get_mut(&(from, id)).ok_or_else(gone)?;
        if parcel.body.len() != offset || offset + part.len() > parcel.size {
            return Err(Refused::BadRequest("a part out of order".to_owned()));
        }
        parcel.seen_ms = now_ms;
        parcel.body.extend_from_slice(part);
        Ok(())
    }

    /// The whole question.
    pub(crate) fn take(&self, from: NodeId, id: u64) -> Result<Bytes, Refused> {
        let mut state = self.0.lock();
        let parcel = state.questions.remove(&(from, id)).ok_or_else(gone)?;
        state.bytes -= parcel.size;
        if parcel.body.len() < parcel.size {
            return Err(Refused::BadRequest("parts are missing".to_owned()));
        }
        Ok(parcel.body.freeze())
    }
}

impl State {
    fn admit(&mut self, now_ms: u64, size: usize) -> Result<(), Refused> {
        if size > BODY_BYTES_MAX {
            return Err(Refused::BadRequest(format!("a body of {size} bytes, but the most is {BODY_BYTES_MAX}")));
        }
        let old = |seen_ms: u64| now_ms.saturating_sub(seen_ms) > FORGET_AFTER_MS;
        let mut freed = 0;
        self.answers.retain(|_, parcel| {
            let keep = !old(parcel.seen_ms);
            freed += if keep { 0 } else { parcel.size };
            keep
        });
        self.questions.retain(|_, parcel| {
            let keep = !old(parcel.seen_ms);
            freed += if keep { 0 } else { parcel.size };
            keep
        });
        self.bytes -= freed;
        if self.bytes + size > WAITING_BYTES_MAX {
            return Err(Refused::Overloaded);
        }
        self.bytes += size;
        Ok(())
    }
}

fn gone() -> Refused {
    Refused::Other("no such body waits here (any more)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_answer_is_fetched_in_parts_and_then_forgotten() {
        let parcels = Parcels::default();
        let body = Bytes::from(vec![7; PART_BYTES + 10]);
        let id = parcels.keep(0, body.clone()).expect("room");
        let first = parcels.fetch(1, id, 0).expect("there");
        let rest = parcels.fetch(2, id, first.len()).expect("there");
        assert_eq!([first, rest].concat(), body);
        assert!(parcels.fetch(3, id, 0).is_err());
        assert_eq!(parcels.0.lock().bytes, 0);
    }

    #[test]
    fn a_large_question_is_put_together_in_order_only() {
        let parcels = Parcels::default();
        parcels.put(0, 2, 9, (0, 6), b"abc").expect("room");
        assert!(parcels.put(0, 2, 9, (4, 6), b"ef").is_err(), "a hole");
        assert!(parcels.put(0, 3, 9, (3, 6), b"def").is_err(), "another node's");
        parcels.put(0, 2, 9, (3, 6), b"def").expect("fits");
        assert_eq!(parcels.take(2, 9), Ok(Bytes::from_static(b"abcdef")));
        parcels.put(0, 2, 9, (0, 6), b"abc").expect("room");
        assert!(parcels.put(0, 2, 9, (3, 6), b"defg").is_err(), "more than was announced");
        assert!(parcels.take(2, 9).is_err(), "not whole");
        assert_eq!(parcels.0.lock().bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_and_what_nobody_fetches_is_forgotten() {
        let parcels = Parcels::default();
        let body = Bytes::from(vec![0; BODY_BYTES_MAX]);
        assert!(parcels.keep(0, body.clone()).is_ok() && parcels.keep(0, body.clone()).is_ok());
        assert_eq!(parcels.keep(1, body.clone()), Err(Refused::Overloaded));
        assert_eq!(parcels.put(1, 2, 1, (0, 1), b"x"), Err(Refused::Overloaded));
        assert!(parcels.keep(FORGET_AFTER_MS + 1, body).is_ok());
        assert!(parcels.put(0, 2, 1, (0, BODY_BYTES_MAX + 1), b"").is_err());
    }
}
