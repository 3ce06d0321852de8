//! What the mesh is told at its start, and its bounds.

use super::tls::Tls;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Lowest and highest version of the protocol between nodes that this build speaks.
pub const PROTOCOL: std::ops::RangeInclusive<u32> = 1..=1;

/// The shortest cluster secret. Bytes.
pub const SECRET_BYTES_MIN: usize = 32;

/// What carries the calls from node to node. Raft always goes over gRPC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Carrier {
    /// ractor_cluster, one gate actor a node. A peer whose gate cannot be reached is called over gRPC meanwhile. There is
    /// one such mesh a process: a second one in the same process carries its calls over gRPC and says so in the log.
    #[default]
    Mesh,
    /// gRPC only: costs about twice the CPU a call.
    Tonic,
}

#[derive(Clone)]
pub struct MeshOptions {
    /// The node's stable name; one of those in its certificate.
    pub name: String,
    pub zone: String,
    pub build: String,
    /// Listener for gRPC between nodes.
    pub peer_listen: SocketAddr,
    /// Listener for ractor_cluster.
    pub mesh_listen: SocketAddr,
    /// The host under which others reach both. `None` = the address of the listener, or of this machine as the peer sees
    /// it where the listener is on an unspecified address.
    pub advertise_host: Option<String>,
    /// Where clients reach this node, e.g. `http://10.0.0.1:7420`.
    pub client_address: String,
    /// `host:port`, or `dns:name:port` for all addresses of a name; looked up again each time.
    pub seeds: Vec<String>,
    /// Where the addresses of the others are kept from one start to the next, to be tried beside the seeds. `None` = nowhere.
    pub known: Option<PathBuf>,
    pub tls: Tls,
    /// Known to all nodes of a cluster and to nobody else; at least [`SECRET_BYTES_MIN`] bytes. Never logged.
    pub secret: Vec<u8>,
    pub carrier: Carrier,
    pub timing: MeshTiming,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeshTiming {
    /// How often a peer is asked for a sign of life.
    pub ping: Duration,
    /// Without one for this long it counts as down: nothing more is sent to it.
    pub deadline: Duration,
    /// For connecting and for each handshake.
    pub handshake: Duration,
    /// Between two rounds over seeds that are not attached.
    pub seeds: Duration,
    /// First and longest pause before a peer is dialled again.
    pub redial_min: Duration,
    pub redial_max: Duration,
}

impl Default for MeshTiming {
    fn default() -> Self {
        Self {
            ping: Duration::from_millis(500),
            deadline: Duration::from_millis(2_500),
            handshake: Duration::from_secs(2),
            seeds: Duration::from_secs(1),
            redial_min: Duration::from_millis(50),
            redial_max: Duration::from_millis(500),
        }
    }
}

impl fmt::Debug for MeshOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret stays out.
        f.debug_struct("MeshOptions")
            .field("name", &self.name)
            .field("zone", &self.zone)
            .field("peer_listen", &self.peer_listen)
            .field("mesh_listen", &self.mesh_listen)
            .field("seeds", &self.seeds)
            .field("carrier", &self.carrier)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}
