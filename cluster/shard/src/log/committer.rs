//! The one thread that writes.
//!
//! It takes what waits, makes one frame of it, writes and syncs it once, and then tells everybody in the order they came.
//! No timer holds anything back: while one sync runs the next batch gathers by itself.
//!
//! A failed write or sync ends the log for this process. After a failed sync the system may have dropped the pages and
//! call the next sync a success, so a second try would acknowledge what is not there. The next open finds out what is.

use super::alive::Counts;
use super::failure::Failure;
use super::frame;
use super::queue::{Batch, Change, Request};
use super::record::{self, Kind};
use super::segment::{self, Segment};
use super::shared::Shared;
use super::supply::Supply;
use super::written::{self, Written};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub struct Committer {
    pub shared: Arc<Shared>,
    pub supply: Arc<Supply>,
    /// The segment that is written and the place behind its last frame.
    pub active: Option<(Arc<Segment>, u64)>,
    pub written: Vec<Written>,
    pub buffer: Vec<u8>,
}

/// A batch that is written and not yet synced.
pub struct PutDown {
    requests: Vec<Request>,
    target: Target,
    records_at: usize,
}

/// Where a batch went.
struct Target {
    segment: Arc<Segment>,
    offset: u64,
    is_new: bool,
}

impl Committer {
    /// Until the queue is closed and empty.
    pub fn run(mut self) {
        while let Some(batch) = self.shared.queue.next() {
            if let Some(written) = self.put_down(batch) {
                self.make_durable(written);
            }
        }
    }

    /// Writes a batch where it will be synced; `None` if there is nothing to sync.
    pub fn put_down(&mut self, batch: Batch) -> Option<PutDown> {
        if let Some(failure) = self.shared.failure() {
            refuse(batch.requests, &failure);
            return None;
        }
        let lazy = self.lazy_records(&batch);
        let requests = batch.requests;
        if requests.is_empty() && lazy.is_empty() {
            return None;
        }
        match self.write(&requests, &lazy) {
            Ok((target, records_at)) => Some(PutDown { requests, target, records_at }),
            Err(error) => {
                self.fail(requests, &error);
                None
            }
        }
    }

    /// Syncs what was put down and tells everybody.
    pub fn make_durable(&mut self, PutDown { requests, target, records_at }: PutDown) {
        match target.segment.file.sync() {
            Ok(()) => {
                let stats = &self.shared.stats;
                stats.syncs.fetch_add(1, Relaxed);
                stats.requests.fetch_add(requests.len() as u64, Relaxed);
                stats.bytes.fetch_add(self.buffer.len() as u64, Relaxed);
                self.finish(requests, target, records_at);
            }
            Err(error) => self.fail(requests, &error),
        }
    }

    fn fail(&self, requests: Vec<Request>, error: &io::Error) {
        let failure = Failure::from(error);
        self.shared.stop(failure.clone());
        refuse(requests, &failure);
    }

    /// Pointers and checkpoints that rode along; only their last value counts, so their place in the batch does not.
    fn lazy_records(&mut self, batch: &Batch) -> Vec<u8> {
        let mut records = Vec::new();
        for &id in &batch.lazy {
            let mut group = self.shared.groups[id as usize].lock();
            let written = &mut self.written[id as usize];
            if std::mem::take(&mut group.committed_waits) {
                written.committed = group.committed;
                record::push_pointer(&mut records, Kind::Committed, id, group.committed);
            }
            if std::mem::take(&mut group.checkpoint_waits)
                && let Some(checkpoint) = &group.checkpoint
            {
                written.checkpoint = Some(checkpoint.clone());
                record::push_checkpoint(&mut records, id, checkpoint);
            }
        }
        records
    }

    /// Tells where the batch lies now, and where in its frame the requests' records begin.
    fn write(&mut self, requests: &[Request], lazy: &[u8]) -> io::Result<(Target, usize)> {
        let body_bytes = lazy.len() + requests.iter().map(|request| request.bytes.len()).sum::<usize>();
        let target = self.target(frame::size(body_bytes))?;
        self.buffer.clear();
        self.buffer.resize(frame::HEAD_BYTES, 0);
        if target.is_new {
            written::push_head(&mut self.buffer, &self.shared.alive.ends(), &self.written);
        }
        self.buffer.extend_from_slice(lazy);
        let records_at = self.buffer.len();
        requests.iter().for_each(|request| self.buffer.extend_from_slice(&request.bytes));
        frame::seal(&mut self.buffer, target.segment.number, target.offset);
        target.segment.file.write_at(&self.buffer, target.offset)?;
        Ok((target, records_at))
    }

    /// The present segment if the frame fits, else the next one. A frame larger than any segment gets one of its own.
    fn target(&mut self, frame_bytes: usize) -> io::Result<Target> {
        if let Some((segment, end)) = &self.active
            && end + frame_bytes as u64 <= segment.capacity
        {
            return Ok(Target { segment: segment.clone(), offset: *end, is_new: false });
        }
        Ok(Target { segment: Arc::new(self.supply.take()?), offset: segment::DATA_AT, is_new: true })
    }

    /// Takes a durable batch into memory, then tells everybody.
    fn finish(&mut self, requests: Vec<Request>, target: Target, records_at: usize) {
        let number = target.segment.number;
        let end = target.offset + self.buffer.len() as u64;
        if target.is_new {
            self.shared.alive.add(target.segment.clone(), end, 0);
        }
        let (mut gained, mut lost) = (Counts::new(), Counts::new());
        let mut offset = target.offset as usize + records_at;
        for request in &requests {
            self.take_in(request, number, offset, &mut gained, &mut lost);
            offset += request.bytes.len();
        }
        self.active = Some((target.segment, end));
        self.supply.bury(self.shared.alive.settle(number, end, &gained, &lost));
        self.shared.evict();
        requests.into_iter().for_each(|request| request.done.tell(Ok(())));
        // One huge batch must not cost its memory for ever.
        self.buffer.shrink_to(4 * super::bounds::BATCH_BYTES_MAX);
    }

    fn take_in(&mut self, request: &Request, number: u64, mut offset: usize, gained: &mut Counts, lost: &mut Counts) {
        let written = &mut self.written[request.group as usize];
        let mut group = self.shared.groups[request.group as usize].lock();
        match &request.change {
            Change::Append(entries) => {
                let mut found = 0;
                for (id, bytes) in entries {
                    if let Some(before) = group.index.locate(*id, number, offset as u32) {
                        found += 1;
                        lost.extend(before.map(|segment| (segment, 1)));
                    }
                    offset += *bytes as usize;
                }
                gained.push((number, found));
                written.append(entries);
            }
            Change::Vote(vote) => {
                group.vote = Some(*vote);
                written.vote = Some(*vote);
            }
            Change::Truncate(after, counts) => {
                written.truncate(*after);
                lost.extend(counts);
            }
            Change::Purge(upto, counts) => {
                written.purge(*upto);
                lost.extend(counts);
            }
            Change::Forget(counts) => {
                written.forget();
                lost.extend(counts);
            }
            Change::Mark => {}
        }
    }
}

fn refuse(requests: Vec<Request>, failure: &Failure) {
    requests.into_iter().for_each(|request| request.done.tell(Err(failure)));
}
