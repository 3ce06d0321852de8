//! Raft's requests on their way to one peer, and the answers they wait for.
//!
//! All groups share one stream. Whatever waits when the stream can take more leaves as one message, so a busy pair of nodes
//! pays for one wake-up and one system call where it would pay for many.

use bytes::Bytes;
use granary_proto::peers::{RaftAnswer, RaftFrame as Frame, RaftFrames, RaftKind as Kind};
use parking_lot::Mutex;
use shard::{LinkError, RaftFrame, RaftKind};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes that wait for one peer; a request beyond it is refused, since Raft asks again anyway.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// One request. The largest turn and what is around it are below it.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// Bytes and frames of one message; the last frame may go beyond it.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_FRAMES_MAX: usize = 256;
/// Counted for each frame beside its body.
const FRAME_OVERHEAD: usize = 64;

type Answer = Result<Bytes, LinkError>;

#[derive(Default)]
pub(super) struct Lane(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    last_id: u64,
    queue: VecDeque<Frame>,
    queued_bytes: usize,
    waiting: HashMap<u64, Waiting>,
    waker: Option<Waker>,
    closed: bool,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    has_left: bool,
}

impl Lane {
    /// The answer, or why there is none, after `within` at the latest.
    pub(super) async fn request(self: Arc<Self>, frame: RaftFrame, within: Duration) -> Answer {
        let (id, answer) = self.enter(frame, within)?;
        // Forgets the request if the caller goes away.
        let asked = Asked { lane: &self, id };
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(LinkError::TimedOut),
            Err(_) if asked.has_left() => Err(LinkError::TimedOut),
            Err(_) => Err(LinkError::Unreachable("it was not sent in time".into())),
        }
    }

    fn enter(&self, frame: RaftFrame, within: Duration) -> Result<(u64, oneshot::Receiver<Answer>), LinkError> {
        let (answer, answered) = oneshot::channel();
        let mut inner = self.0.lock();
        if inner.closed {
            return Err(LinkError::Unreachable("the connection has ended".into()));
        }
        let bytes = frame.body.len() + FRAME_OVERHEAD;
        if bytes > FRAME_BYTES_MAX {
            return Err(LinkError::Refused(format!("Expected at most {FRAME_BYTES_MAX} bytes, but it has {bytes}")));
        }
        if !inner.queue.is_empty() && inner.queued_bytes + bytes > QUEUE_BYTES_MAX {
            return Err(LinkError::Unreachable("too much waits for this node".into()));
        }
        inner.last_id += 1;
        let id = inner.last_id;
        inner.queued_bytes += bytes;
        inner.waiting.insert(id, Waiting { answer, has_left: false });
        inner.queue.push_back(Frame {
            id,
            shard: frame.shard.0,
            kind: kind_out(frame.kind).into(),
            body: frame.body,
            within_ms: within.as_millis().min(u128::from(u32::MAX)) as u32,
        });
        if let Some(waker) = inner.waker.take() {
            drop(inner);
            waker.wake();
        }
        Ok((id, answered))
    }

    pub(super) fn answered(&self, answer: RaftAnswer) {
        let waiting = self.0.lock().waiting.remove(&answer.id);
        if let Some(waiting) = waiting {
            let outcome =
                if answer.refused.is_empty() { Ok(answer.body) } else { Err(LinkError::Refused(answer.refused)) };
            waiting.answer.send(outcome).ok();
        }
    }

    /// Ends everything that waits: what has left may have arrived, the rest has not.
    pub(super) fn close(&self) {
        let (waiting, waker) = {
            let mut inner = self.0.lock();
            inner.closed = true;
            inner.queue.clear();
            inner.queued_bytes = 0;
            (std::mem::take(&mut inner.waiting), inner.waker.take())
        };
        for waiting in waiting.into_values() {
            let error = if waiting.has_left {
                LinkError::TimedOut
            } else {
                LinkError::Unreachable("the connection has ended".into())
            };
            waiting.answer.send(Err(error)).ok();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_batch(&self, context: &mut Context<'_>) -> Poll<Option<RaftFrames>> {
        let mut inner = self.0.lock();
        if inner.closed {
            return Poll::Ready(None);
        }
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < BATCH_FRAMES_MAX && bytes < BATCH_BYTES {
            let Some(frame) = inner.queue.pop_front() else { break };
            let size = frame.body.len() + FRAME_OVERHEAD;
            inner.queued_bytes -= size;
            // Nobody waits for it any more.
            let Some(waiting) = inner.waiting.get_mut(&frame.id) else { continue };
            waiting.has_left = true;
            bytes += size;
            frames.push(frame);
        }
        if frames.is_empty() {
            inner.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(RaftFrames { frames }))
    }
}

struct Asked<'a> {
    lane: &'a Lane,
    id: u64,
}

impl Asked<'_> {
    fn has_left(&self) -> bool {
        self.lane.0.lock().waiting.get(&self.id).is_none_or(|waiting| waiting.has_left)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.lane.0.lock().waiting.remove(&self.id);
    }
}

/// The stream of requests that leaves.
pub(super) struct Leaving(pub(super) Arc<Lane>);

impl tokio_stream::Stream for Leaving {
    type Item = RaftFrames;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RaftFrames>> {
        self.0.poll_batch(context)
    }
}

fn kind_out(kind: RaftKind) -> Kind {
    match kind {
        RaftKind::Append => Kind::Append,
        RaftKind::Vote => Kind::Vote,
        RaftKind::PreVote => Kind::PreVote,
        RaftKind::Transfer => Kind::Transfer,
    }
}

/// `None` = a kind of another build.
pub(super) fn kind_in(kind: Kind) -> Option<RaftKind> {
    match kind {
        Kind::Append => Some(RaftKind::Append),
        Kind::Vote => Some(RaftKind::Vote),
        Kind::PreVote => Some(RaftKind::PreVote),
        Kind::Transfer => Some(RaftKind::Transfer),
        Kind::Unspecified => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use shard::ShardId;

    const LONG: Duration = Duration::from_secs(600);

    fn frame(shard: u32, bytes: usize) -> RaftFrame {
        RaftFrame { shard: ShardId(shard), kind: RaftKind::Append, body: vec![0; bytes].into() }
    }

    fn ask(lane: &Arc<Lane>, frame: RaftFrame) -> tokio::task::JoinHandle<Answer> {
        tokio::spawn(lane.clone().request(frame, LONG))
    }

    #[tokio::test]
    async fn what_waits_leaves_as_one_message_and_each_gets_its_own_answer() {
        let lane = Arc::<Lane>::default();
        let (first, second) = (ask(&lane, frame(1, 3)), ask(&lane, frame(2, 4)));
        tokio::task::yield_now().await;
        let batch = Leaving(lane.clone()).next().await.expect("a message");
        assert_eq!(batch.frames.iter().map(|frame| frame.shard).collect::<Vec<_>>(), [1, 2]);
        let answer =
            |id, body: &'static [u8], refused: &str| RaftAnswer { id, body: body.into(), refused: refused.into() };
        lane.answered(answer(batch.frames[1].id, b"two", ""));
        lane.answered(answer(batch.frames[0].id, b"", "no such replica"));
        lane.answered(answer(99, b"nobody's", ""));
        assert_eq!(second.await.unwrap(), Ok("two".into()));
        assert_eq!(first.await.unwrap(), Err(LinkError::Refused("no such replica".into())));
    }

    #[tokio::test]
    async fn a_lost_stream_tells_what_left_from_what_did_not() {
        let lane = Arc::<Lane>::default();
        let left = ask(&lane, frame(1, 3));
        tokio::task::yield_now().await;
        Leaving(lane.clone()).next().await.expect("a message");
        let stayed = ask(&lane, frame(2, 3));
        tokio::task::yield_now().await;
        lane.close();
        assert_eq!(left.await.unwrap(), Err(LinkError::TimedOut));
        assert!(matches!(stayed.await.unwrap(), Err(LinkError::Unreachable(_))));
        assert!(matches!(ask(&lane, frame(3, 3)).await.unwrap(), Err(LinkError::Unreachable(_))));
        assert!(Leaving(lane).next().await.is_none());
    }

    /// [K9]
    #[tokio::test]
    async fn a_stalled_peer_holds_a_bounded_number_of_bytes() {
        let lane = Arc::<Lane>::default();
        let mut asked: Vec<_> = (0..33).map(|_| ask(&lane, frame(0, 1 << 20))).collect();
        // The last one that fits is the one before the bound.
        let refused = asked.split_off(31);
        for refused in refused {
            assert!(matches!(refused.await.unwrap(), Err(LinkError::Unreachable(_))));
        }
        assert!(lane.0.lock().queued_bytes <= QUEUE_BYTES_MAX);
        lane.close();
    }

    #[tokio::test]
    async fn a_request_beyond_all_bounds_does_not_end_the_stream() {
        let lane = Arc::<Lane>::default();
        assert!(matches!(lane.clone().request(frame(0, 32 << 20), LONG).await, Err(LinkError::Refused(_))));
        let fits = ask(&lane, frame(0, (32 << 20) - FRAME_OVERHEAD));
        tokio::task::yield_now().await;
        assert_eq!(Leaving(lane.clone()).next().await.expect("a message").frames.len(), 1);
        fits.abort();
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_does_not_leave() {
        let lane = Arc::<Lane>::default();
        let (first, second) = (ask(&lane, frame(1, 3)), ask(&lane, frame(2, 3)));
        tokio::task::yield_now().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let batch = Leaving(lane.clone()).next().await.expect("a message");
        assert_eq!(batch.frames.iter().map(|frame| frame.shard).collect::<Vec<_>>(), [2]);
        assert_eq!(lane.0.lock().waiting.len(), 1);
        second.abort();
    }
}
