//! Who leads a shard, told only when it may be acted upon.
//!
//! A new leader may not yet have applied what the one before committed. Its own first entry comes behind all of that, so
//! it owns the shard from the moment an entry of its own term was applied. The term is the epoch.
//!
//! A leader that hears of another one, or of a higher term, is none from that message on, and its epoch is closed with it.
//! One that hears nothing stays leader in name: Raft cannot know. It takes no commit then and confirms no read, because
//! both ask the lease (`confirm`).

use super::group::view;
use super::notices::Notices;
use super::replica::Group;
use crate::api::Leadership;
use grain_contract::Epoch;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::vote::RaftLeaderId;
use tokio::sync::watch;

/// Runs until the replica's Raft ends. `applied` is the term of the newest applied entry.
pub async fn follow(raft: Group, mut applied: watch::Receiver<u64>, notices: Notices) {
    let (mut server, data) = (raft.server_metrics(), raft.data_metrics());
    // The raft handle is not needed any more, and would keep the group alive.
    drop(raft);
    loop {
        let (now, group) = {
            let server = server.borrow_watched();
            let term = server.vote.leader_id().term();
            let owner = server.state == ServerState::Leader && *applied.borrow_and_update() == term;
            let now = Leadership { epoch: owner.then_some(Epoch(term)), leader: server.current_leader };
            (now, view(&server, &data.borrow_watched()))
        };
        notices.leadership.send_if_modified(|known| std::mem::replace(known, now) != now);
        notices.group.send_replace(group);
        tokio::select! {
            changed = server.changed() => if changed.is_err() { break },
            changed = applied.changed() => if changed.is_err() { break },
        }
    }
    notices.none();
}
