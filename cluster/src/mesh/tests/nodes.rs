//! A node of these tests: a mesh, an echo service, and a stand-in for the replicas.

use crate::mesh::raft::{RaftTarget, Receiver};
use crate::mesh::start::Birth;
use crate::mesh::{Carrier, Error, Mesh, MeshOptions, MeshTiming, RaftPipe, Tls};
use crate::peers::{Attached, PeerService, Peers, Refused, Switchboard};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use shard::{LinkError, NodeId, RaftFrame, ShardId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// Nothing here takes that long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "nodes");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn tls(&self, names: &[&str]) -> Tls {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign(CertificateParams::new(names).unwrap())
    }

    pub(crate) fn tls_by_common_name(&self, name: &str) -> Tls {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Tls {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Tls::texts(self.0.pem(), certificate.pem(), key.serialize_pem())
    }
}

pub(crate) struct Node {
    pub mesh: Arc<Mesh>,
    pub pipe: Arc<RaftPipe>,
    pub raft: Arc<StandIn>,
    pub echo: Arc<Echo>,
    pub id: NodeId,
}

#[derive(Clone)]
pub(crate) struct Plan {
    pub options: MeshOptions,
    pub birth: Birth,
}

pub(crate) const SECRET: [u8; 32] = [7; 32];

/// A new one for each start.
fn boot() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(100);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Plan {
    pub(crate) fn new(authority: &Authority, name: &str, node: NodeId, seeds: &[&Node]) -> Self {
        let free = "127.0.0.1:0".parse().unwrap();
        let options = MeshOptions {
            name: name.to_owned(),
            zone: "z".into(),
            build: "test".into(),
            peer_listen: free,
            mesh_listen: free,
            advertise_host: None,
            client_address: format!("http://{name}:7420"),
            seeds: seeds.iter().map(|seed| seed.mesh.addresses().peer.to_string()).collect(),
            known: None,
            tls: authority.tls(&[name]),
            secret: SECRET.to_vec(),
            carrier: Carrier::Tonic,
            timing: MeshTiming { seeds: Duration::from_millis(100), ..MeshTiming::default() },
        };
        Self { options, birth: Birth { node, boot: boot(), cluster: None } }
    }

    pub(crate) fn of_cluster(mut self, cluster: Uuid) -> Self {
        self.birth.cluster = Some(cluster);
        self
    }

    pub(crate) async fn try_start(self) -> Result<Node, Error> {
        let (pipe, raft, echo) = (RaftPipe::new(), Arc::<StandIn>::default(), Arc::<Echo>::default());
        let switchboard = Arc::<Switchboard>::default();
        switchboard.mount("echo", echo.clone());
        let mesh = Mesh::start_with(self.options, self.birth, pipe.clone(), raft.clone(), switchboard).await?;
        Ok(Node { mesh, pipe, raft, echo, id: self.birth.node })
    }

    pub(crate) async fn start(self) -> Node {
        self.try_start().await.expect("starts")
    }
}

pub(crate) async fn start(authority: &Authority, name: &str, node: NodeId, seeds: &[&Node]) -> Node {
    Plan::new(authority, name, node, seeds).start().await
}

impl Node {
    pub(crate) fn peers(&self) -> Arc<dyn Peers> {
        self.mesh.peers()
    }

    /// Its address, for those that should find it.
    pub(crate) fn seed(&self) -> String {
        self.mesh.addresses().peer.to_string()
    }

    pub(crate) async fn until(&self, what: &str, is_it: impl FnMut(&Attached) -> bool) {
        soon(what, self.peers().attached().wait_for(is_it)).await.expect("the mesh lives");
    }

    pub(crate) async fn sees(&self, others: &[&Node]) {
        let ids: Vec<_> = others.iter().map(|other| other.id).collect();
        self.until("attached", |attached| attached.keys().eq(&ids)).await;
    }

    pub(crate) async fn has_gates(&self, ids: &[NodeId]) {
        let mut gates = self.mesh.gates();
        let ids = ids.iter().copied().collect();
        soon("the gates", gates.wait_for(|gates| **gates == ids)).await.expect("the mesh lives");
    }

    pub(crate) async fn call(
        &self,
        to: &Node,
        method: &'static str,
        body: &[u8],
    ) -> Result<Bytes, crate::peers::CallError> {
        self.peers().call(to.id, method, Bytes::copy_from_slice(body), PATIENCE).await
    }

    pub(crate) async fn stop(&self) {
        soon("the stop", self.mesh.stop(Duration::from_millis(100))).await;
    }
}

/// `echo.back` answers its body, `echo.wait` never, `echo.panic` panics, `echo.no` refuses, `echo.from` says who called, `echo.trace` in
/// which trace.
#[derive(Default)]
pub(crate) struct Echo {
    pub arrived: Notify,
}

impl PeerService for Echo {
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>> {
        self.arrived.notify_one();
        let method = method.to_owned();
        Box::pin(async move {
            match &*method {
                "echo.back" => Ok(body),
                "echo.trace" => Ok(crate::trace::Trace::current().map(|it| it.to_string()).unwrap_or_default().into()),
                "echo.from" => Ok(from.to_string().into()),
                "echo.big" => Ok(vec![1; 3 << 20].into()),
                "echo.wait" => std::future::pending().await,
                "echo.panic" => panic!("as asked"),
                "echo.no" => Err(Refused::Other("no".into())),
                _ => Err(Refused::UnknownMethod(method)),
            }
        })
    }
}

/// A snapshot's head and its file.
pub(crate) type Whole = (Bytes, Vec<u8>);

/// Answers each request with sender and body; shard 1 is not hosted, shard 2 never answers, shard 3 panics.
#[derive(Default)]
pub(crate) struct StandIn {
    pub arrived: Notify,
    pub snapshots: Arc<Mutex<Vec<Whole>>>,
    pub dropped: Arc<Notify>,
}

pub(crate) struct Taken {
    head: Bytes,
    bytes: Vec<u8>,
    arrived: Arc<Mutex<Vec<Whole>>>,
    dropped: Arc<Notify>,
}

impl RaftTarget for StandIn {
    fn request(&self, from: NodeId, frame: RaftFrame) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        self.arrived.notify_one();
        Box::pin(async move {
            match frame.shard.0 {
                1 => Err(LinkError::Refused("not hosted".into())),
                2 => std::future::pending().await,
                3 => panic!("as asked"),
                _ => Ok([format!("{from} {:?} ", frame.kind).as_bytes(), &frame.body].concat().into()),
            }
        })
    }

    fn receive(
        &self,
        _: NodeId,
        shard: ShardId,
        head: Bytes,
    ) -> BoxFuture<'static, Result<Box<dyn Receiver>, LinkError>> {
        let (arrived, dropped) = (self.snapshots.clone(), self.dropped.clone());
        Box::pin(async move {
            if shard.0 == 1 {
                return Err(LinkError::Refused("not hosted".into()));
            }
            Ok(Box::new(Taken { head, bytes: Vec::new(), arrived, dropped }) as Box<dyn Receiver>)
        })
    }
}

impl Receiver for Taken {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), LinkError>> {
        self.bytes.extend_from_slice(&chunk);
        Box::pin(std::future::ready(Ok(())))
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        self.arrived.lock().push((self.head.clone(), std::mem::take(&mut self.bytes)));
        Box::pin(std::future::ready(Ok("installed".into())))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.dropped.notify_one();
    }
}
