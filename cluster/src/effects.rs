//! What follows a commit, in memory. All of it can be told again from rows, so nothing here waits or fails.

use crate::dispatch::Places;
use crate::hub::Hub;
use crate::room::Room;
use grain_contract::{Effect, GrainId};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) deactivate: bool,
}

pub(crate) fn act(hub: &Arc<Hub>, room: &Room, grain: &GrainId, effects: Vec<Effect>, places: &mut Places) -> Told {
    let mut told = Told::default();
    for effect in effects {
        match effect {
            Effect::Offer(item) => hub.dispatch.offer(room.id, grain, item, places),
            Effect::Withdraw { attempt, interrupt, reason } => {
                hub.dispatch.withdraw(&grain.tenant, attempt, interrupt, &reason);
            }
            Effect::Expect { attempt, queue, lease, body: _ } => hub.dispatch.expect(grain, attempt, queue, lease),
            Effect::Changed => hub.watches.changed(grain),
            Effect::Deactivate => told.deactivate = true,
        }
    }
    told
}
