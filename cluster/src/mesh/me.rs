//! What this node says of itself.

use granary_proto::peers::NodeIdentity;
use tokio::sync::watch;
use uuid::Uuid;

pub(super) struct Me {
    identity: watch::Sender<NodeIdentity>,
}

impl Me {
    pub(super) fn new(identity: NodeIdentity) -> Self {
        Self { identity: watch::Sender::new(identity) }
    }

    pub(super) fn identity(&self) -> NodeIdentity {
        self.identity.borrow().clone()
    }

    pub(super) fn changes(&self) -> watch::Receiver<NodeIdentity> {
        self.identity.subscribe()
    }

    /// This process is about to stop.
    pub(super) fn set_leaving(&self) {
        self.identity.send_if_modified(|me| !std::mem::replace(&mut me.leaving, true));
    }

    pub(super) fn set_cluster(&self, cluster: Uuid) {
        let cluster = cluster.to_string();
        self.identity.send_if_modified(|me| {
            let is_new = me.cluster_id != cluster;
            me.cluster_id = cluster;
            is_new
        });
    }
}
