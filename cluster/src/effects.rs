//! What follows a commit, in memory. All of it can be told again from rows, so nothing here waits or fails.

use crate::dispatch::Places;
use crate::hub::Hub;
use crate::room::Room;
use grain_contract::{Effect, Epoch, GrainId};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) deactivate: bool,
}

/// `epoch`: of the leadership under which the effects were committed.
pub(crate) fn act(
    hub: &Arc<Hub>,
    room: &Room,
    epoch: Epoch,
    grain: &GrainId,
    effects: Vec<Effect>,
    places: &mut Places,
) -> Told {
    let mut told = Told::default();
    for effect in effects {
        match effect {
            Effect::Offer(item) => hub.dispatch.offer((room.id, epoch), grain, item, places),
            Effect::Withdraw { attempt, interrupt, reason } => {
                hub.dispatch.withdraw(&grain.tenant, attempt, interrupt, &reason);
            }
            Effect::Expect { attempt, queue, lease, body: _ } => {
                hub.dispatch.expect((room.id, epoch), grain, attempt, queue, lease);
            }
            Effect::Changed => {
                hub.watches.changed(grain);
                hub.interests.changed(grain);
            }
            Effect::Deactivate => told.deactivate = true,
        }
    }
    told
}
