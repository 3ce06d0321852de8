//! Makes segments ready ahead of their use, in a thread of its own.
//!
//! The committer must never fill a file with zeros: that stalled it for hundreds of milliseconds. So it only takes what is
//! ready, and a dead segment is renamed to the next number instead of writing zeros again. A file is durable, and its name
//! too, before the committer may see it.

use super::bounds::{FILL_STEP_BYTES, READY_MAX, READY_MIN};
use super::disk::Disk;
use super::failure::Failure;
use super::segment::{self, Segment};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

const HALF_MADE: &str = "fill.tmp";

pub struct Supply {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// There is no helper: whoever asks does its work.
    alone: bool,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Segment>,
    dead: VecDeque<Arc<Segment>>,
    next_number: u64,
    /// Why the last filling failed; none is tried again until somebody needs a segment.
    failed: Option<Failure>,
    closing: bool,
}

impl Supply {
    /// `ready` are files that hold nothing yet, in the order of their numbers.
    /// `alone`: no helper will run, so segments are made when they are asked for.
    pub fn new(disk: Arc<dyn Disk>, segment_bytes: u64, ready: Vec<Segment>, next_number: u64, alone: bool) -> Self {
        let state = State { ready: ready.into(), next_number, ..State::default() };
        Self { disk, segment_bytes, state: Mutex::new(state), changed: Condvar::new(), alone }
    }

    /// Whether a file is left over from a filling that did not end.
    pub fn is_leftover(name: &str) -> bool {
        name == HALF_MADE
    }

    /// Fills until so many are ready. Only where no helper runs.
    pub fn fill_up_to(&self, count: usize) -> io::Result<()> {
        while self.state.lock().ready.len() < count {
            let number = self.state.lock().next_number;
            let segment = self.fill(number)?;
            self.state.lock().add(segment);
        }
        Ok(())
    }

    /// The next segment; waits for the helper if none is ready.
    pub fn take(&self) -> io::Result<Segment> {
        if self.alone {
            self.fill_up_to(1)?;
        }
        let mut state = self.state.lock();
        // One more try after a failure of some time ago: the disk may have room again.
        let mut may_retry = true;
        loop {
            if let Some(segment) = state.ready.pop_front() {
                self.changed.notify_all();
                return Ok(segment);
            }
            match &state.failed {
                Some(_) if may_retry => {
                    may_retry = false;
                    state.failed = None;
                    self.changed.notify_all();
                }
                Some(failure) => return Err(failure.to_io()),
                None if state.closing => return Err(io::Error::other("the log is closed")),
                None => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// Gives back segments that hold nothing of worth.
    pub fn bury(&self, dead: Vec<Arc<Segment>>) {
        if !dead.is_empty() {
            self.state.lock().dead.extend(dead);
            self.changed.notify_all();
            if self.alone {
                while self.tend() {}
            }
        }
    }

    /// Ends [`Supply::run`] and every wait.
    pub fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// The helper thread.
    pub fn run(&self) {
        while !self.state.lock().closing {
            if !self.tend() {
                let mut state = self.state.lock();
                if !state.has_work() && !state.closing {
                    self.changed.wait(&mut state);
                }
            }
        }
    }

    /// Does one thing that waits to be done; says whether there was one.
    fn tend(&self) -> bool {
        let mut state = self.state.lock();
        if state.closing || !state.has_work() {
            return false;
        }
        let number = state.next_number;
        if let Some(dead) = state.dead.pop_front() {
            let keep = state.ready.len() < READY_MAX;
            drop(state);
            if let Some(segment) = self.recycle(dead, keep.then_some(number)) {
                self.state.lock().add(segment);
                self.changed.notify_all();
            }
        } else {
            drop(state);
            let filled = self.fill(number);
            let mut state = self.state.lock();
            match filled {
                Ok(segment) => state.add(segment),
                Err(error) => state.failed = Some(Failure::from(&error)),
            }
            self.changed.notify_all();
        }
        true
    }

    fn fill(&self, number: u64) -> io::Result<Segment> {
        let made = self.make(number);
        if made.is_err() {
            // On a full disk the half-made file would only make it worse. If this fails too, the next open removes it.
            let _ = self.disk.remove(HALF_MADE);
        }
        made
    }

    fn make(&self, number: u64) -> io::Result<Segment> {
        let file = self.disk.create(HALF_MADE)?;
        file.write_at(&segment::header(self.segment_bytes), 0)?;
        let zeros = vec![0; FILL_STEP_BYTES.min(self.segment_bytes as usize)];
        let mut at = segment::DATA_AT;
        while at < self.segment_bytes {
            if self.state.lock().closing {
                return Err(io::Error::other("the log is closed"));
            }
            let step = zeros.len().min((self.segment_bytes - at) as usize);
            file.write_at(&zeros[..step], at)?;
            at += step as u64;
        }
        file.sync()?;
        self.disk.rename(HALF_MADE, &segment::name(number))?;
        self.disk.sync_names()?;
        Ok(Segment { number, file, capacity: self.segment_bytes })
    }

    /// Renames a dead segment to the next number, or removes it. A reader that still holds the file must not see it
    /// change, so then it is removed, which leaves the reader its content.
    fn recycle(&self, dead: Arc<Segment>, next: Option<u64>) -> Option<Segment> {
        let old_name = segment::name(dead.number);
        // One that grew for a large batch does not go back among the others.
        let fits = dead.capacity == self.segment_bytes && dead.file.size().is_ok_and(|size| size == self.segment_bytes);
        let next = next.filter(|_| fits);
        let done = match (Arc::try_unwrap(dead), next) {
            (Ok(alone), Some(number)) => self
                .disk
                .rename(&old_name, &segment::name(number))
                .and_then(|()| self.disk.sync_names())
                .map(|()| Some(Segment { number, ..alone })),
            _ => self.disk.remove(&old_name).and_then(|()| self.disk.sync_names()).map(|()| None),
        };
        // A file that stays under its old name costs disk only: the next open sees that nobody needs it.
        done.unwrap_or_else(|error| {
            tracing::warn!(%error, file = old_name, "a dead log segment could be neither recycled nor removed");
            None
        })
    }
}

impl State {
    fn has_work(&self) -> bool {
        !self.dead.is_empty() || (self.ready.len() < READY_MIN && self.failed.is_none())
    }

    /// Numbers are given on success only: one without a file would look like a lost file at open.
    fn add(&mut self, segment: Segment) {
        self.next_number = segment.number + 1;
        self.ready.push_back(segment);
    }
}
