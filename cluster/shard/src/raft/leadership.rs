//! Who leads a shard, told only when it may be acted upon.
//!
//! A new leader may not yet have applied what the one before committed. Its own first entry comes behind all of that, so
//! it owns the shard from the moment an entry of its own term was applied. The term is the epoch.

use super::machine::Machine;
use super::types::TypeConfig;
use crate::api::Leadership;
use grain_contract::Epoch;
use openraft::async_runtime::WatchReceiver;
use openraft::vote::RaftLeaderId;
use openraft::{Raft, ServerState};
use tokio::sync::watch;

/// Runs until the shard's Raft ends.
pub async fn follow(
    raft: Raft<TypeConfig, Machine>,
    mut applied: watch::Receiver<u64>,
    told: watch::Sender<Leadership>,
) {
    let mut metrics = raft.server_metrics();
    // The raft handle is not needed any more, and would keep the group alive.
    drop(raft);
    loop {
        let now = {
            let metrics = metrics.borrow_watched();
            let term = metrics.vote.leader_id().term();
            let owner = metrics.state == ServerState::Leader && *applied.borrow_and_update() == term;
            Leadership { epoch: owner.then_some(Epoch(term)), leader: metrics.current_leader }
        };
        told.send_if_modified(|known| std::mem::replace(known, now) != now);
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { break },
            changed = applied.changed() => if changed.is_err() { break },
        }
    }
    told.send_replace(Leadership::default());
}
