//! What waits for the committer: one line for all groups, first come, first written.

use super::alive::Counts;
use super::bounds::{BATCH_BYTES_MAX, BATCH_REQUESTS_MAX, LAZY_WAIT_MAX, QUEUE_BYTES_MAX};
use super::failure::Failure;
use super::{LogId, Vote};
use crate::raft::types::TypeConfig;
use openraft::storage::IOFlushed;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// Records of one group that become durable together.
pub struct Request {
    pub group: u32,
    /// Encoded already, by whoever asks.
    pub bytes: Vec<u8>,
    pub change: Change,
    pub done: Done,
}

/// What the bytes mean.
pub enum Change {
    /// Entries with the sizes of their records, in order.
    Append(Vec<(LogId, u32)>),
    Vote(Vote),
    /// Entries behind the pointer are gone; those segments lose them once it is durable.
    Truncate(Option<LogId>, Counts),
    Purge(LogId, Counts),
    /// Everything of the group is gone but its vote; those segments lose its entries once it is durable.
    Forget(Counts),
    /// A process begins or ends.
    Mark,
}

/// Whom to tell.
pub enum Done {
    Raft(IOFlushed<TypeConfig>),
    Task(oneshot::Sender<io::Result<()>>),
    Thread(std::sync::mpsc::SyncSender<io::Result<()>>),
    Nobody,
}

impl Done {
    pub fn tell(self, result: Result<(), &Failure>) {
        let result = result.map_err(Failure::to_io);
        // Whoever does not listen any more has given up on its own account.
        match self {
            Self::Raft(callback) => callback.io_completed(result),
            Self::Task(sender) => drop(sender.send(result)),
            Self::Thread(sender) => drop(sender.try_send(result)),
            Self::Nobody => {}
        }
    }
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    /// Told as well, if the committer is a task.
    pub task: OnceLock<Arc<Notify>>,
    room: Notify,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Groups with a pointer or a checkpoint that may wait for a batch to ride on, and since when the first one waits.
    lazy: BTreeSet<u32>,
    lazy_since: Option<Instant>,
    closing: bool,
}

#[derive(Default)]
pub struct Batch {
    pub requests: Vec<Request>,
    /// Groups to ask for their pointers and checkpoints.
    pub lazy: BTreeSet<u32>,
}

impl Queue {
    /// Waits until an append may come.
    pub async fn room(&self) {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            // Registered before the look, so that room made in between is not missed.
            notified.as_mut().enable();
            {
                let state = self.state.lock();
                if state.bytes < QUEUE_BYTES_MAX || state.closing {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Gives the request back if the log is closed.
    pub fn push(&self, request: Request) -> Option<Request> {
        let mut state = self.state.lock();
        if state.closing {
            return Some(request);
        }
        state.add(request);
        self.arrived();
        None
    }

    /// The last request; none is taken after it.
    pub fn push_last(&self, request: Request) -> Option<Request> {
        let mut state = self.state.lock();
        if state.closing {
            return Some(request);
        }
        state.add(request);
        state.closing = true;
        self.arrived();
        self.room.notify_waiters();
        None
    }

    /// Something of this group waits that needs no batch of its own for a while.
    pub fn lazy(&self, group: u32) {
        let mut state = self.state.lock();
        state.lazy.insert(group);
        if state.lazy_since.is_none() {
            state.lazy_since = Some(Instant::now());
            self.arrived();
        }
    }

    /// Takes no more requests; what waits is still handed out.
    pub fn close(&self) {
        self.state.lock().closing = true;
        self.arrived();
        self.room.notify_waiters();
    }

    /// What waits now, in batches, without waiting for more: for a committer without a thread.
    pub fn waiting(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        (!state.requests.is_empty() || !state.lazy.is_empty()).then(|| self.hand_out(&mut state))
    }

    /// Whether something waits that needs a batch at once.
    pub fn is_pressing(&self) -> bool {
        !self.state.lock().requests.is_empty()
    }

    pub fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// The next batch; waits for one. `None` once closed and empty.
    pub fn next(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if !state.requests.is_empty() {
                break;
            }
            if state.closing {
                return None;
            }
            match state.lazy_since.map(|since| since + LAZY_WAIT_MAX) {
                Some(due) if due <= Instant::now() => break,
                Some(due) => drop(self.arrived.wait_until(&mut state, due)),
                None => self.arrived.wait(&mut state),
            }
        }
        Some(self.hand_out(&mut state))
    }

    fn hand_out(&self, state: &mut State) -> Batch {
        let batch = state.drain();
        if state.bytes < QUEUE_BYTES_MAX {
            self.room.notify_waiters();
        }
        batch
    }

    fn arrived(&self) {
        self.arrived.notify_one();
        if let Some(task) = self.task.get() {
            task.notify_one();
        }
    }
}

impl State {
    fn add(&mut self, request: Request) {
        self.bytes += request.bytes.len();
        self.requests.push_back(request);
    }

    fn drain(&mut self) -> Batch {
        self.lazy_since = None;
        let mut batch = Batch { requests: Vec::new(), lazy: std::mem::take(&mut self.lazy) };
        let mut bytes = 0;
        while let Some(next) = self.requests.front() {
            let full = bytes + next.bytes.len() > BATCH_BYTES_MAX || batch.requests.len() == BATCH_REQUESTS_MAX;
            if full && !batch.requests.is_empty() {
                break;
            }
            bytes += next.bytes.len();
            batch.requests.extend(self.requests.pop_front());
        }
        self.bytes -= bytes;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> Request {
        Request { group: 0, bytes: vec![0; bytes], change: Change::Mark, done: Done::Nobody }
    }

    #[test]
    fn a_batch_takes_what_waits_up_to_its_bounds_and_never_nothing() {
        let queue = Queue::default();
        for bytes in [BATCH_BYTES_MAX + 1, BATCH_BYTES_MAX - 1, 1, 1] {
            assert!(queue.push(request(bytes)).is_none());
        }
        for _ in 0..BATCH_REQUESTS_MAX + 1 {
            assert!(queue.push(request(0)).is_none());
        }
        let sizes: Vec<_> = (0..4).filter_map(|_| queue.next()).map(|batch| batch.requests.len()).collect();
        // The third and later batches: one byte and then empty ones until the count is full.
        assert_eq!(sizes, [1, 2, BATCH_REQUESTS_MAX, 2]);
        queue.close();
        assert!(queue.push(request(1)).is_some());
        assert!(queue.next().is_none());
    }

    #[test]
    fn a_lazy_pointer_rides_on_the_next_batch_or_makes_one_when_its_time_is_up() {
        let queue = Queue::default();
        queue.lazy(4);
        assert!(queue.push(request(1)).is_none());
        let batch = queue.next().unwrap();
        assert_eq!((batch.requests.len(), batch.lazy), (1, BTreeSet::from([4])));
        let begun = Instant::now();
        queue.lazy(2);
        queue.lazy(3);
        let batch = queue.next().unwrap();
        assert_eq!((batch.requests.len(), batch.lazy), (0, BTreeSet::from([2, 3])));
        assert!(begun.elapsed() >= LAZY_WAIT_MAX);
    }

    #[test]
    fn an_append_waits_while_the_queue_is_full() {
        let queue = Queue::default();
        assert!(queue.push(request(QUEUE_BYTES_MAX)).is_none());
        let mut waiting = tokio_test_like(queue.room());
        assert!(!waiting(), "full");
        queue.next();
        assert!(waiting(), "drained");
    }

    /// Polls a future by hand; tells whether it is ready.
    fn tokio_test_like<'a>(future: impl Future<Output = ()> + 'a) -> impl FnMut() -> bool + 'a {
        let mut future = Box::pin(future);
        move || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            future.as_mut().poll(&mut context).is_ready()
        }
    }
}
