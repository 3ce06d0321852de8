//! The actor of an activation: takes one message after the other and lets the turns run.

use super::{Envelope, State};
use crate::turn::Turns;
use ractor::{Actor, ActorProcessingErr, ActorRef};

/// Local-only: no message of it ever crosses a node, so it needs no name and no wire form.
pub(super) struct Turner;

impl Actor for Turner {
    type Msg = Envelope;
    type State = Turns;
    type Arguments = Turns;

    async fn pre_start(&self, _: ActorRef<Envelope>, turns: Turns) -> Result<Turns, ActorProcessingErr> {
        // Rows are read by the first turn, not here: a failed start would drop the messages that wait.
        Ok(turns)
    }

    async fn handle(
        &self,
        _: ActorRef<Envelope>,
        mut envelope: Envelope,
        turns: &mut Turns,
    ) -> Result<(), ActorProcessingErr> {
        let Some(reply) = envelope.reply.take() else { return Ok(()) };
        let activation = envelope.permit.activation.clone();
        if !turns.is_loaded() {
            activation.set(State::Activating);
        }
        let answer = turns.run(&envelope.trigger, envelope.deadline).await;
        if turns.is_loaded() {
            activation.set(State::Valid);
        }
        activation.weigh(turns.memory());
        if crate::reaper::is_over_budget(turns.hub()) {
            turns.hub().over_budget.notify_one();
        }
        let deactivate = answer.as_ref().is_ok_and(|done| done.deactivate);
        // Outside before the answer is: whoever got the answer finds the place free.
        drop(envelope);
        let _ = reply.send(answer);
        if deactivate {
            turns.room().catalog.deactivate_if_idle(&activation);
        }
        Ok(())
    }
}
