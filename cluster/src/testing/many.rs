//! Several silos over shards that they share: each shard's rows are there once, each silo has a replica of some of the shards,
//! and the test says who leads. Between the silos is a [`Net`].

use super::memory::MemoryStore;
use super::net::Net;
use super::{Lengths, START, request, toy};
use crate::directory::{Directory, Member, MemberState, View};
use crate::peers::Switchboard;
use crate::store::Store;
use crate::{Around, Clock, ManualClock, Silo, SiloOptions};
use grain_contract::{CommandId, GrainId, Method, Rejection, Timestamp};
use shard::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) silo: Silo,
    /// By shard.
    pub(crate) stores: Vec<Arc<MemoryStore>>,
    pub(crate) clock: ManualClock,
    pub(crate) directory: Directory,
}

pub(crate) struct Many {
    pub(crate) net: Arc<Net>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) options: SiloOptions,
    supplier: Arc<Lengths>,
    replicas: usize,
    shards: usize,
}

impl Many {
    /// Nodes 1 to `nodes`, each with a replica of every shard; shard n is led by node n modulo their number, plus one.
    pub(crate) fn start(nodes: u64, shards: usize) -> Self {
        Self::with(nodes, shards, nodes as usize, |_| {})
    }

    /// As [`Many::start`], but shard n has replicas at its leader and the `replicas - 1` nodes behind it only.
    pub(crate) fn with(nodes: u64, shards: usize, replicas: usize, change: impl FnOnce(&mut SiloOptions)) -> Self {
        let mut options = SiloOptions::new("test", toy::CLAIM, toy::LEASE_EXPIRED, toy::SWEEP, toy::OPEN);
        change(&mut options);
        let net = Arc::new(Net::default());
        let first: Vec<Arc<MemoryStore>> = (0..shards).map(|_| Arc::new(MemoryStore::new())).collect();
        let mut many =
            Self { net, nodes: BTreeMap::new(), options, supplier: Arc::new(Lengths::default()), replicas, shards };
        for id in 1..=nodes {
            let stores = first.iter().enumerate().map(|(shard, store)| {
                let store = store.beside();
                store.hosted.store(many.placed(shard, nodes).contains(&id), Ordering::SeqCst);
                Arc::new(store)
            });
            let clock = ManualClock::at(Timestamp(START));
            many.launch(id, stores.collect(), clock, nodes);
        }
        for shard in 0..shards {
            many.lead(shard, many.placed(shard, nodes)[0]);
        }
        many
    }

    fn placed(&self, shard: usize, nodes: u64) -> Vec<NodeId> {
        (0..self.replicas as u64).map(|n| (shard as u64 + n) % nodes + 1).collect()
    }

    fn launch(&mut self, id: NodeId, stores: Vec<Arc<MemoryStore>>, clock: ManualClock, nodes: u64) {
        let (services, directory) = (Arc::new(Switchboard::default()), Directory::default());
        directory.learn(self.view(nodes));
        let around = Around { peers: self.net.plug(id, services.clone()), directory: directory.clone(), services };
        let given = stores.iter().map(|store| store.clone() as Arc<dyn Store>).collect();
        let types: Vec<Arc<dyn grain_contract::GrainType>> = vec![Arc::new(toy::Toys)];
        let silo = Silo::start_over(
            given,
            self.options.clone(),
            types,
            self.supplier.clone(),
            Arc::new(clock.clone()),
            around,
        );
        self.nodes.insert(id, Node { id, silo: silo.expect("one kind"), stores, clock, directory });
    }

    fn view(&self, nodes: u64) -> View {
        let member = |node: NodeId| Member {
            node,
            name: format!("node-{node}"),
            boot: 1,
            generation: 1,
            state: MemberState::Up,
            zone: String::new(),
            client_address: String::new(),
            build: "test".to_owned(),
            since: Timestamp(START),
        };
        View {
            cluster: Some(uuid::Uuid::from_u128(1)),
            version: 1,
            members: (1..=nodes).map(|node| (node, member(node))).collect(),
            places: (0..self.shards).map(|shard| self.placed(shard, nodes)).collect(),
        }
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub(crate) fn silo(&self, id: NodeId) -> &Silo {
        &self.nodes[&id].silo
    }

    /// A new leadership begins at the node; all replicas that hear of it do so at once.
    pub(crate) fn lead(&self, shard: usize, leader: NodeId) {
        let epoch = self.nodes[&leader].stores[shard].next_epoch();
        for node in self.nodes.values() {
            let store = &node.stores[shard];
            if !store.cut.load(Ordering::SeqCst) {
                let heard = store.hosted.load(Ordering::SeqCst).then_some(leader);
                store.led_by(epoch, heard, node.id == leader);
            }
        }
    }

    /// Nobody leads it; nobody is told to be the leader.
    pub(crate) fn leaderless(&self, shard: usize) {
        for node in self.nodes.values() {
            node.stores[shard].led_by(0, None, false);
        }
    }

    /// As [`Many::lead`] for all shards that `from` leads, spread over the others; `from` hears nothing of it.
    pub(crate) fn fail_over(&self, from: NodeId) {
        let led: Vec<usize> = (0..self.shards).filter(|shard| self.leader(*shard) == Some(from)).collect();
        self.cut_stores(from);
        for shard in led {
            let others = self.nodes.values().filter(|node| node.id != from);
            let hosts = others.filter(|node| node.stores[shard].hosted.load(Ordering::SeqCst)).map(|node| node.id);
            let hosts: Vec<NodeId> = hosts.collect();
            self.lead(shard, hosts[shard % hosts.len()]);
        }
    }

    pub(crate) fn cut_stores(&self, node: NodeId) {
        self.nodes[&node].stores.iter().for_each(|store| store.cut.store(true, Ordering::SeqCst));
    }

    /// The node's replicas hear of everything again, and so who leads now.
    pub(crate) fn rejoin(&self, id: NodeId) {
        for (shard, store) in self.nodes[&id].stores.iter().enumerate() {
            store.cut.store(false, Ordering::SeqCst);
            let leader = self
                .nodes
                .values()
                .find(|node| node.id != id && node.stores[shard].leadership().borrow().epoch.is_some());
            if let Some(leader) = leader {
                let heard = store.hosted.load(Ordering::SeqCst).then_some(leader.id);
                store.led_by(0, heard, false);
            }
        }
    }

    /// The process is gone: nothing of it answers, its shards go to the others.
    pub(crate) fn kill(&mut self, id: NodeId) -> Node {
        self.net.unplug(id);
        self.fail_over(id);
        let node = self.nodes.remove(&id).expect("it runs");
        node.silo.kill();
        node
    }

    /// It comes back on its rows, time went on, and leads nothing.
    pub(crate) fn revive(&mut self, dead: Node) {
        let nodes = self.nodes.len() as u64 + 1;
        for store in &dead.stores {
            store.led_by(0, None, false);
        }
        let id = dead.id;
        let now = self.nodes.values().map(|node| node.clock.now()).max().unwrap_or_default();
        dead.clock.advance(Duration::from_millis(now.since(dead.clock.now())));
        self.launch(id, dead.stores, dead.clock, nodes);
        self.rejoin(id);
    }

    pub(crate) fn leader(&self, shard: usize) -> Option<NodeId> {
        let leads = |node: &&Node| {
            !node.stores[shard].cut.load(Ordering::SeqCst) && node.stores[shard].leadership().borrow().epoch.is_some()
        };
        self.nodes.values().find(leads).map(|node| node.id)
    }

    pub(crate) fn shard_of(&self, grain: &GrainId) -> usize {
        crate::placement::home_of(grain, self.shards as u32).0 as usize
    }

    pub(crate) fn owner(&self, key: &str) -> NodeId {
        self.leader(self.shard_of(&toy::id("acme", key))).expect("it has a leader")
    }

    /// Somebody who does not own the toy.
    pub(crate) fn stranger(&self, key: &str) -> NodeId {
        let owner = self.owner(key);
        self.nodes.keys().copied().find(|id| *id != owner).expect("more than one")
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.nodes.values().for_each(|node| node.clock.advance(by));
    }

    pub(crate) async fn call(&self, at: NodeId, key: &str, method: Method, body: &[u8]) -> Result<Vec<u8>, Rejection> {
        self.silo(at).call(request("acme", key, method, body, None)).await
    }

    pub(crate) async fn add(&self, at: NodeId, key: &str, amount: u64) -> Result<u64, Rejection> {
        self.call(at, key, toy::ADD, &amount.to_le_bytes()).await.map(|reply| toy::number(&reply))
    }

    pub(crate) async fn put(&self, at: NodeId, key: &str, sum: u64) -> Result<u64, Rejection> {
        self.call(at, key, toy::PUT, &sum.to_le_bytes()).await.map(|reply| toy::number(&reply))
    }

    /// An addition that may be repeated, since its reply is stored.
    pub(crate) async fn command(&self, at: NodeId, key: &str, command: &str, amount: u64) -> Result<u64, Rejection> {
        let command: Option<CommandId> = Some(command.into());
        let request = request("acme", key, toy::ADD, &amount.to_le_bytes(), command);
        self.silo(at).call(request).await.map(|reply| toy::number(&reply))
    }

    pub(crate) async fn sum(&self, at: NodeId, key: &str) -> Result<u64, Rejection> {
        self.call(at, key, toy::GET, b"").await.map(|reply| toy::number(&reply))
    }

    /// Waits until the toy was told something; what it was told then.
    pub(crate) async fn until_told(&self, at: NodeId, key: &str) -> Vec<String> {
        let until = Instant::now() + super::PATIENCE;
        loop {
            let told = self.told(at, key).await;
            if !told.is_empty() {
                return told;
            }
            assert!(Instant::now() < until, "{key} was told nothing");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn told(&self, at: NodeId, key: &str) -> Vec<String> {
        let told = self.call(at, key, toy::TOLD, b"").await.expect("lines");
        String::from_utf8(told).expect("text").lines().map(str::to_owned).collect()
    }

    /// All commits of a shard, whichever node made them.
    pub(crate) fn commits(&self, shard: usize) -> usize {
        self.nodes.values().map(|node| node.stores[shard].commits.lock().len()).sum()
    }

    pub(crate) async fn until_sum_is(&self, at: NodeId, key: &str, is_fine: impl Fn(u64) -> bool) {
        let until = Instant::now() + super::PATIENCE;
        while !self.sum(at, key).await.is_ok_and(&is_fine) {
            assert!(Instant::now() < until, "{key} has {:?}", self.sum(at, key).await);
            tokio::task::yield_now().await;
        }
    }
}
