//! The heartbeats of all groups that are led here, in one beat.
//!
//! openraft would let each group beat in its own time. Beating together, all heartbeats of a node to another one leave as one
//! message and come back as one: the cost of an idle cluster hardly depends on the number of its shards.

use super::shard::ShardInner;
use super::ticks;
use futures::FutureExt;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;

pub async fn run(slots: Vec<Arc<ShardInner>>, every: Duration) {
    loop {
        ticks::sleep(every).await;
        for replica in slots.iter().filter_map(|slot| slot.replica()) {
            let leads = replica.raft.server_metrics().borrow_watched().state == ServerState::Leader;
            if leads {
                // A group whose queue is full must not hold up the beat of the others; it is heard of by what it does.
                replica.raft.trigger().heartbeat().now_or_never();
            }
        }
    }
}
