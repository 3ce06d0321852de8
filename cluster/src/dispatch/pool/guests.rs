//! Attempts of shards that are led elsewhere, at workers that are connected here.
//!
//! They take places like any other. Their lease clock is at their owner: it is told who holds what when it begins to lead, when
//! a worker comes back with something, and when a worker has renewed. Here only a worker's silence ends one.

use super::claims::Key;
use super::{Action, Delivery, Guest, Leased, Listed, Pool, Seat, Standing, Stop, Work, Worker};
use crate::{Moment, ToWorker};
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
    /// An assignment of another owner; `owners`: how many share the room, `since`: before it was claimed. The caller has
    /// checked that its epoch is in force and that it is not late.
    pub(crate) fn place(&mut self, from: NodeId, work: &Work, owners: u32, since: Moment) -> Placement {
        let placed = self.try_place(from, work, since);
        self.note_room(&work.lease.worker);
        self.stamp += 1;
        let room = self.room_for(&work.lease.worker, from, owners);
        Placement { placed, room, stamp: self.stamp }
    }

    /// The answer to an assignment that is not taken whoever it is for.
    pub(crate) fn place_nothing(&mut self) -> Placement {
        self.stamp += 1;
        Placement { placed: false, room: 0, stamp: self.stamp }
    }

    fn try_place(&mut self, from: NodeId, work: &Work, since: Moment) -> bool {
        let attempt = work.item.attempt;
        let id = work.lease.worker.as_str();
        if self.led.contains_key(&work.shard) {
            return false;
        }
        if self.guests.get((attempt, work.lease.token)).is_some() {
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
        let assignment = ToWorker::Assign { grain, item, lease, since };
        if here.sender.as_ref().is_none_or(|sender| sender.send(assignment).is_err()) {
            return false;
        }
        here.placed += 1;
        let guest = Guest {
            grain: work.grain.clone(),
            shard: work.shard,
            lease: work.lease.clone(),
            renewed_ms: self.now_ms,
            has_place: true,
            session,
        };
        self.guests.put(attempt, guest);
        true
    }

    /// The owner wants it stopped.
    pub(crate) fn stop_guest(&mut self, stop: &Stop) -> Vec<Action> {
        let key = (stop.attempt, stop.token);
        if self.guests.get(key).is_none() {
            return Vec::new();
        }
        self.tell_of_guest(key, &stop.reason);
        if !stop.lost {
            return Vec::new();
        }
        let worker = self.forget_guest(key);
        worker.map(|worker| self.has_room_again(&worker)).unwrap_or_default()
    }

    /// Up to `limit` of those that this owner has yet to hear of. `true`: there are no more.
    pub(crate) fn guests_to_tell(&mut self, of: &dyn Fn(ShardId) -> bool, limit: usize) -> (Vec<GuestHeld>, bool) {
        let mut told = Vec::new();
        let mut all = true;
        for key in &self.untold {
            let Some(guest) = self.guests.get(*key).filter(|guest| of(guest.shard)) else { continue };
            if told.len() >= limit {
                all = false;
                break;
            }
            told.push(GuestHeld {
                grain: guest.grain.clone(),
                attempt: key.0,
                lease: guest.lease.clone(),
                session: guest.session,
                age_ms: self.now_ms.saturating_sub(guest.renewed_ms),
            });
        }
        for guest in &told {
            self.untold.remove(&(guest.attempt, guest.lease.token));
        }
        (told, all)
    }

    /// The telling did not arrive, or not surely.
    pub(crate) fn tell_again(&mut self, key: (Uuid, [u8; 16])) {
        if self.guests.get(key).is_some() {
            self.untold.insert(key);
        }
    }

    /// Whoever leads these shards is to hear of all of them.
    pub(crate) fn tell_all_again(&mut self, of: &dyn Fn(ShardId) -> bool) {
        let theirs = self.guests.keys(|guest| of(guest.shard));
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
        self.guests.put(listed.attempt, guest);
        self.untold.insert((listed.attempt, listed.token));
    }

    /// Forgets what this worker held in an earlier session.
    pub(super) fn guests_left(&mut self, id: &str) {
        for key in self.guests.keys(|guest| guest.lease.worker == id) {
            self.guests.remove(key);
            self.untold.remove(&key);
        }
    }

    pub(super) fn guest_places(&self, id: &str) -> usize {
        self.guests.values().filter(|guest| guest.lease.worker == id && guest.has_place).count()
    }

    pub(super) fn renew_guest(&mut self, id: &str, attempt: Uuid) -> bool {
        let now_ms = self.now_ms;
        let Some(guest) = self.guests.of_worker(attempt, id) else { return false };
        guest.renewed_ms = now_ms;
        let key = (attempt, guest.lease.token);
        self.untold.insert(key);
        true
    }

    pub(super) fn free_guest_place(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        let Some(guest) = self.guests.of_worker(attempt, id).filter(|guest| guest.has_place) else { return Vec::new() };
        guest.has_place = false;
        self.place_freed(id)
    }

    pub(super) fn release_guest(&mut self, id: &str, attempt: Uuid) -> Vec<Action> {
        let Some(guest) = self.guests.of_worker(attempt, id) else { return Vec::new() };
        let key = (attempt, guest.lease.token);
        let worker = self.forget_guest(key);
        worker.map(|worker| self.has_room_again(&worker)).unwrap_or_default()
    }

    /// Removes it and frees its place, which nobody is offered yet; gives back its worker.
    pub(super) fn forget_guest(&mut self, key: Key) -> Option<String> {
        let guest = self.guests.remove(key)?;
        self.untold.remove(&key);
        if guest.has_place
            && let Some(here) = self.workers.get_mut(guest.lease.worker.as_str()).and_then(Worker::here_mut)
        {
            here.placed = here.placed.saturating_sub(1);
        }
        Some(guest.lease.worker)
    }

    /// Says something to its worker, unless that has a newer lease of the same attempt: it knows attempts by their ids only.
    fn tell_of_guest(&self, key: Key, reason: &str) {
        let Some(guest) = self.guests.get(key) else { return };
        let same = self.guests.all_of(key.0).iter().filter(|other| other.lease.worker == guest.lease.worker);
        if same.into_iter().all(|other| other.session <= guest.session) {
            self.tell(&guest.lease.worker, key.0, reason);
        }
    }

    /// Their workers did not renew for a lease's time: the owner's clock says the same.
    pub(super) fn end_silent_guests(&mut self) -> Vec<Action> {
        let silent = self.guests.keys(|guest| guest.renewed_ms + self.lease_ms <= self.now_ms);
        let mut actions = Vec::new();
        for key in silent {
            self.tell_of_guest(key, "the lease was not renewed in time");
            if let Some(worker) = self.forget_guest(key) {
                actions.extend(self.has_room_again(&worker));
            }
        }
        actions
    }

    /// The shard is led here now: its guests are ours, once their grains have said so.
    pub(super) fn take_in(&mut self, shard: ShardId) -> Vec<Action> {
        let mut actions = Vec::new();
        for key in self.guests.keys(|guest| guest.shard == shard) {
            let Some(guest) = self.guests.remove(key) else { continue };
            self.untold.remove(&key);
            let Guest { grain, shard, lease, renewed_ms, has_place, session } = guest;
            actions.push(Action::Verify { grain: grain.clone(), attempt: key.0, lease: lease.clone() });
            let deadline_ms = renewed_ms + self.lease_ms;
            let (standing, delivery) = (Standing::Verifying, Delivery::Over);
            let leased = Leased { grain, shard, lease, deadline_ms, standing, has_place, session, delivery };
            self.leases.put(key.0, leased);
        }
        actions
    }

    /// The shard is led elsewhere now: what our workers hold of it are guests from here on, the rest is the new owner's.
    pub(super) fn hand_over(&mut self, shard: ShardId) -> Vec<Action> {
        let mut actions = Vec::new();
        for key in self.leases.keys(|leased| leased.shard == shard) {
            let Some(leased) = self.leases.get(key) else { continue };
            let worker = self.workers.get(leased.lease.worker.as_str());
            let is_with_it = worker.is_some_and(|worker| {
                matches!(worker.seat, Seat::Here(_)) && worker.session == leased.session && leased.session > 0
            });
            if !is_with_it || leased.standing == Standing::Expiring {
                actions.extend(self.forget(key));
                continue;
            }
            let Some(leased) = self.leases.remove(key) else { continue };
            let renewed_ms = leased.deadline_ms.saturating_sub(self.lease_ms);
            let Leased { grain, shard, lease, has_place, session, .. } = leased;
            self.guests.put(key.0, Guest { grain, shard, lease, renewed_ms, has_place, session });
            self.untold.insert(key);
        }
        self.news = true;
        actions
    }
}
