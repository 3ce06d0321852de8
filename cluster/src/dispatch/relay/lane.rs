//! An owner's assignments on their way to an edge: in order, one numbered batch at a time, each repeated as it is until it is
//! known what became of it.
//!
//! One at a time costs nothing, since what comes meanwhile goes together, and it makes the other end simple: whatever has a
//! number below the last is old.

use super::wire::parcel;
use super::{Acts, State};
use crate::dispatch::pool::{Delivered, Parcel};
use crate::dispatch::tenants::Tenants;
use crate::peers::{CallError, Refused};
use granary_proto::peers::{Assign, AssignAnswer};
use shard::NodeId;
use std::collections::VecDeque;

/// Parcels in one batch, and their bytes: it must fit a call's body.
const PARCELS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// A batch that never left is given up after this; its attempts go elsewhere.
const NEVER_LEFT_MS_MAX: u64 = 5_000;

/// Not bounded by itself: work in it was taken from room that the edge told, and a stop belongs to a lease.
#[derive(Default)]
pub(super) struct Lane {
    /// Each with what the edge's clock was at least when it was made.
    waiting: VecDeque<(Parcel, u64)>,
    number: u64,
    batch: Option<Batch>,
    /// A task drives it.
    is_driven: bool,
}

struct Batch {
    number: u64,
    to_process: u64,
    parcels: Vec<Parcel>,
    /// The edge's clock when the oldest parcel was made, at least.
    heard_ms: u64,
    since_ms: u64,
    /// A try of it may have arrived.
    may_be_there: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Next,
    /// The same batch, after a pause.
    Again,
}

impl Lane {
    /// `true`: nothing drives the lane, the caller is to begin.
    pub(super) fn push(&mut self, parcel: Parcel, heard_ms: u64) -> bool {
        self.waiting.push_back((parcel, heard_ms));
        !std::mem::replace(&mut self.is_driven, true)
    }

    fn fill(&mut self, to_process: u64, now_ms: u64) {
        let mut parcels = Vec::new();
        let mut bytes = 0;
        let heard_ms = self.waiting.front().map_or(0, |(_, heard_ms)| *heard_ms);
        while let Some((next, _)) = self.waiting.front() {
            let size = match next {
                Parcel::Work(work) => work.item.body.len(),
                Parcel::Stop(stop) => stop.reason.len(),
            };
            if parcels.len() >= PARCELS_MAX || (bytes + size > BATCH_BYTES_MAX && !parcels.is_empty()) {
                break;
            }
            bytes += size;
            parcels.extend(self.waiting.pop_front().map(|(parcel, _)| parcel));
        }
        if parcels.is_empty() {
            return;
        }
        self.number += 1;
        let (number, since_ms) = (self.number, now_ms);
        self.batch = Some(Batch { number, to_process, parcels, heard_ms, since_ms, may_be_there: false });
    }
}

impl State {
    /// The batch that is not answered yet, or the next; `None`: the lane is empty, and nothing drives it any more.
    pub(crate) fn next_batch(&mut self, to: NodeId, now_ms: u64) -> Option<Assign> {
        let (life, process) = (self.life, self.process);
        let peer = self.peers.get_mut(&to)?;
        if peer.lane.batch.is_none() {
            peer.lane.fill(peer.heard.process, now_ms);
        }
        let Some(batch) = &peer.lane.batch else {
            peer.lane.is_driven = false;
            return None;
        };
        let parcels = batch.parcels.iter().map(parcel).collect();
        let (number, to_process, heard_ms) = (batch.number, batch.to_process, batch.heard_ms);
        Some(Assign { life, process, number, to_process, parcels, heard_ms })
    }

    pub(crate) fn batch_answered(
        &mut self,
        to: NodeId,
        answer: Result<AssignAnswer, CallError>,
        is_attached: bool,
        tenants: &Tenants,
        now_ms: u64,
    ) -> (Acts, Step) {
        if let Ok(AssignAnswer { outlive, .. }) = answer
            && outlive > 0
        {
            self.outlive(outlive);
            return (Acts::new(), Step::Again);
        }
        let Some(lane) = self.peers.get_mut(&to).map(|peer| &mut peer.lane) else { return (Acts::new(), Step::Next) };
        let Some(mut batch) = lane.batch.take() else { return (Acts::new(), Step::Next) };
        let waited_ms = now_ms.saturating_sub(batch.since_ms);
        let if_over = if batch.may_be_there { Delivered::Unknown } else { Delivered::NotSent };
        let outcome = match answer {
            Ok(answer) if answer.out_of_date => if_over,
            Ok(answer) if answer.placed.len() == batch.parcels.len() => {
                return (settled(to, &batch, &answer, tenants, now_ms), Step::Next);
            }
            Ok(_) => {
                tracing::warn!(to, "an answer to assignments that does not fit them");
                Delivered::Unknown
            }
            Err(CallError::Unknown(_)) => {
                batch.may_be_there = true;
                if waited_ms < self.lease_ms {
                    lane.batch = Some(batch);
                    return (Acts::new(), Step::Again);
                }
                Delivered::Unknown
            }
            Err(CallError::NotSent(_) | CallError::Overloaded | CallError::Refused(Refused::Overloaded)) => {
                let patience = match (batch.may_be_there, is_attached) {
                    (true, _) => self.lease_ms,
                    (false, true) => NEVER_LEFT_MS_MAX,
                    (false, false) => 0,
                };
                if waited_ms < patience {
                    lane.batch = Some(batch);
                    return (Acts::new(), Step::Again);
                }
                if_over
            }
            // It is another process now, or one that knows no relay.
            Err(CallError::Refused(_)) => if_over,
        };
        (ended(to, &batch, outcome, tenants, now_ms), Step::Next)
    }
}

fn settled(to: NodeId, batch: &Batch, answer: &AssignAnswer, tenants: &Tenants, now_ms: u64) -> Acts {
    let mut acts = Acts::new();
    for (parcel, placed) in batch.parcels.iter().zip(&answer.placed) {
        let (room, stamp) = (placed.room, placed.stamp);
        let outcome =
            if placed.placed { Delivered::Placed { room, stamp } } else { Delivered::Refused { room, stamp } };
        deliver(to, parcel, outcome, tenants, now_ms, &mut acts);
    }
    acts
}

fn ended(to: NodeId, batch: &Batch, outcome: Delivered, tenants: &Tenants, now_ms: u64) -> Acts {
    let mut acts = Acts::new();
    for parcel in &batch.parcels {
        deliver(to, parcel, outcome, tenants, now_ms, &mut acts);
    }
    acts
}

fn deliver(to: NodeId, parcel: &Parcel, outcome: Delivered, tenants: &Tenants, now_ms: u64, acts: &mut Acts) {
    // A stop that did not arrive is said again when the worker renews.
    let Parcel::Work(work) = parcel else { return };
    let tenant = &work.grain.tenant;
    let Some(pool) = tenants.get(tenant) else { return };
    let actions = pool.lock().at(now_ms).delivered(to, work, outcome);
    acts.extend(actions.into_iter().map(|action| (tenant.clone(), action)));
}
