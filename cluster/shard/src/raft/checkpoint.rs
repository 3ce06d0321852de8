//! Checkpoints as the log keeps them, and what an opened store is worth beside them.

use super::types::LogId;
use crate::Error;
use crate::log::{Checkpoint, Wal};
use crate::state::overlay::Mark;
use crate::state::writer::Checkpoints;
use granary_proto::storage::{ShardMarks, StoreStamp};
use prost::Message;
use std::sync::Arc;

pub struct LogCheckpoints(pub Arc<Wal>);

impl Checkpoints for LogCheckpoints {
    fn keep(&self, marks: Vec<(u32, Option<Mark>)>) -> Result<(), Error> {
        let checkpoints = marks.into_iter().map(|(shard, mark)| Ok((shard, write(mark)?)));
        self.0.keep_checkpoints(checkpoints.collect::<Result<_, Error>>()?)
    }
}

/// `None`: whatever the store holds of the shard means nothing.
fn write(mark: Option<Mark>) -> Result<Checkpoint, Error> {
    let Some(mark) = mark else { return Ok(Checkpoint::default()) };
    Ok(Checkpoint {
        last_applied: mark.applied,
        membership_json: serde_json::to_vec(&mark.membership).map_err(|error| Error::Storage(error.to_string()))?,
        extra: ShardMarks { outbox_next: mark.outbox_next, events_low: mark.events_low }.encode_to_vec(),
    })
}

fn read(checkpoint: &Checkpoint) -> Option<Mark> {
    let marks = ShardMarks::decode(&*checkpoint.extra).ok()?;
    Some(Mark {
        applied: Some(checkpoint.last_applied?),
        membership: serde_json::from_slice(&checkpoint.membership_json).ok()?,
        outbox_next: marks.outbox_next,
        events_low: marks.events_low,
    })
}

/// What the store's rows of one shard are worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Worth {
    /// With the log replayed from this mark they are the state.
    From(Mark),
    /// There was never a checkpoint, or it was taken back: start from nothing.
    New,
    /// They should have been good and are not: start from snapshot and log.
    Nothing(String),
}

/// `last` is the last entry of the shard's log, `clean` says that the process before ended in order.
pub fn worth(checkpoint: Option<&Checkpoint>, stamp: Option<&StoreStamp>, last: Option<LogId>, clean: bool) -> Worth {
    let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.last_applied.is_some()) else { return Worth::New };
    let Some(mark) = read(checkpoint) else { return Worth::Nothing("its checkpoint cannot be read".into()) };
    let (Some(index), Some(stamp)) = (mark.index(), stamp) else {
        return Worth::Nothing("the store knows nothing of it".into());
    };
    let last = last.map(|id| id.index);
    let what = if stamp.index < index {
        "the store is older than its checkpoint"
    } else if Some(stamp.index) > last {
        "the store is ahead of the log"
    } else if clean && stamp.index != index {
        "the store was closed in order, but stands elsewhere than its checkpoint"
    } else {
        return Worth::From(mark);
    };
    Worth::Nothing(format!("{what} (store at {}, checkpoint at {index}, log to {last:?})", stamp.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::LeaderTerm;

    fn id(index: u64) -> LogId {
        LogId { leader_id: LeaderTerm::new(1), index }
    }

    #[test]
    fn a_store_counts_only_between_its_checkpoint_and_the_end_of_the_log() {
        let mark = Mark { applied: Some(id(10)), outbox_next: 4, events_low: 2, ..Mark::origin() };
        let checkpoint = write(Some(mark.clone())).unwrap();
        let cases = [
            (Some(10), 20, false, true),
            (Some(15), 20, false, true),
            (Some(20), 20, false, true),
            (Some(9), 20, false, false),
            (Some(21), 20, false, false),
            (None, 20, false, false),
            (Some(10), 20, true, true),
            (Some(11), 20, true, false),
        ];
        for (stamp, last, clean, good) in cases {
            let stamp = stamp.map(|index| StoreStamp { term: 1, index });
            let worth = worth(Some(&checkpoint), stamp.as_ref(), Some(id(last)), clean);
            assert_eq!(worth == Worth::From(mark.clone()), good, "{stamp:?} {last} {clean}: {worth:?}");
        }
        let taken_back = write(None).unwrap();
        assert_eq!(worth(Some(&taken_back), Some(&StoreStamp { term: 1, index: 5 }), Some(id(9)), false), Worth::New);
        assert_eq!(worth(None, None, None, true), Worth::New);
    }
}
