//! From the records of all alive segments to each group's log.
//!
//! Segments die out of order, so a truncation may be gone while an older segment still shows the entries that it cut off.
//! Three facts make up for that. (1) A purged entry is dead wherever it lies. (2) The head of each segment tells the last
//! entry so far: what an older segment shows beyond it was cut off, by whichever record. (3) A cut entry whose index was
//! written again and is neither purged nor beyond such a head would need the new one in a living segment begun before the
//! cut, and that segment then holds the cut itself. So, walking backwards, an entry is alive if it is not purged and lies
//! below every truncation and every head passed so far.
//!
//! A forgotten group is one that was truncated to nothing and whose purged pointer was taken back.
//!
//! What is alive must then be one run without holes, from behind the purged entry to at least where the newest head says:
//! else a whole file is missing.

use super::LogId;
use super::group::Group;
use super::index::Place;
use super::scan::{Scan, What};
use super::segment::DATA_AT;
use super::written::Written;
use crate::Error;
use std::collections::BTreeMap;

pub struct Rebuilt {
    pub groups: Vec<Group>,
    pub written: Vec<Written>,
    /// Alive entries a segment.
    pub entries: BTreeMap<u64, u64>,
}

/// One group while walking backwards.
struct Trace {
    purged: Option<LogId>,
    /// Entries from this index on are cut off.
    limit: u64,
    /// Alive entries, last first.
    alive: Vec<(LogId, Place)>,
    /// First index and end that the newest head calls for, as far as no later truncation took it back.
    called_for: Option<(u64, u64)>,
}

/// `scans` in the order of their numbers, the newest last, dead ones left out.
pub fn rebuild(scans: &[Scan], groups: u32) -> Result<Rebuilt, Error> {
    let mut state: Vec<Group> = (0..groups).map(|_| Group::default()).collect();
    for found in scans.iter().flat_map(|scan| &scan.records) {
        let group = &mut state[found.group as usize];
        match &found.what {
            What::Vote(vote) => group.vote = Some(*vote),
            // The last one counts, also if it is lower: the group was forgotten meanwhile, and what told so may have died with
            // its segment. Within one life of a group they only rise.
            What::Purge(upto) => group.purged = *upto,
            What::Committed(id) => group.committed = *id,
            What::Checkpoint(checkpoint) => group.checkpoint = Some((**checkpoint).clone()),
            _ => {}
        }
    }
    let mut traces: Vec<Trace> = state
        .iter()
        .map(|group| Trace { purged: group.purged, limit: u64::MAX, alive: Vec::new(), called_for: None })
        .collect();
    for (i, scan) in scans.iter().enumerate().rev() {
        for found in scan.records.iter().rev() {
            traces[found.group as usize].step(&found.what, found.offset, scan, i + 1 == scans.len())?;
        }
    }
    let mut entries = BTreeMap::new();
    for (id, (group, trace)) in state.iter_mut().zip(traces).enumerate() {
        if let Some(newest) = scans.last() {
            trace.check(id, newest)?;
        }
        for (log_id, place) in trace.alive.into_iter().rev() {
            *entries.entry(place.segment).or_default() += 1;
            group.index.push_at(log_id, place);
        }
        // It is saved without waiting for the entries it points to, and some of them may be lost. The ones that are left
        // came before it, so they are committed; but what is appended from now on is not, so the pointer is written anew.
        let last = group.last();
        if group.committed.map(|id| id.index) > last.map(|id| id.index) {
            (group.committed, group.committed_waits) = (last, true);
        }
    }
    let written = state.iter().map(written).collect();
    Ok(Rebuilt { groups: state, written, entries })
}

fn written(group: &Group) -> Written {
    Written {
        vote: group.vote,
        purged: group.purged,
        first: (!group.index.is_empty()).then(|| group.index.first()),
        last: group.last(),
        committed: group.committed,
        checkpoint: group.checkpoint.clone(),
    }
}

impl Trace {
    fn step(&mut self, what: &What, offset: u64, scan: &Scan, is_newest: bool) -> Result<(), Error> {
        match what {
            What::Entry(id, bytes) => {
                if self.purged.is_some_and(|purged| id.index <= purged.index) || id.index >= self.limit {
                    return Ok(());
                }
                if let Some((next, _)) = self.alive.last()
                    && id.index + 1 != next.index
                {
                    let what = format!(
                        "Expected entry {} before entry {}, but found {}",
                        next.index - 1,
                        next.index,
                        id.index
                    );
                    return Err(scan.damaged(offset, what));
                }
                self.alive.push((*id, Place { segment: scan.number, offset: offset as u32, bytes: *bytes }));
            }
            What::Truncate(after) => self.limit = self.limit.min(after.map_or(0, |id| id.index + 1)),
            What::Last(first, last) => {
                self.limit = self.limit.min(last.map_or(0, |id| id.index + 1));
                if is_newest {
                    self.called_for = first.map(|first| (first, self.limit));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, group: usize, newest: &Scan) -> Result<(), Error> {
        let behind_purged = self.purged.map(|id| id.index + 1);
        let (first, end) = match (self.alive.last(), self.alive.first()) {
            (Some((first, _)), Some((last, _))) => (first.index, last.index + 1),
            _ => (u64::MAX, 0),
        };
        let wanted_first = match (behind_purged, self.called_for) {
            (Some(behind), _) => Some(behind),
            (None, Some((first, end))) if first < end => Some(first),
            (None, _) => None,
        };
        if let Some(wanted) = wanted_first
            && !self.alive.is_empty()
            && first != wanted
        {
            let what =
                format!("Expected group {group} to begin at entry {wanted}, but found {first}: a segment is missing");
            return Err(newest.damaged(DATA_AT, what));
        }
        if let Some((_, wanted)) = self.called_for
            && wanted > behind_purged.unwrap_or(0)
            && end < wanted
        {
            let what = format!(
                "Expected entries of group {group} up to {wanted}, but found them up to {end}: a segment is missing"
            );
            return Err(newest.damaged(DATA_AT, what));
        }
        Ok(())
    }
}
