//! The nodes of one trial, and what can be done to them.

use super::client::Clients;
use super::net::{End, Net};
use super::node::Node;
use super::setup::{self, Member, Shape};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a start may take on a busy machine, elections included.
pub const READY_MAX: Duration = Duration::from_secs(90);
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
    /// Starts `size` nodes and waits until they are ready. One node is `granary dev`: a silo alone.
    ///
    /// # Errors
    /// A node does not start.
    pub fn start(folder: &Path, net: Net, size: usize, shape: Shape) -> Result<Self> {
        let mut fleet = Self::prepare(folder, net, size, shape)?;
        for place in 0..size {
            fleet.boot(place)?;
        }
        fleet.wait_ready()?;
        Ok(fleet)
    }

    /// As [`Fleet::start`], but starts nothing yet.
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
        let founders: Vec<Member<'_>> =
            names.iter().enumerate().map(|(place, name)| Member { name, ip: self.net.ip(place) }).collect();
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

    /// The disk of a node that is down is gone for good.
    ///
    /// # Errors
    /// It runs; the folder cannot be removed.
    pub fn lose_volume(&mut self, place: usize) -> Result<()> {
        let node = &self.nodes[place];
        ensure!(!node.is_running(), "{} runs on its volume", node.name);
        std::fs::remove_dir_all(&node.data).with_context(|| format!("remove {}", node.data.display()))
    }

    /// Cuts a node from the other nodes; clients still reach it.
    ///
    /// # Errors
    /// On loopback.
    pub fn cut_from_peers(&mut self, place: usize) -> Result<()> {
        for other in (0..self.nodes.len()).filter(|other| *other != place) {
            self.net.cut(End::Node(place), End::Node(other))?;
        }
        Ok(())
    }

    /// Cuts a node from everybody.
    ///
    /// # Errors
    /// On loopback.
    pub fn isolate(&mut self, place: usize) -> Result<()> {
        self.cut_from_peers(place)?;
        self.net.cut(End::Us, End::Node(place))
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
