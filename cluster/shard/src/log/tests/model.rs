//! What a log should contain: the same operations on plain maps.

use super::driver::{self, GROUPS, Pending};
use crate::log::{Checkpoint, Entry, LogId, Vote, Wal};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub enum Op {
    /// So many entries of so many bytes at the end.
    Append {
        group: u32,
        count: u8,
        bytes: u16,
    },
    /// Takes back so many entries at the end, and begins a new term.
    Truncate {
        group: u32,
        back: u8,
    },
    /// Keeps so many entries at the end.
    Purge {
        group: u32,
        keep: u8,
    },
    /// As after a snapshot from elsewhere: beyond the last entry.
    PurgeBeyond {
        group: u32,
        by: u8,
    },
    Vote {
        group: u32,
        node: u8,
        committed: bool,
    },
    Committed {
        group: u32,
        back: u8,
    },
    Checkpoint {
        group: u32,
        bytes: u8,
    },
    /// Everything but the vote.
    Forget {
        group: u32,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelGroup {
    pub term: u64,
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    pub entries: BTreeMap<u64, Entry>,
    pub committed: Option<LogId>,
    pub checkpoint: Option<Checkpoint>,
}

impl ModelGroup {
    pub fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|entry| entry.log_id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    /// What must be the same after any stop; pointers and checkpoints may lag.
    pub fn hard(&self) -> (Option<Vote>, Option<LogId>, Vec<Entry>) {
        (self.vote, self.purged, self.entries.values().cloned().collect())
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub groups: Vec<ModelGroup>,
}

/// What the log of a real group says in the same terms.
pub fn found(wal: &Wal, group: u32) -> (Option<Vote>, Option<LogId>, Vec<Entry>) {
    let log = wal.group(group);
    (driver::read_vote(&log), driver::state(&log).0, driver::entries(&log))
}

impl Model {
    pub fn new() -> Self {
        Self { groups: vec![ModelGroup::default(); GROUPS as usize] }
    }

    /// Does the same to the model and to the log. An append is not waited for.
    pub fn run(&mut self, wal: &Wal, op: &Op) -> Option<Pending> {
        match *op {
            Op::Append { group, count, bytes } => {
                let model = &mut self.groups[group as usize];
                let first = model.next();
                let new: Vec<_> = (first..first + u64::from(count) + 1)
                    .map(|index| driver::entry(group, model.term, index, bytes as usize))
                    .collect();
                model.entries.extend(new.iter().map(|entry| (entry.log_id.index, entry.clone())));
                return Some(driver::append(&wal.group(group), new));
            }
            Op::Truncate { group, back } => {
                let model = &mut self.groups[group as usize];
                let keep = model.entries.len().saturating_sub(back as usize);
                let after =
                    keep.checked_sub(1).and_then(|i| model.entries.values().nth(i)).map(|e| e.log_id).or(model.purged);
                model.entries.retain(|index, _| after.is_some_and(|after| *index <= after.index));
                model.term += 1;
                driver::truncate(&wal.group(group), after).unwrap();
            }
            Op::Purge { group, keep } => {
                let model = &mut self.groups[group as usize];
                let i = model.entries.len().checked_sub(1 + keep as usize)?;
                let upto = model.entries.values().nth(i).expect("below the count").log_id;
                model.entries.retain(|index, _| *index > upto.index);
                model.purged = Some(upto);
                driver::purge(&wal.group(group), upto).unwrap();
            }
            Op::PurgeBeyond { group, by } => {
                let model = &mut self.groups[group as usize];
                let upto = driver::id(model.term, model.next() + u64::from(by));
                model.entries.clear();
                model.purged = Some(upto);
                driver::purge(&wal.group(group), upto).unwrap();
            }
            Op::Vote { group, node, committed } => {
                let model = &mut self.groups[group as usize];
                let vote = driver::vote(model.term, u64::from(node), committed);
                model.vote = Some(vote);
                driver::save_vote(&wal.group(group), vote).unwrap();
            }
            Op::Committed { group, back } => {
                let model = &mut self.groups[group as usize];
                model.committed = model.entries.values().rev().nth(back as usize).map(|entry| entry.log_id);
                driver::save_committed(&wal.group(group), model.committed);
            }
            Op::Checkpoint { group, bytes } => {
                let model = &mut self.groups[group as usize];
                let checkpoint = Checkpoint {
                    last_applied: model.last(),
                    membership_json: vec![b'm'; bytes as usize],
                    extra: model.next().to_le_bytes().to_vec(),
                };
                model.checkpoint = Some(checkpoint.clone());
                wal.checkpoint(group, checkpoint);
            }
            Op::Forget { group } => {
                let model = &mut self.groups[group as usize];
                let applied = model.checkpoint.as_ref().and_then(|checkpoint| checkpoint.last_applied);
                if model.last().is_some() || model.committed.is_some() || applied.is_some() {
                    let checkpoint = Some(Checkpoint::default());
                    *model = ModelGroup { term: model.term, vote: model.vote, checkpoint, ..ModelGroup::default() };
                }
                driver::forget(&wal.group(group)).unwrap();
            }
        }
        None
    }
}
