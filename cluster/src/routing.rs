//! From a grain id to its owner, and there into a turn.
//!
//! The owner is looked for at home first, then one hop away (see [`crate::hop`]). A call is made again inside its deadline as
//! long as nothing can have happened: no leader, moved, not sent, leadership lost while it waited. What may have happened is
//! made again too if a second time has no second effect ([`grain_contract::GrainType::is_idempotent`], or a command whose reply
//! is stored); otherwise it is said to be unknown.

use crate::activation::Activation;
use crate::catalog::NotAdmitted;
use crate::hop::Hop;
use crate::hop::way::Way;
use crate::hub::Hub;
use crate::refusal;
use crate::turn::{Done, Refusal, Trigger};
use bytes::Bytes;
use grain_contract::{Code, CommandId, GrainId, Method, Rejection, limits};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// A call that the silo itself makes may take this long, then it is made again.
pub(crate) const INNER_CALL: Duration = Duration::from_secs(30);
/// Messages from inside (reminders, claims, deliveries) find room at a grain that callers have filled.
const INNER_QUEUE_MAX: usize = limits::ACTIVATION_QUEUE_MAX * 2;
/// Between two looks for an owner: at first, and at most. News of a leader end the pause.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);
pub(crate) const LOOK_AGAIN_MAX: Duration = Duration::from_millis(160);

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

/// What is asked of a grain, whoever owns it.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) body: Bytes,
    pub(crate) command: Option<CommandId>,
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
        let answer = self.admitted(&target, Call { method, body: body.into(), command }, deadline).await;
        if let Err(rejection) = &answer {
            self.metrics.rejected(rejection.code);
        }
        answer
    }

    async fn admitted(self: &Arc<Self>, target: &GrainId, call: Call, deadline: Instant) -> Result<Vec<u8>, Rejection> {
        // Counted before the look at `draining`: a drain that begins now sees this call or is seen by it.
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let _in_progress = InProgress(self);
        // With others beside it a silo that drains goes on to answer: what it gives away, it forwards.
        if self.is_draining() && !self.has_company() {
            return Err(refusal::unavailable("this silo is shutting down"));
        }
        if before >= limits::CALLS_IN_PROGRESS_MAX {
            return Err(refusal::overloaded("this silo's calls in progress", limits::CALLS_IN_PROGRESS_MAX));
        }
        self.route(target, call, Origin::Outside, deadline).await
    }

    /// A call that the silo itself makes; waits its turn, refused only by the grain or for want of an owner.
    pub(crate) async fn call_inside(
        self: &Arc<Self>,
        target: &GrainId,
        method: Method,
        body: Bytes,
    ) -> Result<Vec<u8>, Rejection> {
        let call = Call { method, body, command: None };
        self.route(target, call, Origin::Inside, Instant::now() + INNER_CALL).await
    }

    /// One call to one grain, by whatever owner it has, inside the deadline.
    async fn route(
        self: &Arc<Self>,
        target: &GrainId,
        call: Call,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Vec<u8>, Rejection> {
        let shard = self.room(target).id;
        let repeatable = call.command.is_some()
            || self.types.get(&target.kind).is_some_and(|behaviour| behaviour.is_idempotent(call.method));
        let trigger = Trigger::Call { method: call.method, body: call.body.clone(), command: call.command.clone() };
        let mut said = refusal::unavailable("its shard has no leader now");
        let mut question = None;
        let mut way = Way::default();
        let mut pause = LOOK_AGAIN;
        loop {
            match self.attempt(target, trigger.clone(), origin, deadline).await {
                Ok(done) => return Ok(done.reply),
                Err(Refusal::Rejected(rejection)) => return Err(rejection),
                Err(Refusal::Unknown(rejection)) if !repeatable => return Err(rejection),
                Err(Refusal::Unknown(rejection)) => {
                    said = rejection;
                    way.not_at_home();
                }
                Err(Refusal::Moved) => way.not_at_home(),
            }
            while Instant::now() < deadline
                && let Some(node) = self.next_node(shard, &way)
            {
                let question = question.get_or_insert_with(|| crate::hop::call::question(target, &call, origin));
                match self.hop(node, shard, question.clone(), repeatable, deadline).await {
                    Hop::Answered(answer) => {
                        self.hints.set(shard.0 as usize, Some(node));
                        return answer;
                    }
                    Hop::Nothing { leader, why } => {
                        self.forget_hint(shard, node, leader);
                        way.in_vain(node, leader);
                        said = why.unwrap_or(said);
                    }
                    Hop::Unknown(rejection) if !repeatable => return Err(rejection),
                    Hop::Unknown(rejection) => {
                        self.forget_hint(shard, node, None);
                        way.in_vain(node, None);
                        said = rejection;
                    }
                }
            }
            let again = Instant::now() + pause;
            if again >= deadline || (self.stop.is_cancelled() && !self.has_company()) {
                return Err(said);
            }
            self.news_of(shard, again).await;
            way.again();
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }

    /// One message that is for the owner alone (a reminder, a wake), so it never hops: if this is not the owner any more, the
    /// new one finds it in the rows by itself.
    pub(crate) async fn tell(
        self: &Arc<Self>,
        target: &GrainId,
        trigger: Trigger,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Done, Rejection> {
        self.attempt(target, trigger, origin, deadline).await.map_err(|refusal| match refusal {
            Refusal::Rejected(rejection) | Refusal::Unknown(rejection) => rejection,
            Refusal::Moved => refusal::unavailable("this is not the owner now"),
        })
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
            Ok(Err(_)) => Err(Refusal::Unknown(refusal::unavailable(
                "the turn broke off; whether it was committed is not known, repeat it",
            ))),
            Err(_) => Err(Refusal::Unknown(refusal::unavailable(
                "the deadline came first; whether the turn was committed is not known, repeat it",
            ))),
        }
    }
}
