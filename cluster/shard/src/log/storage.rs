//! One group's log as openraft wants it.

use super::bounds::{READ_BYTES_MAX, REQUEST_BYTES_MAX};
use super::group::Group;
use super::index::Place;
use super::queue::{Change, Done, Request};
use super::record::{self, Kind};
use super::segment::{self, Segment};
use super::shared::Shared;
use super::{Checkpoint, Entry, LogId, Vote};
use crate::raft::types::TypeConfig;
use crate::testing::Sabotage;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::MutexGuard;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Handle of one group; clones share the same log.
#[derive(Clone)]
pub struct GroupLog {
    pub(super) group: u32,
    pub(super) shared: Arc<Shared>,
}

/// Entries with the sizes of their records.
type Measured = Vec<(Entry, u32)>;

/// An entry in memory, or where it lies. The segment is held, so it is not recycled under the reader.
enum Part {
    Held(Entry),
    Stored(Arc<Segment>, LogId, Place),
}

impl GroupLog {
    /// As read at open or written later.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.lock().checkpoint.clone()
    }

    /// As read at open or saved later. After an open it is never beyond the last entry.
    pub fn committed(&self) -> Option<LogId> {
        self.lock().committed
    }

    /// Whether there is nothing but perhaps a vote.
    pub fn is_blank(&self) -> bool {
        let group = self.lock();
        let checkpoint = group.checkpoint.as_ref().and_then(|checkpoint| checkpoint.last_applied);
        group.last().is_none() && group.committed.is_none() && checkpoint.is_none()
    }

    /// Removes everything but the vote, and returns when that is durable. Only while no Raft runs on the group.
    ///
    /// The vote stays because it is a promise that was given to others: a replica that comes back on this node must not
    /// take entries from a leader that it has helped to depose.
    pub async fn forget(&self) -> Result<(), io::Error> {
        if self.is_blank() {
            return Ok(());
        }
        let nothing = Checkpoint::default();
        let mut bytes = Vec::new();
        for kind in [Kind::Truncate, Kind::Purge, Kind::Committed] {
            record::push_pointer(&mut bytes, kind, self.group, None);
        }
        record::push_checkpoint(&mut bytes, self.group, &nothing);
        let (sender, receiver) = oneshot::channel();
        {
            let mut group = self.lock();
            let lost = group.index.truncate_from(0);
            *group = Group { vote: group.vote, checkpoint: Some(nothing), ..Group::default() };
            self.shared.submit(self.request(bytes, Change::Forget(lost), Done::Task(sender)))?;
        }
        told(receiver).await
    }

    fn lock(&self) -> MutexGuard<'_, Group> {
        self.shared.groups[self.group as usize].lock()
    }

    fn request(&self, bytes: Vec<u8>, change: Change, done: Done) -> Request {
        Request { group: self.group, bytes, change, done }
    }

    /// Encodes entries into requests that are short enough, the last one with the callback.
    fn append_requests(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        callback: IOFlushed<TypeConfig>,
    ) -> io::Result<(Vec<Request>, Measured)> {
        let (mut requests, mut kept) = (Vec::new(), Vec::new());
        let (mut bytes, mut ids) = (Vec::new(), Vec::new());
        for entry in entries {
            if bytes.len() > REQUEST_BYTES_MAX {
                let change = Change::Append(std::mem::take(&mut ids));
                requests.push(self.request(std::mem::take(&mut bytes), change, Done::Nobody));
            }
            let size = record::push_entry(&mut bytes, self.group, &entry)? as u32;
            ids.push((entry.log_id, size));
            kept.push((entry, size));
        }
        requests.push(self.request(bytes, Change::Append(ids), Done::Raft(callback)));
        Ok((requests, kept))
    }

    /// Entries of a range as far as the log has them; at least one but no more than so many bytes if a bound is given.
    fn read(&self, range: Range<u64>, bytes_max: Option<u64>) -> io::Result<Vec<Entry>> {
        let mut parts = Vec::new();
        {
            let group = self.lock();
            let mut bytes = 0;
            for index in range.start.max(group.index.first())..range.end.min(group.index.end()) {
                let Some((id, place)) = group.index.get(index) else { break };
                bytes += u64::from(place.bytes);
                if !parts.is_empty() && bytes_max.is_some_and(|max| bytes > max) {
                    break;
                }
                parts.push(match group.cache.get(index) {
                    Some(entry) => Part::Held(entry.clone()),
                    // While the group is locked none of its entries can be purged, so their segments are alive.
                    None => Part::Stored(self.shared.alive.get(place.segment).ok_or_else(|| lost(id))?, id, place),
                });
            }
        }
        let mut buffer = Vec::new();
        parts
            .into_iter()
            .map(|part| match part {
                Part::Held(entry) => Ok(entry),
                Part::Stored(segment, id, place) => self.read_stored(&segment, id, place, &mut buffer),
            })
            .collect()
    }

    fn read_stored(&self, segment: &Segment, id: LogId, place: Place, buffer: &mut Vec<u8>) -> io::Result<Entry> {
        buffer.resize(place.bytes as usize, 0);
        segment.file.read_at(buffer, u64::from(place.offset))?;
        let wrong = |what: String| {
            let file = segment::name(segment.number);
            io::Error::new(io::ErrorKind::InvalidData, format!("entry {id} in {file} at byte {}: {what}", place.offset))
        };
        let (found, _) = record::read(buffer).map_err(|what| wrong(what.to_owned()))?;
        if (found.group, found.log_id) != (self.group, id) {
            return Err(wrong(format!(
                "Expected group {}, but found {} of group {}",
                self.group, found.log_id, found.group
            )));
        }
        record::entry(&found)
            .ok_or_else(|| wrong(format!("Expected an entry, but found {:?}", found.kind)))?
            .map_err(wrong)
    }
}

impl RaftLogReader<TypeConfig> for GroupLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start..end, None)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start..end, Some(READ_BYTES_MAX))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let group = self.lock();
        Ok(LogState { last_purged_log_id: group.purged, last_log_id: group.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut bytes = Vec::new();
        record::push_vote(&mut bytes, self.group, vote);
        if self.shared.stage.is_sabotaged(Sabotage::VoteUnsynced) {
            self.lock().vote = Some(*vote);
        } else {
            let (sender, receiver) = oneshot::channel();
            {
                let _ordered = self.lock();
                self.shared.submit(self.request(bytes, Change::Vote(*vote), Done::Task(sender)))?;
            }
            told(receiver).await?;
        }
        // One that is committed follows a leader that others have elected.
        if let Some(witness) = self.shared.stage.witness()
            && !vote.committed
        {
            witness.voted(self.group, vote.leader_id.term, vote.leader_id.voted_for);
        }
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        {
            let mut group = self.lock();
            if group.committed == committed {
                return Ok(());
            }
            group.committed = committed;
            group.committed_waits = true;
        }
        self.shared.queue.lazy(self.group);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.committed())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.shared.queue.room().await;
        let (requests, kept) = self.append_requests(entries, callback)?;
        let mut group = self.lock();
        let mut wanted = group.next();
        for (entry, _) in &kept {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != entry.log_id.index) {
                return Err(unfit(format!("Expected entry {wanted}, but found {}", entry.log_id.index)));
            }
            wanted = Some(entry.log_id.index + 1);
        }
        for (entry, size) in kept {
            group.index.push(entry.log_id, size);
            group.cache.push(entry);
        }
        requests.into_iter().try_for_each(|request| self.shared.submit(request))
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let mut bytes = Vec::new();
        record::push_pointer(&mut bytes, Kind::Truncate, self.group, last);
        let (sender, receiver) = oneshot::channel();
        {
            let mut group = self.lock();
            if last.map(|id| id.index) < group.purged.map(|id| id.index) {
                return Err(unfit(format!("Expected to keep what is purged, but found truncation after {last:?}")));
            }
            let from = last.map_or(0, |id| id.index + 1);
            let lost = group.index.truncate_from(from);
            group.cache.truncate_from(from);
            self.shared.submit(self.request(bytes, Change::Truncate(last, lost), Done::Task(sender)))?;
        }
        told(receiver).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut group = self.lock();
        if group.purged.is_some_and(|purged| upto.index <= purged.index) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        record::push_pointer(&mut bytes, Kind::Purge, self.group, Some(upto));
        group.purged = Some(upto);
        let lost = group.index.purge_upto(upto.index);
        group.cache.purge_upto(upto.index);
        self.shared.submit(self.request(bytes, Change::Purge(upto, lost), Done::Nobody))
    }
}

async fn told(receiver: oneshot::Receiver<io::Result<()>>) -> io::Result<()> {
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the log's committer has ended")))
}

fn unfit(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn lost(id: LogId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the segment of entry {id} is not there"))
}
