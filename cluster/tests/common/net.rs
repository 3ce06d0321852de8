//! A network in memory: carries Raft and calls between the nodes of one process, and can be cut.

use bytes::Bytes;
use cluster::peers::{Attached, CallError, PeerInfo, PeerService, Peers, Switchboard};
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use shard::{Host, LinkError, NodeId, RaftFrame, RaftLink, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

const CHUNK: usize = 64 << 10;

/// The wire between all nodes. Nodes are known by their names, so that a cut outlives a restart.
#[derive(Clone, Default)]
pub struct Net(Arc<Wire>);

#[derive(Default)]
struct Wire {
    ports: RwLock<BTreeMap<String, Arc<Port>>>,
    /// Nothing goes from the first to the second.
    cuts: RwLock<BTreeSet<(String, String)>>,
    /// Calls of these methods never arrive.
    lost: RwLock<BTreeSet<&'static str>>,
    refreshing: Mutex<()>,
}

/// Where one process is plugged in. Made before its host, which needs it as its link.
pub struct Port {
    net: Net,
    pub name: String,
    node: OnceLock<NodeId>,
    pub boot: u64,
    host: OnceLock<Host>,
    pub services: Arc<Switchboard>,
    cluster: RwLock<Option<uuid::Uuid>>,
    attached: watch::Sender<Attached>,
    leaving: AtomicBool,
    /// Calls of others that came here.
    pub served: AtomicU64,
}

impl Net {
    pub fn port(&self, name: &str, boot: u64) -> Arc<Port> {
        Arc::new(Port {
            net: self.clone(),
            name: name.to_owned(),
            node: OnceLock::new(),
            boot,
            host: OnceLock::new(),
            services: Arc::default(),
            cluster: RwLock::default(),
            attached: watch::Sender::default(),
            leaving: AtomicBool::new(false),
            served: AtomicU64::new(0),
        })
    }

    /// Cuts both ways between the two.
    pub fn cut(&self, a: &str, b: &str) {
        self.0.cuts.write().extend([(a.to_owned(), b.to_owned()), (b.to_owned(), a.to_owned())]);
        self.refresh();
    }

    /// From one moment to the next, only these are cut.
    pub fn cut_only(&self, pairs: &[(&str, &str)]) {
        let both = |(a, b): &(&str, &str)| [((*a).to_owned(), (*b).to_owned()), ((*b).to_owned(), (*a).to_owned())];
        *self.0.cuts.write() = pairs.iter().flat_map(both).collect();
        self.refresh();
    }

    /// Only what the first sends to the second is lost.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.0.cuts.write().insert((from.to_owned(), to.to_owned()));
        self.refresh();
    }

    /// From now on, calls of this method are lost on the way.
    pub fn lose(&self, method: &'static str) {
        self.0.lost.write().insert(method);
    }

    /// Nothing is lost any more.
    pub fn lose_nothing(&self) {
        self.0.lost.write().clear();
    }

    pub fn heal(&self) {
        self.0.cuts.write().clear();
        self.refresh();
    }

    pub fn unplug(&self, name: &str) {
        self.0.ports.write().remove(name);
        self.refresh();
    }

    fn is_open(&self, from: &str, to: &str) -> bool {
        !self.0.cuts.read().contains(&(from.to_owned(), to.to_owned()))
    }

    fn find(&self, node: NodeId) -> Option<Arc<Port>> {
        self.0.ports.read().values().find(|port| port.node.get() == Some(&node)).cloned()
    }

    /// Tells everybody who can be called now.
    fn refresh(&self) {
        let _one_at_a_time = self.0.refreshing.lock();
        let ports: Vec<Arc<Port>> = self.0.ports.read().values().cloned().collect();
        for port in &ports {
            let near = ports.iter().filter(|other| {
                let (a, b) = (&port.name, &other.name);
                a != b && self.is_open(a, b) && self.is_open(b, a) && port.is_of_one_cluster(other)
            });
            let near: BTreeMap<NodeId, PeerInfo> =
                near.filter_map(|other| Some((*other.node.get()?, other.info()))).collect();
            port.attached.send_if_modified(|known| {
                let is_news = **known != near;
                if is_news {
                    *known = Arc::new(near);
                }
                is_news
            });
        }
    }
}

impl Port {
    /// The process is up: from now on it can be reached.
    pub fn plug_in(self: &Arc<Self>, host: Host) {
        let _ = self.node.set(host.node_id());
        *self.cluster.write() = host.cluster_id();
        let _ = self.host.set(host);
        self.net.0.ports.write().insert(self.name.clone(), self.clone());
        self.net.refresh();
    }

    pub fn set_cluster(&self, cluster: uuid::Uuid) {
        *self.cluster.write() = Some(cluster);
        self.net.refresh();
    }

    fn info(&self) -> PeerInfo {
        PeerInfo {
            name: self.name.clone(),
            boot: self.boot,
            cluster: *self.cluster.read(),
            client_address: String::new(),
            zone: String::new(),
            build: String::new(),
        }
    }

    fn is_of_one_cluster(&self, other: &Port) -> bool {
        let (ours, theirs) = (*self.cluster.read(), *other.cluster.read());
        ours.is_none() || theirs.is_none() || ours == theirs
    }

    /// The other end, if a message gets there now.
    fn reach(&self, to: NodeId) -> Option<Arc<Port>> {
        let is_plugged_in = self.net.0.ports.read().get(&self.name).is_some_and(|port| port.boot == self.boot);
        let port = self.net.find(to).filter(|port| self.net.is_open(&self.name, &port.name));
        port.filter(|port| is_plugged_in && self.is_of_one_cluster(port))
    }

    /// Whether the answer gets back.
    fn hears(&self, port: &Port) -> bool {
        self.net.is_open(&port.name, &self.name) && self.reach(*port.node.get().unwrap_or(&0)).is_some()
    }
}

/// One node's side of the network, as the silo and the host want it.
pub struct Line(pub Arc<Port>);

impl Peers for Line {
    fn me(&self) -> NodeId {
        self.0.node.get().copied().unwrap_or(0)
    }

    fn call(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (me, from) = (self.0.clone(), self.me());
        Box::pin(async move {
            let port = me.reach(to).ok_or_else(|| CallError::NotSent("it cannot be reached".to_owned()))?;
            if me.net.0.lost.read().contains(method) {
                return Err(CallError::Unknown("lost on the way".to_owned()));
            }
            let service = port.services.clone();
            port.served.fetch_add(1, Ordering::SeqCst);
            // As over a real wire: who hangs up does not end the work at the other end.
            let work = tokio::spawn(async move { service.handle(from, method, body, within).await });
            let unknown = |why: &str| CallError::Unknown(why.to_owned());
            let answer = tokio::time::timeout(within, work).await.map_err(|_| unknown("no answer in time"))?;
            let answer = answer.map_err(|_| unknown("the other end died"))?;
            if me.hears(&port) { answer.map_err(CallError::Refused) } else { Err(unknown("the answer was lost")) }
        })
    }

    fn attached(&self) -> watch::Receiver<Attached> {
        self.0.attached.subscribe()
    }

    fn say_leaving(&self) {
        self.0.leaving.store(true, Ordering::SeqCst);
    }

    fn leaving(&self) -> BTreeSet<NodeId> {
        let ports = self.0.net.0.ports.read();
        let leaving = ports.values().filter(|port| port.name != self.0.name && port.leaving.load(Ordering::SeqCst));
        leaving.filter_map(|port| port.node.get().copied()).collect()
    }
}

impl RaftLink for Line {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let (me, from) = (self.0.clone(), self.me());
        Box::pin(async move {
            let unreachable = || LinkError::Unreachable("it cannot be reached".to_owned());
            let port = me.reach(to).ok_or_else(unreachable)?;
            let host = port.host.get().cloned().ok_or_else(unreachable)?;
            let work = tokio::spawn(async move { host.raft_request(from, frame).await });
            let answer = tokio::time::timeout(within, work).await.map_err(|_| LinkError::TimedOut)?;
            let answer = answer.map_err(|_| LinkError::TimedOut)?;
            if me.hears(&port) { answer } else { Err(LinkError::TimedOut) }
        })
    }

    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let (me, from) = (self.0.clone(), self.me());
        let sent = async move {
            let unreachable = || LinkError::Unreachable("it cannot be reached".to_owned());
            let port = me.reach(to).ok_or_else(unreachable)?;
            let host = port.host.get().cloned().ok_or_else(unreachable)?;
            let content = std::fs::read(&file).map_err(|error| LinkError::Refused(error.to_string()))?;
            let mut receiver = host.receive_snapshot(from, shard, head).await?;
            for chunk in content.chunks(CHUNK) {
                me.reach(to).ok_or_else(unreachable)?;
                receiver.write(Bytes::copy_from_slice(chunk)).await?;
            }
            receiver.finish().await
        };
        Box::pin(async move { tokio::time::timeout(within, sent).await.unwrap_or(Err(LinkError::TimedOut)) })
    }
}
