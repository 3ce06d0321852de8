//! How a silo talks to the silos beside it: the seam between the machinery and whatever carries its calls.
//!
//! The mesh on ractor_cluster is one implementation, gRPC another, the simulator's network a third. None of them decides
//! anything: who owns a shard is Raft's to say, and [`Peers::attached`] is a hint that may be wrong both ways.

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use shard::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A peer that can be called now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub name: String,
    /// New at every start of its process.
    pub boot: u64,
    /// `None` = it belongs to no cluster yet.
    pub cluster: Option<uuid::Uuid>,
    pub client_address: String,
    pub zone: String,
    pub build: String,
}

pub type Attached = Arc<BTreeMap<NodeId, PeerInfo>>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It never left, so nothing can have happened.
    #[error("not sent: {0}")]
    NotSent(String),
    /// Too much is on the way to this peer; nothing was sent.
    #[error("too many calls are on the way to this node")]
    Overloaded,
    /// No answer: it may have happened or not.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
    /// The peer's answer: it did nothing.
    #[error("refused: {0}")]
    Refused(Refused),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the node does not know the method {0}")]
    UnknownMethod(String),
    #[error("the node cannot read the request: {0}")]
    BadRequest(String),
    #[error("the node has too much to do")]
    Overloaded,
    #[error("it is another node or of another cluster: {0}")]
    NotMe(String),
    #[error("{0}")]
    Other(String),
}

/// Calls to other nodes. Bodies are at most [`CALL_BYTES_MAX`].
pub trait Peers: Send + Sync + 'static {
    fn me(&self) -> NodeId;

    /// One call and its answer, after `within` at the latest.
    fn call(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>>;

    /// Who can be called now, as far as is known. A hint: never a reason to take over anything.
    fn attached(&self) -> watch::Receiver<Attached>;

    /// Tells everybody that this process is about to stop. It is called all the same until it does.
    fn say_leaving(&self) {}

    /// Who has said so. A hint: nobody should be made a leader who is about to stop.
    fn leaving(&self) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }
}

/// The largest body of a call or its answer.
pub const CALL_BYTES_MAX: usize = 4 << 20;

/// What answers calls of other nodes.
pub trait PeerService: Send + Sync + 'static {
    /// Must answer: never panics out, never waits beyond `within`.
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>>;
}

/// Sends each call to the service that its method's first part names (`grain.call` → `grain`). Services may come later than
/// the first call: until then their methods are not known here.
#[derive(Default)]
pub struct Switchboard {
    services: RwLock<HashMap<&'static str, Arc<dyn PeerService>>>,
}

impl Switchboard {
    pub fn mount(&self, prefix: &'static str, service: Arc<dyn PeerService>) {
        self.services.write().insert(prefix, service);
    }
}

impl PeerService for Switchboard {
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>> {
        let prefix = method.split('.').next().unwrap_or_default();
        let service = self.services.read().get(prefix).cloned();
        match service {
            Some(service) => service.handle(from, method, body, within),
            None => Box::pin(std::future::ready(Err(Refused::UnknownMethod(method.to_owned())))),
        }
    }
}

/// For a silo that is alone.
pub struct NoPeers {
    attached: watch::Sender<Attached>,
}

impl Default for NoPeers {
    fn default() -> Self {
        Self { attached: watch::Sender::new(Attached::default()) }
    }
}

impl Peers for NoPeers {
    fn me(&self) -> NodeId {
        0
    }

    fn call(&self, _: NodeId, _: &'static str, _: Bytes, _: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        Box::pin(std::future::ready(Err(CallError::NotSent("this silo is alone".into()))))
    }

    fn attached(&self) -> watch::Receiver<Attached> {
        self.attached.subscribe()
    }
}
