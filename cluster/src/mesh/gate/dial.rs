//! Dials the gates of the nodes with greater ids; those with smaller ones dial this node.

use super::keeper::Keeper;
use crate::mesh::link::Backoff;
use crate::mesh::socket::dial;
use crate::mesh::tls::Purpose;
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether a node that cannot be dialled now can be.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One task for each node to dial, as they become known.
pub(super) async fn all(keeper: Arc<Keeper>) {
    let shared = keeper.shared.clone();
    let (me, mut news) = (shared.me.identity().node_id, shared.roster.news());
    let dialled = Arc::new(Mutex::new(BTreeSet::<NodeId>::new()));
    loop {
        news.mark_unchanged();
        for identity in shared.roster.known(Instant::now()) {
            let node = identity.node_id;
            if node > me && !identity.mesh_address.is_empty() && dialled.lock().insert(node) {
                let (keeper, dialled, stop) = (keeper.clone(), dialled.clone(), shared.stop.clone());
                shared.tasks.spawn(async move {
                    stop.run_until_cancelled(keep(&keeper, node)).await;
                    dialled.lock().remove(&node);
                });
            }
        }
        let changed = shared.stop.run_until_cancelled(async {
            // A task that has ended (its node was forgotten) is not news, so look now and then.
            tokio::time::timeout(LOOK_AGAIN, news.changed()).await.ok();
        });
        if changed.await.is_none() {
            return;
        }
    }
}

/// Until the node is forgotten.
async fn keep(keeper: &Keeper, node: NodeId) {
    let shared = &keeper.shared;
    let (mut backoff, mut attached) = (Backoff::new(&shared.timing), shared.roster.attached());
    while let Some(identity) = shared.roster.identity(node) {
        // What is not attached at all is found again over gRPC first: there its address is learned anew.
        if identity.mesh_address.is_empty() || !attached.borrow_and_update().contains_key(&node) {
            tokio::time::timeout(LOOK_AGAIN, attached.changed()).await.ok();
            continue;
        }
        match dial(&identity.mesh_address, &shared.credentials, Purpose::Gate, shared.timing.handshake).await {
            Ok(secured) => {
                if let Some(connection) = keeper.attach(secured, false) {
                    connection.end.cancelled().await;
                    // Good for a while means the next try may come at once.
                    if connection.is_ready.is_cancelled() {
                        backoff.reset();
                    }
                }
            }
            Err(error) => tracing::debug!(address = identity.mesh_address, %error, "a gate was not reached"),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}
