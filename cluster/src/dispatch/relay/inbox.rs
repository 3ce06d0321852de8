//! Assignments of other owners, each batch taken once.
//!
//! A batch that comes again has the answer of the first time. An assignment of an earlier epoch than one that was heard of is
//! refused for ever: the present owner may have said already that it never started. So is one that was made long ago by this
//! node's own clock, which it tells its owners and hears back: a process that was frozen finds assignments in its sockets
//! whose leases have ended since, and whose steps are done elsewhere.

use super::State;
use super::wire::{stop, work};
use crate::Moment;
use crate::dispatch::late::is_late;
use crate::dispatch::pool::{Placement, Work};
use crate::dispatch::tenants::{Acts, Tenants};
use granary_proto::peers::parcel::What;
use granary_proto::peers::{Assign, AssignAnswer, Parcel, Placed};
use shard::NodeId;

#[derive(Default)]
pub(super) struct Inbox {
    life: u64,
    process: u64,
    number: u64,
    answer: AssignAnswer,
}

/// When a batch comes.
#[derive(Clone, Copy)]
struct At {
    now_ms: u64,
    /// Before its parcels were made.
    since: Moment,
    /// How many share the room; `None` = it comes too late for work to be handed out.
    owners: Option<u32>,
}

impl State {
    pub(crate) fn place(
        &mut self,
        from: NodeId,
        assign: Assign,
        tenants: &Tenants,
        owners: u32,
        now: Moment,
    ) -> (AssignAnswer, Acts) {
        let mut acts = Acts::new();
        let nothing = AssignAnswer { out_of_date: true, ..AssignAnswer::default() };
        let inbox = &mut self.peers.entry(from).or_default().inbox;
        if assign.to_process != self.process {
            return (nothing, acts);
        }
        if assign.process != inbox.process {
            if assign.life <= inbox.life {
                return (AssignAnswer { outlive: inbox.life, ..AssignAnswer::default() }, acts);
            }
            *inbox = Inbox { life: assign.life, process: assign.process, ..Inbox::default() };
        }
        inbox.life = inbox.life.max(assign.life);
        if assign.number <= inbox.number {
            let answer = if assign.number == inbox.number { inbox.answer.clone() } else { nothing };
            return (answer, acts);
        }
        // One of an older build does not say.
        let age_ms = if assign.heard_ms == 0 { 0 } else { now.monotonic_ms.saturating_sub(assign.heard_ms) };
        let owners = if is_late(age_ms, self.lease_ms) { None } else { Some(owners) };
        let at = At { owners, since: now.earlier_by(age_ms), now_ms: now.monotonic_ms };
        let parcels = assign.parcels.into_iter();
        let placed = parcels.map(|parcel| self.take_parcel(from, parcel, tenants, at, &mut acts)).collect();
        let answer = AssignAnswer { placed, ..AssignAnswer::default() };
        if let Some(peer) = self.peers.get_mut(&from) {
            (peer.inbox.number, peer.inbox.answer) = (assign.number, answer.clone());
        }
        (answer, acts)
    }

    fn take_parcel(&mut self, from: NodeId, parcel: Parcel, tenants: &Tenants, at: At, acts: &mut Acts) -> Placed {
        match parcel.what {
            Some(What::Work(told)) => {
                let Some(work) = work(told) else {
                    tracing::warn!(from, "an assignment that cannot be read");
                    return Placed::default();
                };
                let Some(Placement { placed, room, stamp }) = self.place_work(from, &work, tenants, at) else {
                    return Placed::default();
                };
                Placed { placed, room, stamp }
            }
            Some(What::Stop(told)) => {
                if let Some(stop) = stop(told)
                    && let Some(pool) = tenants.get(&stop.tenant)
                {
                    let actions = pool.lock().at(at.now_ms).stop_guest(&stop);
                    acts.extend(actions.into_iter().map(|action| (stop.tenant.clone(), action)));
                }
                Placed::default()
            }
            // A later build says something that this one does not know.
            None => Placed::default(),
        }
    }

    fn place_work(&mut self, from: NodeId, work: &Work, tenants: &Tenants, at: At) -> Option<Placement> {
        let known = self.leads.get(&work.shard).map(|(_, epoch)| *epoch).max(tenants.last_epoch(work.shard));
        if known.is_some_and(|epoch| epoch > work.epoch) {
            return None;
        }
        let pool = tenants.get(&work.grain.tenant)?;
        let mut pool = pool.lock();
        let placement = match at.owners {
            Some(owners) => pool.at(at.now_ms).place(from, work, owners, at.since),
            // No room either, until it is told anew, and with it the clock.
            None => pool.place_nothing(),
        };
        drop(pool);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.telling.told_in_answer(&work.grain.tenant, &work.lease.worker, placement.stamp);
        }
        Some(placement)
    }
}
