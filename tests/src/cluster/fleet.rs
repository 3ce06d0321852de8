//! The nodes of one trial, and what can be done to them.

use super::client::Clients;
use super::net::{End, Net};
use super::node::Node;
use super::setup::{self, Member, Shape};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a start may take on a busy machine, elections included.
pub const READY_MAX: Duration = Duration::from_secs(240);
/// Certificates are made for so many nodes, so that a trial can add some.
pub const NODES_MAX: usize = 5;

pub struct Fleet {
    // Dropped in this order: processes first, then the network they live in, then their files.
    nodes: Vec<Node>,
    net: Net,
    shape: Shape,
    founders: usize,
    certs: PathBuf,
    folder: PathBuf,
}

impl Fleet {
    /// `size` nodes of which none runs yet. One node is `granary dev`: a silo alone.
    ///
    /// # Errors
    /// Network, certificates or files cannot be made.
    pub fn prepare(folder: &Path, net: Net, size: usize, shape: Shape) -> Result<Self> {
        let certs = if size > 1 {
            let names: Vec<String> = (0..NODES_MAX).map(name).collect();
            let ips: Vec<_> = (0..NODES_MAX).map(|place| net.ip(place)).collect();
            setup::certificates(folder, &names, &ips)?
        } else {
            PathBuf::new()
        };
        let mut fleet = Self { nodes: Vec::new(), net, shape, founders: size, certs, folder: folder.to_path_buf() };
        for _ in 0..size {
            fleet.add()?;
        }
        Ok(fleet)
    }

    /// One more node, not started yet. Gives its place.
    ///
    /// # Errors
    /// Too many; network or files cannot be made.
    pub fn add(&mut self) -> Result<usize> {
        let place = self.nodes.len();
        ensure!(place < NODES_MAX, "there are certificates for {NODES_MAX} nodes");
        self.net.add(place)?;
        let (name, ip) = (name(place), self.net.ip(place));
        let mut node = Node::new(place, name, ip, Vec::new(), &self.folder);
        node.args = self.arguments(&node)?;
        self.nodes.push(node);
        Ok(place)
    }

    fn arguments(&self, node: &Node) -> Result<Vec<String>> {
        let data = node.data.display().to_string();
        if self.founders == 1 {
            let listen = format!("{}:{}", node.ip, super::node::CLIENT_PORT);
            return Ok(["dev", "--listen", &listen, "--data", &data].map(str::to_owned).to_vec());
        }
        let names: Vec<String> = (0..self.founders).map(name).collect();
        let ip = |at: usize| self.nodes.get(at).map_or_else(|| self.net.ip(at), |node| node.ip);
        let founders: Vec<Member<'_>> =
            names.iter().enumerate().map(|(at, name)| Member { name, ip: ip(at) }).collect();
        let me = Member { name: &node.name, ip: node.ip };
        let file = setup::write(&self.folder, &self.shape, &self.certs, &me, &node.data, &founders)?;
        Ok(vec!["node".to_owned(), "--config".to_owned(), file.display().to_string()])
    }

    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    pub fn net(&self) -> &Net {
        &self.net
    }

    pub fn net_mut(&mut self) -> &mut Net {
        &mut self.net
    }

    pub fn node(&mut self, place: usize) -> &mut Node {
        &mut self.nodes[place]
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// Starts the process; see [`Fleet::wait_ready`].
    ///
    /// # Errors
    /// It cannot be started.
    pub fn boot(&mut self, place: usize) -> Result<()> {
        self.nodes[place].start(&self.net)
    }

    /// Waits for all nodes that run.
    ///
    /// # Errors
    /// One is not ready in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        for node in self.nodes.iter_mut().filter(|node| node.is_running()) {
            node.wait_ready(READY_MAX)?;
        }
        Ok(())
    }

    /// Starts all that do not run and waits until they are ready.
    ///
    /// # Errors
    /// One does not start, or is not ready in time.
    pub fn boot_all(&mut self) -> Result<()> {
        for place in 0..self.nodes.len() {
            if !self.nodes[place].is_running() {
                self.boot(place)?;
            }
        }
        self.wait_ready()
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    /// It does not start, or is not ready in time.
    pub fn boot_ready(&mut self, place: usize) -> Result<()> {
        self.boot(place)?;
        self.nodes[place].wait_ready(READY_MAX)
    }

    /// SIGKILL of all at the same moment, as near as it goes: the power is gone.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn power_loss(&mut self) -> Result<()> {
        // All first, then the waiting, so that none sees another one's end.
        for pid in self.nodes.iter().filter_map(Node::pid) {
            super::node::signal(pid, rustix::process::Signal::KILL);
        }
        self.nodes.iter_mut().try_for_each(Node::kill)
    }

    /// SIGTERM and the wait for an end in order.
    ///
    /// # Errors
    /// It does not end in time, or not in order.
    pub fn stop(&mut self, place: usize) -> Result<()> {
        let within = Duration::from_secs(self.shape.drain_seconds + 15);
        let node = &mut self.nodes[place];
        node.terminate();
        let status = node.wait_end(within)?;
        ensure!(status.success(), "{} ended with {status}\n{}", node.name, node.last_words());
        Ok(())
    }

    /// All members get other addresses, as after a restart of all pods; none may run. Gives the new URLs.
    ///
    /// # Errors
    /// One runs; the network or a file cannot be made.
    pub fn move_house(&mut self) -> Result<Vec<String>> {
        ensure!(self.nodes.iter().all(|node| !node.is_running()), "nobody moves house while running");
        let size = self.nodes.len();
        for at in 0..size {
            // With 3 nodes and 5 places: 3, 4, 0.
            let place = (at + size) % NODES_MAX;
            self.net.add(place)?;
            self.nodes[at].place = place;
            self.nodes[at].ip = self.net.ip(place);
        }
        for at in 0..size {
            self.nodes[at].args = self.arguments(&self.nodes[at])?;
        }
        Ok(self.urls())
    }

    /// The disk of a node that is down is gone for good.
    ///
    /// # Errors
    /// It runs; the folder cannot be removed.
    pub fn lose_volume(&mut self, place: usize) -> Result<()> {
        let node = &self.nodes[place];
        ensure!(!node.is_running(), "{} runs on its volume", node.name);
        std::fs::remove_dir_all(&node.data).with_context(|| format!("remove {}", node.data.display()))
    }

    /// Puts the data of a node that is down away and gives the place.
    ///
    /// # Errors
    /// It runs; the folder cannot be moved.
    pub fn set_aside(&mut self, place: usize) -> Result<PathBuf> {
        let node = &self.nodes[place];
        ensure!(!node.is_running(), "{} runs on its volume", node.name);
        let aside = node.data.with_extension("aside");
        std::fs::rename(&node.data, &aside)?;
        Ok(aside)
    }

    /// The other way round.
    ///
    /// # Errors
    /// It runs; the folder cannot be moved.
    pub fn put_back(&mut self, place: usize, aside: &Path) -> Result<()> {
        let node = &self.nodes[place];
        ensure!(!node.is_running(), "{} runs on its volume", node.name);
        Ok(std::fs::rename(aside, &node.data)?)
    }

    /// Starts a second process on the folder of a node that runs, under its configuration but with ports of its own, and gives its
    /// words when it has ended.
    ///
    /// # Errors
    /// It does not end in time, or ends well.
    pub fn try_double(&mut self, place: usize, within: Duration) -> Result<String> {
        let node = &self.nodes[place];
        let mut double =
            Node::new(node.place, format!("{}-double", node.name), node.ip, node.args.clone(), &self.folder);
        double.environment = ["LISTEN", "CLUSTER__PEER_LISTEN", "CLUSTER__MESH_LISTEN"]
            .map(|key| (format!("GRANARY_{key}"), format!("{}:0", node.ip)))
            .to_vec();
        double.start(&self.net)?;
        let status = double.wait_end(within)?;
        ensure!(!status.success(), "a second process on one folder ended well");
        Ok(double.last_words())
    }

    /// A node that was taken out of the cluster ends, and is not started again by [`Fleet::heal`].
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn retire(&mut self, place: usize) -> Result<()> {
        let node = &mut self.nodes[place];
        node.kill()?;
        node.boots = 0;
        Ok(())
    }

    /// Nodes that are to run.
    pub fn members(&self) -> usize {
        self.nodes.iter().filter(|node| node.boots > 0).count()
    }

    /// Cuts a node from the other nodes; clients still reach it.
    ///
    /// # Errors
    /// On loopback.
    pub fn cut_from_peers(&mut self, place: usize) -> Result<()> {
        for other in (0..self.nodes.len()).filter(|other| *other != place) {
            self.net.cut(End::Node(self.nodes[place].place), End::Node(self.nodes[other].place))?;
        }
        Ok(())
    }

    /// Cuts a node from everybody.
    ///
    /// # Errors
    /// On loopback.
    pub fn isolate(&mut self, place: usize) -> Result<()> {
        self.cut_from_peers(place)?;
        self.net.cut(End::Us, End::Node(self.nodes[place].place))
    }

    /// All faults end: the network is whole, nobody is frozen or slow, who was killed is started again.
    ///
    /// # Errors
    /// A node does not come back.
    pub fn heal(&mut self) -> Result<()> {
        self.net.heal()?;
        for place in 0..self.nodes.len() {
            let node = &mut self.nodes[place];
            node.fast_disk();
            node.thaw();
            if node.ended()?.is_some() {
                anyhow::bail!("{} ended by itself\n{}", node.name, node.last_words());
            }
            if !node.is_running() && node.boots > 0 {
                self.boot(place)?;
            }
        }
        self.wait_ready()
    }

    /// Clients of all nodes.
    ///
    /// # Errors
    /// An address is none.
    pub fn clients(&self) -> Result<Clients> {
        Clients::new(&self.urls())
    }
}

fn name(place: usize) -> String {
    format!("silo-{}", place + 1)
}
