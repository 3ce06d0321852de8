//! The leases of attempts that are owned here, wherever their workers are, and their clock.

use super::claims::Key;
use super::places::session_of;
use super::{Action, Claimed, Delivery, Leased, Parcel, Pool, Seat, Standing, Stop, Work};
use crate::ToWorker;
use grain_contract::{GrainId, Lease};
use shard::{NodeId, ShardId};
use std::collections::HashSet;
use uuid::Uuid;

/// What became of an attempt that was sent to the worker's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivered {
    /// The worker has it, or will.
    Placed { room: u32, stamp: u64 },
    /// The edge did not hand it out and never will.
    Refused { room: u32, stamp: u64 },
    /// It never left this node.
    NotSent,
    /// The edge is gone, and may have handed it out before.
    Unknown,
}

impl Pool {
    /// The grain says that this worker holds it since before this process led the shard.
    pub(crate) fn expect(&mut self, shard: ShardId, grain: &GrainId, attempt: Uuid, lease: Lease) -> Vec<Action> {
        if self.claiming.contains_key(&attempt) || !self.led.contains_key(&shard) {
            return Vec::new();
        }
        if let Some(leased) = self.leases.get_mut((attempt, lease.token)) {
            if leased.standing == Standing::Verifying {
                leased.standing = Standing::Held;
            }
            return Vec::new();
        }
        let mut actions = Vec::new();
        // Who is connected has told all it holds, and what it got since then is known here.
        let never_started = self.tells_all(&lease, shard);
        let standing = if never_started { Standing::Expiring } else { Standing::Held };
        if never_started {
            let lease = lease.clone();
            actions.push(Action::Expired { grain: grain.clone(), attempt, lease, never_started });
        }
        let leased = Leased {
            grain: grain.clone(),
            shard,
            lease,
            deadline_ms: self.now_ms + self.lease_ms,
            standing,
            has_place: false,
            session: 0,
            delivery: Delivery::Over,
        };
        self.leases.put(attempt, leased);
        actions
    }

    /// The grain has answered whether a worker holds what it says.
    pub(crate) fn verified(&mut self, attempt: Uuid, lease: &Lease, answer: Claimed) -> Vec<Action> {
        let key = (attempt, lease.token);
        let asked = self.leases.get_mut(key).filter(|leased| leased.standing == Standing::Verifying);
        match (asked, answer) {
            (Some(leased), Claimed::Yes) => {
                leased.standing = Standing::Held;
                Vec::new()
            }
            (Some(_), Claimed::No) => {
                let mut actions = self.stop(key, "the lease is lost", true).unwrap_or_default();
                actions.extend(self.forget(key));
                actions
            }
            (Some(_), Claimed::Gone) | (None, _) => Vec::new(),
        }
    }

    /// The edge has answered what was sent to it, or never will.
    pub(crate) fn delivered(&mut self, edge: NodeId, work: &Work, answer: Delivered) -> Vec<Action> {
        let worker = work.lease.worker.as_str();
        if let Some(found) = self.workers.get_mut(worker)
            && found.session == work.session
            && let Seat::Far(far) = &mut found.seat
            && far.edge == edge
        {
            far.sent = far.sent.saturating_sub(1);
            far.refusals.answered(answer, self.now_ms);
            if let Delivered::Placed { room, stamp } | Delivered::Refused { room, stamp } = answer
                && stamp > far.stamp
            {
                (far.room, far.stamp) = (room, stamp);
            }
        }
        let attempt = work.item.attempt;
        let mut actions = Vec::new();
        let same_epoch = self.leads((work.shard, work.epoch));
        match self.leases.get_mut((attempt, work.lease.token)) {
            Some(leased) => {
                leased.delivery = match answer {
                    Delivered::Unknown => Delivery::Doubtful,
                    _ => Delivery::Over,
                };
                let never = matches!(answer, Delivered::Refused { .. } | Delivered::NotSent);
                if matches!(answer, Delivered::Placed { .. }) {
                    leased.session = leased.session.max(work.session);
                }
                if never && leased.standing != Standing::Expiring {
                    leased.standing = Standing::Expiring;
                    let (grain, lease) = (leased.grain.clone(), leased.lease.clone());
                    actions.push(Action::Expired { grain, attempt, lease, never_started: true });
                }
                // The worker may have been heard of in a later session, which had to wait for this answer.
                actions.extend(self.settle(worker));
            }
            // In a later epoch it may be that its grain just was not asked yet.
            None if matches!(answer, Delivered::Placed { .. }) && same_epoch => {
                let reason = "the lease was lost on the way".to_owned();
                let (tenant, token) = (work.grain.tenant.clone(), work.lease.token);
                let stop = Stop { tenant, attempt, token, reason, lost: true };
                actions.push(Action::Send { edge, parcel: Parcel::Stop(stop) });
            }
            None => {}
        }
        actions.extend(self.has_room_again(worker));
        actions
    }

    /// The grain knows that the lease is over.
    pub(crate) fn expiry_told(&mut self, attempt: Uuid, lease: &Lease) -> Vec<Action> {
        let key = (attempt, lease.token);
        let is_over = self.leases.get(key).is_some_and(|leased| leased.standing == Standing::Expiring);
        if is_over { self.forget(key) } else { Vec::new() }
    }

    /// Ends what was not renewed in time.
    pub(crate) fn tick(&mut self) -> Vec<Action> {
        let over = |leased: &Leased| leased.deadline_ms <= self.now_ms && leased.standing != Standing::Expiring;
        let over = self.leases.keys(over);
        let mut actions = Vec::new();
        for key in over {
            if self.leases.get(key).is_some_and(|leased| leased.standing == Standing::Interrupted) {
                actions.extend(self.forget(key));
                continue;
            }
            actions.extend(self.stop(key, "the lease was not renewed in time", true).unwrap_or_default());
            actions.extend(self.end(key, false));
        }
        actions.extend(self.end_silent_guests());
        actions.extend(self.end_promises());
        actions.extend(self.end_pauses());
        let leased = self.leases.values().map(|leased| leased.lease.worker.as_str());
        let holding: HashSet<&str> = leased.chain(self.guests.values().map(|g| g.lease.worker.as_str())).collect();
        self.workers
            .retain(|id, worker| !matches!(worker.seat, Seat::Away) || worker.taken > 0 || holding.contains(&**id));
        actions
    }

    /// This process stood still for so long, so that nobody could renew: no lease ends for that.
    pub(crate) fn excuse(&mut self, ms: u64) {
        for leased in self.leases.values_mut() {
            leased.deadline_ms += ms;
        }
        for guest in self.guests.values_mut() {
            guest.renewed_ms += ms;
        }
    }

    // ---- inside ----

    /// Whether the worker of this lease has a session that would know of it: if it does not say it holds it, it cannot.
    pub(super) fn tells_all(&self, lease: &Lease, shard: ShardId) -> bool {
        let worker = self.workers.get(lease.worker.as_str());
        worker.is_some_and(|worker| match &worker.seat {
            _ if worker.session < session_of(&lease.token) => false,
            Seat::Here(here) => here.sender.is_some(),
            Seat::Far(far) => self.complete.contains(&(shard, far.edge)),
            Seat::Away => false,
        })
    }

    /// What is leased to this worker and is not with its session in force, it never got.
    pub(super) fn settle(&mut self, id: &str) -> Vec<Action> {
        let Some(session) = self.workers.get(id).map(|worker| worker.session) else { return Vec::new() };
        let leases = self.leases.iter().filter(|(_, leased)| leased.lease.worker == id);
        let astray = leases.filter(|(_, leased)| match leased.delivery {
            Delivery::Over => leased.session < session,
            Delivery::UnderWay => false,
            Delivery::Doubtful => leased.session < session && session != session_of(&leased.lease.token),
        });
        let astray = astray.filter(|(_, leased)| self.tells_all(&leased.lease, leased.shard));
        let astray: Vec<Key> = astray.map(|(attempt, leased)| (attempt, leased.lease.token)).collect();
        let mut actions = Vec::new();
        for key in astray {
            match self.leases.get(key).map(|leased| leased.standing) {
                Some(Standing::Held | Standing::Verifying) => actions.extend(self.end(key, true)),
                Some(Standing::Interrupted) => actions.extend(self.forget(key)),
                Some(Standing::Expiring) => actions.extend(self.free_place(key)),
                None => {}
            }
        }
        actions
    }

    /// The lease is over, and the grain has to hear it.
    pub(super) fn end(&mut self, key: Key, never_started: bool) -> Vec<Action> {
        let Some(leased) = self.leases.get_mut(key) else { return Vec::new() };
        leased.standing = Standing::Expiring;
        let (grain, lease) = (leased.grain.clone(), leased.lease.clone());
        let mut actions = vec![Action::Expired { grain, attempt: key.0, lease, never_started }];
        actions.extend(self.free_place(key));
        actions
    }

    pub(super) fn free_place(&mut self, key: Key) -> Vec<Action> {
        let Some(leased) = self.leases.get_mut(key).filter(|leased| leased.has_place) else { return Vec::new() };
        leased.has_place = false;
        let id = leased.lease.worker.clone();
        self.place_freed(&id)
    }

    /// Removes the lease, if there is one.
    pub(super) fn forget(&mut self, key: Key) -> Vec<Action> {
        let actions = self.free_place(key);
        self.leases.remove(key);
        actions
    }

    /// Whatever was known of who has it.
    pub(super) fn forget_all(&mut self, attempt: Uuid) -> Vec<Action> {
        self.leases.keys_of(attempt).into_iter().flat_map(|key| self.forget(key)).collect()
    }

    /// Tells the worker that holds it, wherever it is; `None` if it cannot be told.
    pub(super) fn stop(&self, key: Key, reason: &str, lost: bool) -> Option<Vec<Action>> {
        let leased = self.leases.get(key)?;
        let attempt = key.0;
        match &self.workers.get(leased.lease.worker.as_str())?.seat {
            Seat::Here(here) => {
                // A worker knows an attempt by its id only: it must not take a word about an old lease for one about a newer.
                let same = self.leases.all_of(attempt).iter().filter(|other| other.lease.worker == leased.lease.worker);
                if same.into_iter().any(|other| other.session > leased.session) {
                    return Some(Vec::new());
                }
                let interrupt = ToWorker::Interrupt { attempt, reason: reason.to_owned() };
                here.sender.as_ref()?.send(interrupt).ok().map(|()| Vec::new())
            }
            Seat::Far(far) => {
                let (tenant, token) = (leased.grain.tenant.clone(), leased.lease.token);
                let stop = Stop { tenant, attempt, token, reason: reason.to_owned(), lost };
                Some(vec![Action::Send { edge: far.edge, parcel: Parcel::Stop(stop) }])
            }
            Seat::Away => None,
        }
    }
}
