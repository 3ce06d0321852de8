//! Several silos in one process: real shards over real Raft, the real membership, a network in memory.

// Each test binary uses its part of it.
#![allow(dead_code)]

pub mod load;
pub mod net;

use crate::toy;
use cluster::directory::MemberState;
use cluster::membership::{self, ClusterStatus, Error, Ground, ShardStatus};
use cluster::placement::{Ring, Site};
use cluster::{Around, Directory, ManualClock, Membership, MembershipOptions, Request, Silo, SiloOptions, Supplier};
use futures::future::BoxFuture;
use grain_contract::{CommandId, GrainId, Need, Rejection, Supply, Timestamp};
use net::{Line, Net, Port};
use shard::{Host, HostOptions, ShardId, StateBackend, Timing};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Nothing in a test takes so long, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(90);
pub const START: i64 = 1_000_000_000_000;

pub struct Nothing;

impl Supplier for Nothing {
    fn supply<'a>(&'a self, _: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>> {
        Box::pin(async move { Ok(Ok(Arc::new(need.key.len() as u64) as _)) })
    }
}

/// What the nodes of a cluster are told alike.
#[derive(Clone)]
pub struct Settings {
    pub founders: Vec<String>,
    pub shards: u32,
    pub grace: Duration,
    pub timing: Timing,
    /// How far the clocks of some machines are off. Milliseconds.
    pub skew: BTreeMap<String, i64>,
}

impl Settings {
    pub fn founders(names: &[&str]) -> Self {
        let timing = Timing {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(600),
            election_max: Duration::from_millis(1_200),
        };
        let founders = names.iter().map(|name| (*name).to_owned()).collect();
        Self { founders, shards: 4, grace: Duration::from_secs(300), timing, skew: BTreeMap::new() }
    }
}

/// A running process of a cluster.
pub struct Node {
    pub name: String,
    pub host: Host,
    pub silo: Silo,
    pub directory: Directory,
    pub port: Arc<Port>,
    entering: Option<JoinHandle<Result<Membership, Error>>>,
    membership: Option<Membership>,
}

impl Node {
    pub fn membership(&self) -> &Membership {
        self.membership.as_ref().expect("it has entered")
    }

    /// Waits until it is in its cluster.
    pub async fn entered(&mut self) -> Result<(), Error> {
        if let Some(entering) = self.entering.take() {
            let entered = tokio::time::timeout(PATIENCE, entering).await.expect("enters in time");
            self.membership = Some(entered.expect("does not panic")?);
        }
        Ok(())
    }

    pub fn is_entering(&self) -> bool {
        self.entering.as_ref().is_some_and(|entering| !entering.is_finished())
    }

    pub async fn status(&self) -> ClusterStatus {
        self.membership().status().await.expect("a status")
    }

    /// Adds one under a key of its own, again until it is answered: once, however often it was sent.
    pub async fn add(&self, key: &str, command: &str) -> Result<u64, Rejection> {
        let deadline = Instant::now() + Duration::from_secs(2);
        let request = Request {
            target: toy::id("acme", key),
            method: toy::ADD,
            body: 1u64.to_le_bytes().to_vec(),
            command: Some(CommandId::new(command)),
            deadline,
        };
        self.silo.call(request).await.map(|reply| toy::number(&reply))
    }

    pub async fn sum(&self, key: &str) -> Result<u64, Rejection> {
        let deadline = Instant::now() + Duration::from_secs(2);
        let target = toy::id("acme", key);
        let request = Request { target, method: toy::GET, body: Vec::new(), command: None, deadline };
        self.silo.call(request).await.map(|reply| toy::number(&reply))
    }
}

pub struct TestCluster {
    pub settings: Settings,
    pub net: Net,
    /// Of each machine, by name: they outlive its processes.
    clocks: BTreeMap<String, ManualClock>,
    pub nodes: BTreeMap<String, Node>,
    dir: tempfile::TempDir,
    boots: AtomicU64,
}

impl TestCluster {
    /// Nobody is started yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            net: Net::default(),
            clocks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            dir: tempfile::tempdir().expect("a folder"),
            boots: AtomicU64::new(1),
        }
    }

    /// All founders are up and in the cluster.
    pub async fn founded(settings: Settings) -> Self {
        let mut cluster = Self::new(settings);
        let names = cluster.settings.founders.clone();
        cluster.start_all(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        cluster
    }

    /// Time goes by on all machines alike.
    pub fn advance(&self, by: Duration) {
        self.clocks.values().for_each(|clock| clock.advance(by));
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a process and lets it find its way into the cluster.
    pub async fn start(&mut self, name: &str) {
        self.start_told(name, self.settings.clone()).await;
    }

    pub async fn start_told(&mut self, name: &str, settings: Settings) {
        let boot = self.boots.fetch_add(1, Ordering::SeqCst);
        let (port, folder) = (self.net.port(name, boot), self.folder(name));
        std::fs::create_dir_all(&folder).expect("a folder");
        let options = HostOptions {
            alone: false,
            link: Arc::new(Line(port.clone())),
            timing: settings.timing,
            state: StateBackend::Memory,
            segment_bytes: 1 << 20,
            ..HostOptions::new(&folder, settings.shards)
        };
        let host = Host::open(options).await.expect("the folder opens");
        let directory = Directory::default();
        let peers = Arc::new(Line(port.clone()));
        let around = Around { peers: peers.clone(), directory: directory.clone(), services: port.services.clone() };
        let options = SiloOptions::new(name, toy::CLAIM, toy::LEASE_EXPIRED, toy::SWEEP, toy::OPEN);
        let mut types = vec![Arc::new(toy::Toys) as _];
        types.extend(membership::grain_types());
        let skew = settings.skew.get(name).copied().unwrap_or(0);
        let clock = self.clocks.entry(name.to_owned()).or_insert_with(|| ManualClock::at(Timestamp(START + skew)));
        let clock = Arc::new(clock.clone());
        let silo = Silo::start(host.clone(), options, types, Arc::new(Nothing), clock.clone(), around).await;
        let silo = silo.expect("one kind each");
        port.plug_in(host.clone());
        let set_cluster = {
            let port = port.clone();
            Arc::new(move |cluster| port.set_cluster(cluster))
        };
        let ground = Ground {
            host: host.clone(),
            silo: silo.clone(),
            peers,
            services: port.services.clone(),
            directory: directory.clone(),
            clock,
            boot,
            set_cluster,
        };
        let options = MembershipOptions {
            dead_node_grace: settings.grace,
            look_every: Duration::from_millis(200),
            pull_every: Duration::from_millis(300),
            settle: Duration::from_secs(1),
            client_address: format!("http://{name}:{boot}"),
            ..MembershipOptions::new(name, settings.founders.clone(), folder)
        };
        let entering = Some(tokio::spawn(Membership::enter(ground, options)));
        let node = Node { name: name.to_owned(), host, silo, directory, port, entering, membership: None };
        self.nodes.insert(name.to_owned(), node);
    }

    pub async fn start_all(&mut self, names: &[&str]) {
        for name in names {
            self.start(name).await;
        }
        for name in names {
            self.entered(name).await;
        }
    }

    pub async fn entered(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).expect("started");
        if let Err(error) = node.entered().await {
            panic!("{name} did not get in: {error}");
        }
    }

    /// Off the network first, so that nobody hears of it. Its disk is as a stop leaves it: crashes of the disk are tried with
    /// the shard.
    pub async fn kill(&mut self, name: &str) {
        let mut node = self.nodes.remove(name).expect("started");
        self.net.unplug(name);
        if let Some(entering) = node.entering.take() {
            entering.abort();
            let _ = entering.await;
        }
        if let Some(membership) = node.membership.take() {
            membership.leave(PATIENCE).await;
        }
        node.silo.drain(Duration::from_millis(1)).await;
        node.host.close().await.expect("closes");
    }

    pub async fn restart(&mut self, name: &str) {
        self.kill(name).await;
        self.start(name).await;
        self.entered(name).await;
    }

    pub async fn lose_volume(&mut self, name: &str) {
        self.kill(name).await;
        std::fs::remove_dir_all(self.folder(name)).expect("removed");
    }

    pub fn node(&self, name: &str) -> &Node {
        &self.nodes[name]
    }

    pub fn any(&self) -> &Node {
        self.nodes.values().next().expect("one is up")
    }

    /// Cuts a node off from all others.
    pub fn isolate(&self, name: &str) {
        let mut others: Vec<String> = self.nodes.keys().cloned().collect();
        others.extend(self.settings.founders.clone());
        for other in others.iter().filter(|other| *other != name) {
            self.net.cut(name, other);
        }
    }

    /// Waits until it is so.
    pub async fn until<F>(&self, what: &str, mut holds: impl FnMut() -> F)
    where
        F: Future<Output = bool>,
    {
        let deadline = Instant::now() + PATIENCE;
        let mut look = tokio::time::interval(Duration::from_millis(20));
        while !holds().await {
            if Instant::now() > deadline {
                let status = self.any().membership.as_ref().map(|membership| membership.status());
                let status = match status {
                    Some(status) => status.await.ok(),
                    None => None,
                };
                panic!("not in time: {what}; {status:#?}");
            }
            look.tick().await;
        }
    }

    /// Waits until every shard is where the ring over these nodes has it: led, with exactly these voters, nothing in motion, and
    /// no replica anywhere else.
    pub async fn at_rest(&self, names: &[&str], replicas: usize) {
        self.until(&format!("at rest on {names:?}"), || self.is_at_rest(names, replicas)).await;
    }

    pub async fn is_at_rest(&self, names: &[&str], replicas: usize) -> bool {
        let ring = Ring::new(names.iter().map(|name| Site::new(name, "")));
        let wanted = |shard: u32| -> BTreeSet<String> {
            ring.replicas(ShardId(shard), replicas).iter().map(|name| name.to_string()).collect()
        };
        let status = self.node(names[0]).status().await;
        let is_placed = status.shards.iter().all(|shard| {
            let voters: BTreeSet<_> = shard.replicas.iter().filter(|it| it.voter).map(|it| it.node.clone()).collect();
            shard.leader.is_some()
                && shard.moving.is_none()
                && shard.replicas.len() == voters.len()
                && voters == wanted(shard.shard)
        });
        let hosted: usize = self.nodes.values().map(|node| node.host.hosted().len()).sum();
        is_placed && hosted == replicas.min(names.len()) * status.shards.len()
    }

    /// Waits until the grace time of whoever is silent is over for a director, and all is at rest on the others. A director that
    /// comes in the meantime begins the grace anew, so time goes on in leaps.
    pub async fn at_rest_after_grace(&self, names: &[&str], replicas: usize) {
        let looks = AtomicU64::new(0);
        let holds = || async {
            if looks.fetch_add(1, Ordering::SeqCst).is_multiple_of(100) {
                self.advance(self.settings.grace + Duration::from_secs(1));
            }
            self.is_at_rest(names, replicas).await
        };
        self.until(&format!("at rest on {names:?} after the grace time"), holds).await;
    }

    /// Of each shard, as its leader says.
    pub async fn voters(&self, by: &str) -> Vec<Vec<String>> {
        let of = |shard: &ShardStatus| shard.replicas.iter().filter(|it| it.voter).map(|it| it.node.clone()).collect();
        self.node(by).status().await.shards.iter().map(of).collect()
    }

    /// Of the latest node of this name, as another one knows.
    pub fn state(&self, by: &str, name: &str) -> MemberState {
        let view = self.node(by).directory.view();
        let named = view.members.values().filter(|member| member.name == name);
        named.max_by_key(|member| member.generation).expect("known").state
    }

    pub fn directs(&self, name: &str) -> bool {
        let shard = self.node(name).host.shard(ShardId(0)).expect("a shard");
        shard.leadership().borrow().epoch.is_some()
    }

    pub async fn all_led(&self, by: &str) -> bool {
        self.node(by).status().await.shards.iter().all(|shard| shard.leader.is_some())
    }

    /// A node with replicas that does not lead shard 0.
    pub async fn holder_besides_the_director(&self) -> String {
        let status = self.any().status().await;
        let director = status.shards[0].leader.clone().expect("led");
        let holder = status.nodes.iter().find(|node| node.name != director && node.replicas > 0);
        holder.expect("several hold replicas").name.clone()
    }

    /// Waits until every node has the book of the others.
    pub async fn same_view(&self) {
        self.until("all know the same book", || async {
            let versions: Vec<u64> = self.nodes.values().map(|node| node.directory.view().version).collect();
            versions.iter().all(|version| *version == versions[0])
        })
        .await;
    }
}
