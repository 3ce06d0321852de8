//! Attempts of shards that are led elsewhere, at workers that are connected here.
//!
//! They take places like any other. Their lease clock is at their owner: it is told who holds what when it begins to lead, when
//! a worker comes back with something, and when a worker has renewed. Here only a worker's silence ends one.

use super::{Action, Guest, Leased, Listed, Pool, Seat, Standing, Stop, Work, Worker};
use crate::ToWorker;
use grain_contract::{GrainId, Lease};
use shard::{NodeId, ShardId};
use uuid::Uuid;

/// Whether an assignment from elsewhere found its place, and how much room the worker has for that owner after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    pub(crate) placed: bool,
    pub(crate) room: u32,
    pub(crate) stamp: u64,
}

/// What an owner hears of an attempt of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GuestHeld {
    pub(crate) grain: GrainId,
    pub(crate) attempt: Uuid,
    pub(crate) lease: Lease,
    pub(crate) session: u64,
    pub(crate) age_ms: u64,
}

impl Pool {
    /// An assignment of another owner; `owners`: how many share the room. The caller has checked that its epoch is in force.
    pub(crate) fn place(&mut self, from: NodeId, work: &Work, owners: u32) -> Placement {
        let placed = self.try_place(from, work);
        self.note_room(&work.lease.worker);
        self.stamp += 1;
        let room = self.room_for(&work.lease.worker, from, owners);
        Placement { placed, room, stamp: self.stamp }
    }

    fn try_place(&mut self, from: NodeId, work: &Work) -> bool {
        let attempt = work.item.attempt;
        let id = work.lease.worker.as_str();
        if self.led.contains_key(&work.shard) {
            return false;
        }
        if self.guests.get(&attempt).is_some_and(|guest| guest.lease == work.lease && guest.session == work.session) {
            return true;
        }
        let Some(worker) = self.workers.get_mut(id).filter(|worker| worker.session == work.session) else {
            return false;
        };
        let is_free = worker.room() > 0;
        let session = worker.session;
        let Some(here) = worker.here_mut().filter(|here| !here.draining) else { return false };
        let promised = here.promises.get_mut(&from).filter(|(places, _)| *places > 0);
        match promised {
            Some((places, _)) => *places -= 1,
            None if is_free => {}
            None => return false,
        }
        let (grain, item, lease) = (work.grain.clone(), work.item.clone(), work.lease.clone());
        let assignment = ToWorker::Assign { grain, item, lease };
        if here.sender.as_ref().is_none_or(|sender| sender.send(assignment).is_err()) {
            return false;
        }
        here.placed += 1;
        // An earlier lease of the same attempt is over if there is a later one; its place is this one's.
        let before = self.guests.insert(
            attempt,
            Guest {
                grain: work.grain.clone(),
                shard: work.shard,
                lease: work.lease.clone(),
                renewed_ms: self.now_ms,
                has_place: true,
                session,
            },
        );
        if let Some(before) = before.filter(|before| before.has_place)
            && let Some(here) = self.workers.get_mut(before.lease.worker.as_str()).and_then(Worker::here_mut)
        {
            here.placed = here.placed.saturating_sub(1);
        }
        true
    }

    /// The owner wants it stopped.
    pub(crate) fn stop_guest(&mut self, stop: &Stop) -> Vec<Action> {
        let Some(guest) = self.guests.get(&stop.attempt).filter(|guest| guest.lease.token == stop.token) else {
            return Vec::new();
        };
        self.tell(&guest.lease.worker, stop.attempt, &stop.reason);
        if !stop.lost {
            return Vec::new();
        }
        let worker = self.forget_guest(stop.attempt, &stop.token);
        worker.map(|worker| self.has_room_again(&worker)).unwrap_or_default()
    }

    /// Up to `limit` of those that this owner has yet to hear of. `true`: there are no more.
    pub(crate) fn guests_to_tell(&mut self, of: &dyn Fn(ShardId) -> bool, limit: usize) -> (Vec<GuestHeld>, bool) {
        let mut told = Vec::new();
        let mut all = true;
        for attempt in &self.untold {
            let Some(guest) = self.guests.get(attempt).filter(|guest| of(guest.shard)) else { continue };
            if told.len() >= limit {
                all = false;
                break;
            }
            told.push(GuestHeld {
                grain: guest.grain.clone(),
                attempt: *attempt,
                lease: guest.lease.clone(),
                session: guest.session,
                age_ms: self.now_ms.saturating_sub(guest.renewed_ms),
            });
        }
        for guest in &told {
            self.untold.remove(&guest.attempt);
        }
        (told, all)
    }

    /// The telling did not arrive, or not surely.
    pub(crate) fn tell_again(&mut self, attempts: impl IntoIterator<Item = Uuid>) {
        for attempt in attempts {
            if self.guests.contains_key(&attempt) {
                self.untold.insert(attempt);
            }
        }
    }

    /// Whoever leads these shards is to hear of all of them.
    pub(crate) fn tell_all_again(&mut self, of: &dyn Fn(ShardId) -> bool) {
        let theirs = self.guests.iter().filter(|(_, guest)| of(guest.shard)).map(|(attempt, _)| *attempt);
        self.untold.extend(theirs);
        self.news = true;
    }

    // ---- inside ----

    /// A worker lists it that connects here.
    pub(super) fn guest_again(&mut self, id: &str, session: u64, listed: &Listed) {
        let guest = Guest {
            grain: listed.grain.clone(),
            shard: listed.shard,
            lease: Lease { worker: id.to_owned(), token: listed.token },
            renewed_ms: self.now_ms,
            has_place: true,
            session,
        };
        self.guests.insert(listed.attempt, guest);
        self.untold.insert(listed.attempt);
    }

    /// Forgets what this worker held in an earlier session.
    pub(super) fn guests_left(&mut self, id: &str) {
        self.guests.retain(|attempt, guest| {
            let stays = guest.lease.worker != id;
            if !stays {
                self.untold.remove(attempt);
            }
            stays
        });
    }

    pub(super) fn guest_places(&self, id: &str) -> usize {
        self.guests.values().filter(|guest| guest.lease.worker == id && guest.has_place).count()
    }

    pub(super) fn renew_guest(&mut self, id: &str, attempt: Uuid) -> bool {
        let Some(guest) = self.guests.get_mut(&attempt).filter(|guest| guest.lease.worker == id) else { return false };
        guest.renewed_ms = self.now_ms;
        self.untold.insert(attempt);
        true
    }

    pub(super) fn free_guest_place(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        let guest = self.guests.get_mut(&attempt).filter(|guest| guest.lease.worker == id && guest.has_place);
        let Some(guest) = guest else { return Vec::new() };
        guest.has_place = false;
        self.place_freed(id)
    }

    /// Removes it and frees its place, which nobody is offered yet; gives back its worker.
    pub(super) fn forget_guest(&mut self, attempt: Uuid, token: &[u8; 16]) -> Option<String> {
        if self.guests.get(&attempt).is_none_or(|guest| guest.lease.token != *token) {
            return None;
        }
        let guest = self.guests.remove(&attempt)?;
        self.untold.remove(&attempt);
        if guest.has_place
            && let Some(here) = self.workers.get_mut(guest.lease.worker.as_str()).and_then(Worker::here_mut)
        {
            here.placed = here.placed.saturating_sub(1);
        }
        Some(guest.lease.worker)
    }

    /// Their workers did not renew for a lease's time: the owner's clock says the same.
    pub(super) fn end_silent_guests(&mut self) -> Vec<Action> {
        let silent = self.guests.iter().filter(|(_, guest)| guest.renewed_ms + self.lease_ms <= self.now_ms);
        let silent: Vec<(Uuid, [u8; 16])> = silent.map(|(attempt, guest)| (*attempt, guest.lease.token)).collect();
        let mut actions = Vec::new();
        for (attempt, token) in silent {
            if let Some(worker) = self.forget_guest(attempt, &token) {
                self.tell(&worker, attempt, "the lease was not renewed in time");
                actions.extend(self.has_room_again(&worker));
            }
        }
        actions
    }

    /// The shard is led here now: its guests are ours, once their grains have said so.
    pub(super) fn take_in(&mut self, shard: ShardId) -> Vec<Action> {
        let theirs: Vec<Uuid> =
            self.guests.iter().filter(|(_, guest)| guest.shard == shard).map(|(attempt, _)| *attempt).collect();
        let mut actions = Vec::new();
        for attempt in theirs {
            let Some(guest) = self.guests.remove(&attempt) else { continue };
            self.untold.remove(&attempt);
            let Guest { grain, shard, lease, renewed_ms, has_place, session } = guest;
            actions.push(Action::Verify { grain: grain.clone(), attempt, lease: lease.clone() });
            let deadline_ms = renewed_ms + self.lease_ms;
            let standing = Standing::Verifying;
            let leased = Leased { grain, shard, lease, deadline_ms, standing, has_place, session, under_way: false };
            self.leases.insert(attempt, leased);
        }
        actions
    }

    /// The shard is led elsewhere now: what our workers hold of it are guests from here on, the rest is the new owner's.
    pub(super) fn hand_over(&mut self, shard: ShardId) -> Vec<Action> {
        let ours: Vec<Uuid> =
            self.leases.iter().filter(|(_, leased)| leased.shard == shard).map(|(attempt, _)| *attempt).collect();
        let mut actions = Vec::new();
        for attempt in ours {
            let Some(leased) = self.leases.get(&attempt) else { continue };
            let worker = self.workers.get(leased.lease.worker.as_str());
            let is_with_it = worker.is_some_and(|worker| {
                matches!(worker.seat, Seat::Here(_)) && worker.session == leased.session && leased.session > 0
            });
            if !is_with_it || leased.standing == Standing::Expiring {
                actions.extend(self.forget(attempt));
                continue;
            }
            let Some(leased) = self.leases.remove(&attempt) else { continue };
            let renewed_ms = leased.deadline_ms.saturating_sub(self.lease_ms);
            let Leased { grain, shard, lease, has_place, session, .. } = leased;
            self.guests.insert(attempt, Guest { grain, shard, lease, renewed_ms, has_place, session });
            self.untold.insert(attempt);
        }
        self.news = true;
        actions
    }
}
