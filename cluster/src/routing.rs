//! From a grain id to its owner, and there into a turn.
//!
//! On one node the owner of every shard is here or nowhere; the seam for a hop is [`Hub::attempt`]'s answer `Moved`, after
//! which the owner is looked up again. A call is retried inside its deadline as long as nothing can have happened: no leader,
//! moved, leadership lost while it waited. What may have happened is said to be unknown, and not repeated behind the caller's
//! back.

use crate::activation::Activation;
use crate::catalog::NotAdmitted;
use crate::hub::Hub;
use crate::refusal;
use crate::turn::{Done, Refusal, Trigger};
use grain_contract::{Code, CommandId, GrainId, Method, Rejection, limits};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// A call that the silo itself makes may take this long, then it is made again.
pub(crate) const INNER_CALL: Duration = Duration::from_secs(30);
/// Messages from inside (reminders, claims, deliveries) find room at a grain that callers have filled.
const INNER_QUEUE_MAX: usize = limits::ACTIVATION_QUEUE_MAX * 2;
/// Between two looks for an owner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Outside,
    Inside,
}

/// Counts a call from outside for as long as it lives.
struct InProgress<'a>(&'a Hub);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
        if self.0.is_draining() {
            self.0.call_ended.notify_waiters();
        }
    }
}

impl Hub {
    /// A call from outside: admitted, counted, answered before its deadline.
    pub(crate) async fn call(
        self: &Arc<Self>,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
        command: Option<CommandId>,
        deadline: Instant,
    ) -> Result<Vec<u8>, Rejection> {
        let answer = self.admitted(target, method, body, command, deadline).await;
        if let Err(rejection) = &answer {
            self.metrics.rejected(rejection.code);
        }
        answer
    }

    async fn admitted(
        self: &Arc<Self>,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
        command: Option<CommandId>,
        deadline: Instant,
    ) -> Result<Vec<u8>, Rejection> {
        // Counted before the look at `draining`: a drain that begins now sees this call or is seen by it.
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let _in_progress = InProgress(self);
        if self.is_draining() {
            return Err(refusal::unavailable("this silo is shutting down"));
        }
        if before >= limits::CALLS_IN_PROGRESS_MAX {
            return Err(refusal::overloaded("this silo's calls in progress", limits::CALLS_IN_PROGRESS_MAX));
        }
        let trigger = Trigger::Call { method, body: body.into(), command };
        self.tell(&target, trigger, Origin::Outside, deadline).await.map(|done| done.reply)
    }

    /// A call that the silo itself makes; waits its turn, refused only by the grain or for want of an owner.
    pub(crate) async fn call_inside(
        self: &Arc<Self>,
        target: &GrainId,
        method: Method,
        body: bytes::Bytes,
    ) -> Result<Vec<u8>, Rejection> {
        let trigger = Trigger::Call { method, body, command: None };
        self.tell(target, trigger, Origin::Inside, Instant::now() + INNER_CALL).await.map(|done| done.reply)
    }

    /// One message to one grain, by whatever owner it has, inside the deadline.
    pub(crate) async fn tell(
        self: &Arc<Self>,
        target: &GrainId,
        trigger: Trigger,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Done, Rejection> {
        loop {
            match self.attempt(target, trigger.clone(), origin, deadline).await {
                Ok(done) => return Ok(done),
                Err(Refusal::Rejected(rejection)) => return Err(rejection),
                Err(Refusal::Moved) => {
                    let again = Instant::now() + LOOK_AGAIN;
                    if again >= deadline || self.stop.is_cancelled() {
                        return Err(refusal::unavailable("its shard has no leader now"));
                    }
                    let mut leadership = self.room(target).store.leadership();
                    let _ = tokio::time::timeout_at(again, leadership.changed()).await;
                }
            }
        }
    }

    /// The same by this node or not at all: [`Refusal::Moved`] if the owner is another.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        target: &GrainId,
        trigger: Trigger,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Done, Refusal> {
        let Some(behaviour) = self.types.get(&target.kind) else {
            return Err(Refusal::Rejected(Rejection::new(
                Code::Invalid,
                format!("Expected a grain kind of this silo, but found {:?}.", target.kind.as_str()),
            )));
        };
        let room = self.room(target);
        let limit = match origin {
            Origin::Outside => limits::ACTIVATION_QUEUE_MAX,
            Origin::Inside => INNER_QUEUE_MAX,
        };
        let make = |epoch| Activation::create(target, epoch, behaviour, self, room);
        let permit =
            room.catalog.enter(target, limit, self.clock.monotonic_ms(), make).map_err(|refused| match refused {
                NotAdmitted::NotHere => Refusal::Moved,
                NotAdmitted::Full => Refusal::Rejected(refusal::overloaded("this grain's queue", limit)),
            })?;
        let answer = permit.send(trigger, deadline).map_err(|(refusal, dead)| {
            room.catalog.forget(&dead);
            refusal
        })?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Refusal::Rejected(refusal::unavailable(
                "the turn broke off; whether it was committed is not known, repeat it",
            ))),
            Err(_) => Err(Refusal::Rejected(refusal::unavailable(
                "the deadline came first; whether the turn was committed is not known, repeat it",
            ))),
        }
    }
}
