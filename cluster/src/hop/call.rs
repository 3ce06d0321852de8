//! A call of a grain, put to its owner on another node; and the owner's side of it. The owner's side never hops on.

use super::wire;
use crate::hub::Hub;
use crate::metrics::count;
use crate::peers::{CallError, Refused};
use crate::refusal;
use crate::routing::{Call, Origin};
use crate::turn::{Refusal, Trigger};
use bytes::Bytes;
use grain_contract::{CommandId, GrainId, Method, Rejection};
use granary_proto::peers::grain_answer::Answer;
use granary_proto::peers::{GrainAnswer, GrainCall};
use prost::Message;
use shard::{NodeId, ShardId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const CALL: &str = "grain.call";

/// How one hop ended.
pub(crate) enum Hop {
    /// By the owner: a reply or a refusal.
    Answered(Result<Vec<u8>, Rejection>),
    /// Nothing happened there.
    Nothing { leader: Option<NodeId>, why: Option<Rejection> },
    /// It may have happened.
    Unknown(Rejection),
}

pub(crate) fn question(target: &GrainId, call: &Call, origin: Origin) -> Bytes {
    let question = GrainCall {
        grain: target.storage_bytes(),
        method: u32::from(call.method.0),
        body: call.body.to_vec(),
        command: call.command.as_ref().map(|command| command.as_str().to_owned()).unwrap_or_default(),
        inside: origin == Origin::Inside,
    };
    question.encode_to_vec().into()
}

impl Hub {
    /// `may_leave`: if somebody else is seen to lead the shard, the answer is not waited for: a frozen owner holds up nobody
    /// who can ask the next one.
    pub(crate) async fn hop(
        self: &Arc<Self>,
        to: NodeId,
        shard: ShardId,
        question: Bytes,
        may_leave: bool,
        deadline: Instant,
    ) -> Hop {
        count(&self.metrics.hops);
        let call = self.post(to, CALL, question, deadline);
        let answer = if may_leave {
            tokio::select! {
                answer = call => answer,
                () = self.someone_else_leads(shard, to) => Err(CallError::Unknown("another node leads now".to_owned())),
            }
        } else {
            call.await
        };
        let hop = match answer {
            Ok(answer) => read_answer(&answer),
            Err(error) => not_answered(error),
        };
        if !matches!(hop, Hop::Answered(_)) {
            count(&self.metrics.hops_failed);
        }
        hop
    }

    /// Ends when the local replica hears of a leader that is neither `asked` nor the one it took for the leader before.
    async fn someone_else_leads(&self, shard: ShardId, asked: NodeId) {
        let Some(room) = self.rooms.get(shard.0 as usize) else { return std::future::pending().await };
        let mut leadership = room.store.leadership();
        let mut before = leadership.borrow_and_update().leader;
        loop {
            if leadership.changed().await.is_err() {
                return std::future::pending().await;
            }
            let Some(leader) = leadership.borrow_and_update().leader else { continue };
            if leader != asked && before != Some(leader) {
                return;
            }
            before = Some(leader);
        }
    }

    /// The owner's side: one try at home.
    pub(super) async fn serve_call(self: &Arc<Self>, body: &[u8], deadline: Instant) -> Result<GrainAnswer, Refused> {
        let call: GrainCall = wire::read(body)?;
        let grain = wire::grain(&call.grain).ok_or_else(|| Refused::BadRequest("no grain is named".to_owned()))?;
        let method = u16::try_from(call.method).map_err(|_| Refused::BadRequest("no such method".to_owned()))?;
        let command = Some(call.command).filter(|command| !command.is_empty()).map(CommandId::new);
        let trigger = Trigger::Call { method: Method(method), body: call.body.into(), command };
        let origin = if call.inside { Origin::Inside } else { Origin::Outside };
        let answer = match self.attempt(&grain, trigger, origin, deadline).await {
            Ok(done) => Answer::Reply(done.reply),
            Err(Refusal::Rejected(rejection)) => Answer::Rejection(wire::rejection(&rejection)),
            Err(Refusal::Unknown(rejection)) => Answer::Unknown(wire::rejection(&rejection)),
            Err(Refusal::Moved) => Answer::Moved(wire::moved(self.leader_of(self.room(&grain).id))),
        };
        Ok(GrainAnswer { answer: Some(answer) })
    }
}

fn read_answer(body: &[u8]) -> Hop {
    match GrainAnswer::decode(body).map(|answer| answer.answer) {
        Ok(Some(Answer::Reply(reply))) => Hop::Answered(Ok(reply)),
        Ok(Some(Answer::Rejection(told))) => Hop::Answered(Err(wire::read_rejection(told))),
        Ok(Some(Answer::Moved(told))) => Hop::Nothing { leader: wire::read_moved(told), why: None },
        Ok(Some(Answer::Unknown(told))) => Hop::Unknown(wire::read_rejection(told)),
        Ok(None) | Err(_) => Hop::Unknown(unknown("its answer cannot be read")),
    }
}

fn not_answered(error: CallError) -> Hop {
    match error {
        CallError::Unknown(why) => Hop::Unknown(unknown(why)),
        CallError::Overloaded | CallError::Refused(Refused::Overloaded) => {
            Hop::Nothing { leader: None, why: Some(refusal::too_busy("the owner's node")) }
        }
        error @ (CallError::NotSent(_) | CallError::Refused(_)) => {
            tracing::debug!(%error, "a call did not reach the owner of its shard");
            Hop::Nothing {
                leader: None,
                why: Some(refusal::unavailable("the owner of its shard cannot be reached now")),
            }
        }
    }
}

fn unknown(why: impl std::fmt::Display) -> Rejection {
    refusal::unavailable(format!(
        "the owner's answer did not come ({why}); whether the call took place is not known, repeat it"
    ))
}

/// So much earlier than the caller gives up does the owner, so that its word arrives.
pub(super) fn margin(within: Duration) -> Duration {
    (within / 10).min(Duration::from_millis(50))
}
