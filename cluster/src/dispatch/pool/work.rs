//! Work on its way to a worker: offered, waiting, claimed, withdrawn.

use super::places::session_of;
use super::{Action, Claimed, Delivery, Leased, Parcel, Pool, Seat, Standing, Taking, Waiting, Work};
use crate::ToWorker;
use grain_contract::{Epoch, GrainId, Lease, WorkItem};
use shard::ShardId;
use uuid::Uuid;

impl Pool {
    /// Leased in a commit of this epoch.
    pub(crate) fn assign(
        &mut self,
        (shard, epoch): (ShardId, Epoch),
        grain: &GrainId,
        item: WorkItem,
        lease: Lease,
        Taking { place, since, is_late }: Taking,
    ) -> Vec<Action> {
        let known = self.leases.get((item.attempt, lease.token));
        let sent_already = known.is_some_and(|l| l.lease == lease && l.standing == Standing::Held);
        // Sent already: the turn that answered the claim offered it too. Not led any more: the next owner finds the lease in
        // the rows, and no worker that has it.
        if sent_already || !self.leads((shard, epoch)) {
            return if place { self.give_back(&lease.worker) } else { Vec::new() };
        }
        let mut actions = self.forget_all(item.attempt);
        let attempt = item.attempt;
        let mut leased = Leased {
            grain: grain.clone(),
            shard,
            lease: lease.clone(),
            deadline_ms: self.now_ms + self.lease_ms,
            standing: Standing::Held,
            has_place: false,
            session: 0,
            delivery: Delivery::Over,
        };
        if let Some(worker) = self.workers.get_mut(lease.worker.as_str()) {
            if place {
                worker.taken = worker.taken.saturating_sub(1);
            }
            // In a later session than the lease was made in, it is not handed out: see `token_in`.
            let is_same_session = worker.session == session_of(&lease.token);
            match &mut worker.seat {
                _ if !is_same_session || is_late => {}
                Seat::Here(here) => {
                    let assignment = ToWorker::Assign { grain: grain.clone(), item, lease: lease.clone(), since };
                    let sent = here.sender.as_ref().is_some_and(|sender| sender.send(assignment).is_ok());
                    here.placed += u32::from(sent);
                    leased.has_place = sent;
                    leased.session = if sent { worker.session } else { 0 };
                }
                Seat::Far(far) => {
                    far.sent += 1;
                    leased.delivery = Delivery::UnderWay;
                    let (grain, lease, session) = (grain.clone(), lease.clone(), worker.session);
                    let work = Work { grain, shard, epoch, item, lease, session };
                    actions.push(Action::Send { edge: far.edge, parcel: Parcel::Work(work) });
                }
                Seat::Away => {}
            }
        }
        if leased.session == 0 && leased.delivery != Delivery::UnderWay {
            // The worker went away, or came anew, between the taking and the commit, or that was long ago: nothing can have
            // begun.
            leased.standing = Standing::Expiring;
            let worker = lease.worker.clone();
            actions.push(Action::Expired { grain: grain.clone(), attempt, lease, never_started: true });
            self.leases.put(attempt, leased);
            actions.extend(self.has_room_again(&worker));
            return actions;
        }
        self.leases.put(attempt, leased);
        actions
    }

    /// Not leased yet: waits its turn. The caller has counted it and made room.
    pub(crate) fn enqueue(&mut self, waiting: Waiting) -> Vec<Action> {
        let mut actions = self.forget_all(waiting.item.attempt);
        let (attempt, name) = (waiting.item.attempt, waiting.item.queue.clone());
        self.waiting.insert(attempt, name.clone());
        let queue = self.queues.entry(name.clone()).or_default();
        let is_first = queue.waiting.is_empty();
        queue.waiting.push_back(waiting);
        actions.extend(self.pair(&name));
        self.news |= is_first && self.waiting.contains_key(&attempt);
        actions
    }

    /// Whether an offer of this attempt says nothing new.
    pub(crate) fn knows(&self, attempt: Uuid) -> bool {
        self.waiting.contains_key(&attempt) || self.claiming.contains_key(&attempt)
    }

    /// The grain does not want it any more. Gives back what waited, for the caller's count.
    pub(crate) fn withdraw(&mut self, attempt: Uuid, interrupt: bool, reason: &str) -> (Vec<Action>, Option<Waiting>) {
        if let Some(name) = self.waiting.remove(&attempt) {
            let queue = self.queues.get_mut(&name);
            let gone = queue.and_then(|queue| {
                let at = queue.waiting.iter().position(|waiting| waiting.item.attempt == attempt)?;
                queue.waiting.remove(at)
            });
            return (Vec::new(), gone);
        }
        if let Some(claiming) = self.claiming.get_mut(&attempt) {
            claiming.withdrawn = Some(interrupt);
            return (Vec::new(), None);
        }
        let mut actions = Vec::new();
        for key in self.leases.keys_of(attempt) {
            let told = if interrupt { self.stop(key, reason, false) } else { None };
            let deadline_ms = self.now_ms + self.lease_ms;
            match (self.leases.get_mut(key), told) {
                (Some(leased), Some(told)) => {
                    leased.standing = Standing::Interrupted;
                    leased.deadline_ms = deadline_ms;
                    actions.extend(told);
                }
                _ => actions.extend(self.forget(key)),
            }
        }
        (actions, None)
    }

    /// The grain has answered a claim.
    pub(crate) fn claim_answered(
        &mut self,
        waiting: Waiting,
        lease: Lease,
        answer: Claimed,
        taking: Taking,
    ) -> Vec<Action> {
        let attempt = waiting.item.attempt;
        // Another token: the shard was lost and led again meanwhile, and this is an answer to what was asked before.
        let asked = self.claiming.get(&attempt).is_some_and(|claiming| claiming.token == lease.token);
        let claiming = if asked { self.claiming.remove(&attempt) } else { None };
        match (answer, claiming.map(|claiming| (claiming.epoch, claiming.withdrawn))) {
            (Claimed::Yes, Some((epoch, None))) => {
                self.assign((waiting.shard, epoch), &waiting.grain, waiting.item, lease, taking)
            }
            // Leased, and withdrawn before it was sent: the grain waits for a word of a worker that never got it. Or leased
            // under a leadership that is over: nobody watches over a lease that nobody was sent.
            (Claimed::Yes, Some((_, Some(true))) | None) => {
                let mut actions = self.give_back(&lease.worker);
                actions.push(Action::Expired { grain: waiting.grain, attempt, lease, never_started: true });
                actions
            }
            _ => self.give_back(&lease.worker),
        }
    }
}
