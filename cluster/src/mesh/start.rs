//! Starting and stopping.

use super::answering::Answering;
use super::calls::Calls;
use super::gate::{Claim, Keeper};
use super::known::Known;
use super::me::Me;
use super::options::{MeshOptions, PROTOCOL, SECRET_BYTES_MIN};
use super::proof::Secret;
use super::quiet::Quiet;
use super::raft::RaftTarget;
use super::road::Road;
use super::roster::Roster;
use super::shared::Shared;
use super::snapshot::Snapshots;
use super::socket::listen;
use super::tls::Credentials;
use super::{Carrier, Error, RaftPipe, port, seeds};
use crate::peers::{Peers, Switchboard};
use granary_proto::peers::NodeIdentity;
use shard::NodeId;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Where the two listeners are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub peer: SocketAddr,
    /// `None` = this node carries its calls over gRPC only.
    pub mesh: Option<SocketAddr>,
}

/// For the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeshFigures {
    /// Peers that can be called now, and those of them over the gate.
    pub attached: usize,
    pub gates: usize,
    /// Whole snapshots since the start.
    pub snapshots_sent: u64,
    pub snapshots_received: u64,
}

/// The node's connections to the others.
pub struct Mesh {
    snapshots: Arc<Snapshots>,
    shared: Arc<Shared>,
    peers: Arc<Calls>,
    pipe: Arc<RaftPipe>,
    addresses: Addresses,
}

/// Who this node is, as its folder and its start say.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    pub node: NodeId,
    pub boot: u64,
    pub cluster: Option<Uuid>,
}

impl Mesh {
    /// Listens, then finds the others through the seeds. Returns once it listens, whether anybody answers or not.
    ///
    /// # Errors
    /// [`Error::Settings`], [`Error::Tls`] and [`Error::Listen`], for what in the options cannot be used.
    pub async fn start(
        options: MeshOptions,
        node: NodeId,
        boot: u64,
        cluster: Option<Uuid>,
        pipe: Arc<RaftPipe>,
        host: shard::Host,
        services: Arc<Switchboard>,
    ) -> Result<Arc<Self>, Error> {
        Self::start_with(options, Birth { node, boot, cluster }, pipe, Arc::new(host), services).await
    }

    pub(super) async fn start_with(
        options: MeshOptions,
        birth: Birth,
        pipe: Arc<RaftPipe>,
        raft: Arc<dyn RaftTarget>,
        services: Arc<Switchboard>,
    ) -> Result<Arc<Self>, Error> {
        check(&options, birth)?;
        let credentials = Arc::new(Credentials::new(options.tls.clone())?);
        let listener = listen(options.peer_listen).await?;
        let gate = gate_listener(&options).await?;
        let addresses = Addresses {
            peer: address(&listener, options.peer_listen)?,
            mesh: gate.as_ref().map(|(_, listener)| address(listener, options.mesh_listen)).transpose()?,
        };
        let shared = Arc::new(Shared {
            me: Me::new(identity(&options, birth, addresses)),
            roster: Roster::default(),
            credentials,
            secret: Secret::new(&options.secret),
            timing: options.timing,
            raft,
            answering: Arc::new(Answering::new(services)),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            barred: watch::Sender::new(None),
            quiet: Quiet::default(),
        });
        let snapshots = Arc::<Snapshots>::default();
        port::serve(&shared, &snapshots, listener);
        if let Some((claim, listener)) = gate {
            Keeper::start(&shared, listener, claim);
        }
        let known = Known::read(options.known);
        known.keep(&shared);
        seeds::keep(&shared, options.seeds, known);
        pipe.connect(Arc::new(Road { shared: shared.clone(), snapshots: snapshots.clone() }));
        let peers = Arc::new(Calls::new(shared.clone()));
        Ok(Arc::new(Self { snapshots, shared, peers, pipe, addresses }))
    }

    /// From now on peers of other clusters are refused.
    pub fn set_cluster(&self, cluster: Uuid) {
        self.shared.me.set_cluster(cluster);
    }

    pub fn peers(&self) -> Arc<dyn Peers> {
        self.peers.clone()
    }

    /// Those whose calls go over the gate; the other attached ones are called over gRPC.
    pub fn gates(&self) -> watch::Receiver<Arc<BTreeSet<NodeId>>> {
        self.shared.roster.gates()
    }

    /// Those that were heard of from themselves: attached now, or a short while ago.
    pub fn known(&self) -> Vec<NodeIdentity> {
        self.shared.roster.known(Instant::now())
    }

    pub fn figures(&self) -> MeshFigures {
        MeshFigures {
            attached: self.shared.roster.attached().borrow().len(),
            gates: self.shared.roster.gates().borrow().len(),
            snapshots_sent: self.snapshots.sent.load(Ordering::Relaxed),
            snapshots_received: self.snapshots.received.load(Ordering::Relaxed),
        }
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Comes when this process must end: its id or name is another living node's, or its data of another cluster.
    pub async fn barred(&self) -> Error {
        let mut barred = self.shared.barred.subscribe();
        match barred.wait_for(Option::is_some).await.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            // The sender lives as long as this mesh.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Takes no new calls, lets those in progress end for `within` at most, and closes, which takes 2 s at most.
    pub async fn stop(&self, within: Duration) {
        let ending = async {
            self.shared.answering.drain().await;
            // So that the last answers leave before their connections end.
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::time::timeout(within, ending).await.ok();
        self.pipe.disconnect();
        self.shared.stop.cancel();
        self.shared.roster.close();
        self.shared.tasks.close();
        if tokio::time::timeout(CLOSE_WITHIN, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("connections to other nodes have not ended in time");
        }
    }
}

const LAST_ANSWERS: Duration = Duration::from_millis(50);
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

impl Drop for Mesh {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.roster.close();
    }
}

async fn gate_listener(options: &MeshOptions) -> Result<Option<(Claim, TcpListener)>, Error> {
    if options.carrier == Carrier::Tonic {
        return Ok(None);
    }
    let Some(claim) = Claim::take() else {
        tracing::info!(name = options.name, "another node of this process has its gate; calls go over gRPC");
        return Ok(None);
    };
    Ok(Some((claim, listen(options.mesh_listen).await?)))
}

fn address(listener: &TcpListener, wanted: SocketAddr) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|error| Error::Listen { address: wanted.to_string(), why: error.to_string() })
}

fn check(options: &MeshOptions, birth: Birth) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::Settings(why));
    let names = options.tls.names()?;
    if !names.contains(&options.name) {
        let names = names.join(", ");
        return wrong(format!("Expected a certificate for node {}, but it is for {names}", options.name));
    }
    if options.secret.len() < SECRET_BYTES_MIN {
        let length = options.secret.len();
        return wrong(format!("Expected a cluster secret of at least {SECRET_BYTES_MIN} bytes, but it has {length}"));
    }
    let timing = options.timing;
    if timing.ping.is_zero() || timing.deadline <= timing.ping {
        return wrong("Expected a deadline above the time between pings, but it is not".into());
    }
    if birth.node == 0 {
        return wrong("Expected a node id, but it is 0".into());
    }
    seeds::check(&options.seeds)
}

fn identity(options: &MeshOptions, birth: Birth, addresses: Addresses) -> NodeIdentity {
    let reached_at = |listener: SocketAddr| match &options.advertise_host {
        Some(host) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{}", listener.port()),
        Some(host) => format!("{host}:{}", listener.port()),
        // The other side fills in where it met this node.
        None if listener.ip().is_unspecified() => format!(":{}", listener.port()),
        None => listener.to_string(),
    };
    NodeIdentity {
        name: options.name.clone(),
        node_id: birth.node,
        boot: birth.boot,
        cluster_id: birth.cluster.map(|cluster| cluster.to_string()).unwrap_or_default(),
        protocol_min: *PROTOCOL.start(),
        protocol_max: *PROTOCOL.end(),
        build: options.build.clone(),
        peer_address: reached_at(addresses.peer),
        mesh_address: addresses.mesh.map(reached_at).unwrap_or_default(),
        client_address: options.client_address.clone(),
        zone: options.zone.clone(),
        leaving: false,
    }
}
