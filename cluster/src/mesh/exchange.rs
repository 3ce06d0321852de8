//! Raft's stream at the receiving end: requests in, answers out, as they are ready.
//!
//! One task a stream does all of it: requests are polled where they were read, so the order of a group's appends is kept as
//! far as the replica has to see them in order, and no request costs a task of its own.

use super::lane::kind_in;
use super::raft::RaftTarget;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use granary_proto::peers::{RaftAnswer, RaftAnswers, RaftFrame as Frame, RaftFrames};
use shard::{LinkError, NodeId, RaftFrame, ShardId};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Status, Streaming};

/// Requests of one peer that are worked on at once, and their bytes; beyond it nothing more is read.
const RUNNING_MAX: usize = 512;
const RUNNING_BYTES_MAX: usize = 64 << 20;
/// Answers of one message.
const BATCH_ANSWERS_MAX: usize = 256;
/// No request is worked on for longer.
const WITHIN_MAX: Duration = Duration::from_secs(60);

/// `None` = the sender will have its answer from its own clock.
type Done = (usize, Option<RaftAnswer>);

pub(super) struct Answers {
    frames: Streaming<RaftFrames>,
    from: NodeId,
    target: Arc<dyn RaftTarget>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    running_bytes: usize,
    is_over: bool,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Answers {
    pub(super) fn new(
        frames: Streaming<RaftFrames>,
        from: NodeId,
        target: Arc<dyn RaftTarget>,
        end: WaitForCancellationFutureOwned,
    ) -> Self {
        let (running, end) = (FuturesUnordered::new(), Box::pin(end));
        Self { frames, from, target, running, running_bytes: 0, is_over: false, end }
    }

    fn read(&mut self, context: &mut Context<'_>) {
        while !self.is_over && self.running.len() < RUNNING_MAX && self.running_bytes < RUNNING_BYTES_MAX {
            match self.frames.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(batch))) => {
                    for frame in batch.frames {
                        self.running_bytes += frame.body.len();
                        self.running.push(work(self.target.clone(), self.from, frame).boxed());
                    }
                }
                Poll::Ready(Some(Err(_)) | None) => self.is_over = true,
                Poll::Pending => return,
            }
        }
    }

    fn gather(&mut self, context: &mut Context<'_>) -> Vec<RaftAnswer> {
        let mut answers = Vec::new();
        while answers.len() < BATCH_ANSWERS_MAX {
            let Poll::Ready(Some((bytes, answer))) = self.running.poll_next_unpin(context) else { break };
            self.running_bytes -= bytes;
            answers.extend(answer);
        }
        answers
    }
}

impl Stream for Answers {
    type Item = Result<RaftAnswers, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            self.read(context);
            let was_full = self.running.len() >= RUNNING_MAX || self.running_bytes >= RUNNING_BYTES_MAX;
            let answers = self.gather(context);
            if !answers.is_empty() {
                return Poll::Ready(Some(Ok(RaftAnswers { answers })));
            }
            if self.is_over && self.running.is_empty() {
                return Poll::Ready(None);
            }
            // Work that ended without an answer has made room, and nothing else would wake the reading.
            let is_full = self.running.len() >= RUNNING_MAX || self.running_bytes >= RUNNING_BYTES_MAX;
            if !was_full || is_full {
                return Poll::Pending;
            }
        }
    }
}

async fn work(target: Arc<dyn RaftTarget>, from: NodeId, frame: Frame) -> Done {
    let (bytes, id) = (frame.body.len(), frame.id);
    let Some(kind) = kind_in(frame.kind()) else {
        return (bytes, Some(refused(id, "Expected a known kind of message, but it is none".into())));
    };
    let within = Duration::from_millis(frame.within_ms.into()).min(WITHIN_MAX);
    let frame = RaftFrame { shard: ShardId(frame.shard), kind, body: frame.body };
    let request = AssertUnwindSafe(async move { target.request(from, frame).await }).catch_unwind();
    let answer = match tokio::time::timeout(within, request).await {
        Ok(Ok(Ok(body))) => Some(RaftAnswer { id, refused: String::new(), body }),
        Ok(Ok(Err(LinkError::Refused(why)))) => Some(refused(id, why)),
        // Whether it happened is not known; the sender's clock says so.
        Ok(Ok(Err(LinkError::TimedOut | LinkError::Unreachable(_)))) | Err(_) => None,
        Ok(Err(_)) => {
            tracing::error!("a replica panicked over another node's message");
            None
        }
    };
    (bytes, answer)
}

fn refused(id: u64, mut why: String) -> RaftAnswer {
    if why.is_empty() {
        why = "refused".into();
    }
    RaftAnswer { id, refused: why, body: Default::default() }
}
