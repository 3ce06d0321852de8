//! What is committed: the one truth about every attempt.

use grain_contract::{Epoch, GrainId, Lease, QueueName, WorkItem};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

pub(super) struct Attempt {
    pub(super) grain: GrainId,
    pub(super) shard: ShardId,
    pub(super) queue: QueueName,
    pub(super) lease: Option<Lease>,
    pub(super) is_done: bool,
}

#[derive(Default)]
pub(super) struct Rows {
    pub(super) attempts: BTreeMap<Uuid, Attempt>,
    /// Who really leads each shard.
    pub(super) owners: Vec<(NodeId, Epoch)>,
    /// Tokens that some worker was given.
    pub(super) started: HashSet<[u8; 16]>,
    /// Tokens of which the grain was told that they never started.
    pub(super) unstarted: HashSet<[u8; 16]>,
    pub(super) reports: BTreeMap<Uuid, u32>,
}

impl Attempt {
    pub(super) fn item(&self, id: Uuid) -> WorkItem {
        WorkItem { queue: self.queue.clone(), attempt: id, lease: self.lease.clone(), body: id.as_bytes().to_vec() }
    }
}

impl Rows {
    pub(super) fn is_owner(&self, shard: ShardId, node: NodeId, epoch: Epoch) -> bool {
        self.owners[shard.0 as usize] == (node, epoch)
    }

    /// As the run's `CLAIM`: whoever comes first, and the same again.
    pub(super) fn claim(&mut self, id: Uuid, lease: &Lease, held: bool) -> bool {
        let Some(attempt) = self.attempts.get_mut(&id).filter(|attempt| !attempt.is_done) else { return false };
        match &attempt.lease {
            None if held => false,
            None => {
                attempt.lease = Some(lease.clone());
                true
            }
            Some(held) => held == lease,
        }
    }

    /// `true`: it is queued again.
    pub(super) fn never_started(&mut self, id: Uuid, lease: &Lease) -> bool {
        let Some(attempt) = self.attempts.get_mut(&id) else { return false };
        // Of what ended meanwhile it is a late word that nobody heeds.
        if attempt.is_done || attempt.lease.as_ref() != Some(lease) {
            return false;
        }
        assert!(!self.started.contains(&lease.token), "{id} was started under the token said to have never been");
        self.unstarted.insert(lease.token);
        attempt.lease = None;
        true
    }

    /// `true`: accepted, now or before.
    pub(super) fn report(&mut self, id: Uuid, lease: &Lease) -> bool {
        let Some(attempt) = self.attempts.get_mut(&id) else { return false };
        if attempt.lease.as_ref() != Some(lease) {
            return false;
        }
        if !attempt.is_done {
            *self.reports.entry(id).or_default() += 1;
        }
        attempt.is_done = true;
        true
    }
}
