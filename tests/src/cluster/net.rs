//! The network between the nodes and us.
//!
//! Each node lives in a network namespace of its own, all of them hang on one bridge, and the bridge lives in a namespace as well:
//! that is where the test's threads live, so its clients and workers are one more machine on that network. Nothing outside these
//! namespaces is touched. Faults are packet rules in the receiving namespace (`nft`, whose rules also can drop at random), so each
//! direction of each pair is broken by itself.
//!
//! Without the rights to make namespaces there is loopback: each node has an address of its own in 127/8, which is enough to kill,
//! freeze and restart, but not to cut.

use super::shell;
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;

const PREFIX: &str = "granary-t";
/// Our own place on the network.
const HUB: u8 = 254;

const HOW_TO: &str = "This trial cuts the network between nodes. It needs the programs `ip` (Debian: iproute2) and `nft` (nftables) and \
                      the right to make network namespaces: run the tests as root, or `sudo -E cargo test`, or in a container with \
                      CAP_NET_ADMIN and CAP_SYS_ADMIN.";

/// One end of a broken connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// The clients, workers and consumers of the test.
    Us,
    /// By its place in the fleet.
    Node(usize),
}

pub struct Net {
    /// `None`: loopback.
    spaces: Option<Spaces>,
    /// What does not come through, by receiver.
    broken: BTreeMap<usize, Broken>,
}

struct Spaces {
    hub: String,
    hub_file: Arc<File>,
    nodes: BTreeMap<usize, String>,
}

#[derive(Default, Clone)]
struct Broken {
    /// Whom it does not hear.
    deaf_to: Vec<End>,
    /// Its answers to us get lost as well.
    mute_to_us: bool,
    /// Packets lost on the way in, of 100.
    loss_percent: u32,
}

/// Leads threads to our own place on the network.
#[derive(Clone)]
pub struct Entrance(Option<Arc<File>>);

impl Entrance {
    /// Moves the calling thread. Sockets that it makes and processes that it starts from now on are there; there is no way back,
    /// so the thread should be one that ends with the trial.
    ///
    /// # Errors
    /// No right to.
    pub fn enter(&self) -> Result<()> {
        if let Some(hub) = &self.0 {
            move_into_link_name_space(hub.as_fd(), Some(LinkNameSpaceType::Network))
                .context("move a thread into the namespace")?;
        }
        Ok(())
    }
}

impl Net {
    /// Namespaces.
    ///
    /// # Errors
    /// They cannot be made here; says how to.
    pub fn of_namespaces() -> Result<Self> {
        Self::namespaces().context(HOW_TO)
    }

    /// Namespaces if they can be made, else loopback.
    pub fn of_any_kind() -> Self {
        Self::namespaces().unwrap_or_else(|why| {
            eprintln!("no network namespaces here, the nodes use loopback: {why:#}");
            Self { spaces: None, broken: BTreeMap::new() }
        })
    }

    fn namespaces() -> Result<Self> {
        remove_left_overs()?;
        shell::ask("nft --version")?;
        let hub = format!("{PREFIX}{}-hub", std::process::id());
        // One trial runs at a time, but the one before in this process may have left something behind after a fault.
        remove(&hub);
        shell::ask(&format!("ip netns add {hub}"))?;
        let hub_file = File::open(format!("/run/netns/{hub}"));
        let net = match hub_file {
            Ok(hub_file) => {
                let spaces = Spaces { hub: hub.clone(), hub_file: Arc::new(hub_file), nodes: BTreeMap::new() };
                Self { spaces: Some(spaces), broken: BTreeMap::new() }
            }
            Err(error) => {
                remove(&hub);
                return Err(error.into());
            }
        };
        for line in [
            format!("ip -n {hub} link set lo up"),
            format!("ip -n {hub} link add br0 type bridge"),
            format!("ip -n {hub} link set br0 up"),
            format!("ip -n {hub} addr add {}/24 dev br0", address(HUB)),
        ] {
            shell::ask(&line)?;
        }
        Ok(net)
    }

    /// Whether connections can be cut.
    pub fn can_cut(&self) -> bool {
        self.spaces.is_some()
    }

    /// Address of a node; the ports are the usual ones, since nobody else has it.
    pub fn ip(&self, node: usize) -> Ipv4Addr {
        let last = u8::try_from(node + 1).unwrap_or(u8::MAX);
        if self.spaces.is_some() {
            return address(last);
        }
        // Two test processes at the same time keep apart.
        let [.., high, low] = std::process::id().to_be_bytes();
        Ipv4Addr::new(127, 64 | (high & 0x3f), low, last)
    }

    /// Makes the place of one more node.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn add(&mut self, node: usize) -> Result<()> {
        let ip = self.ip(node);
        let Some(spaces) = &mut self.spaces else { return Ok(()) };
        if spaces.nodes.contains_key(&node) {
            return Ok(());
        }
        let (hub, name) = (spaces.hub.clone(), format!("{PREFIX}{}-{node}", std::process::id()));
        remove(&name);
        shell::ask(&format!("ip netns add {name}"))?;
        spaces.nodes.insert(node, name.clone());
        for line in [
            format!("ip link add port{node} netns {hub} type veth peer name eth0 netns {name}"),
            format!("ip -n {hub} link set port{node} master br0 up"),
            format!("ip -n {name} link set lo up"),
            format!("ip -n {name} addr add {ip}/24 dev eth0"),
            format!("ip -n {name} link set eth0 up"),
        ] {
            shell::ask(&line)?;
        }
        Ok(())
    }

    /// The way to our own place on the network.
    pub fn entrance(&self) -> Entrance {
        Entrance(self.spaces.as_ref().map(|spaces| spaces.hub_file.clone()))
    }

    /// A command that runs `program` on the node's machine.
    pub fn command(&self, node: usize, program: &std::path::Path) -> Command {
        match self.spaces.as_ref().and_then(|spaces| spaces.nodes.get(&node)) {
            // `ip netns exec` becomes the program, so the child's pid is the program's.
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// Nothing gets from one end to the other; the way back stays open.
    ///
    /// # Errors
    /// On loopback; the rules cannot be set.
    pub fn cut_one_way(&mut self, from: End, to: End) -> Result<()> {
        match (from, to) {
            (from, End::Node(to)) => self.broken.entry(to).or_default().deaf_to.push(from),
            (End::Node(from), End::Us) => self.broken.entry(from).or_default().mute_to_us = true,
            (End::Us, End::Us) => bail!("we cannot be cut from ourselves"),
        }
        self.apply()
    }

    /// Nothing gets through, either way.
    ///
    /// # Errors
    /// On loopback; the rules cannot be set.
    pub fn cut(&mut self, one: End, other: End) -> Result<()> {
        self.cut_one_way(one, other)?;
        self.cut_one_way(other, one)
    }

    /// Every node loses so many of 100 packets that come to it.
    ///
    /// # Errors
    /// On loopback; the rules cannot be set.
    pub fn lose(&mut self, percent: u32) -> Result<()> {
        let nodes: Vec<usize> = self.spaces.iter().flat_map(|s| s.nodes.keys().copied()).collect();
        for node in nodes {
            self.broken.entry(node).or_default().loss_percent = percent;
        }
        self.apply()
    }

    /// The network is whole again.
    ///
    /// # Errors
    /// The rules cannot be set.
    pub fn heal(&mut self) -> Result<()> {
        if self.spaces.is_none() {
            return Ok(());
        }
        self.broken.values_mut().for_each(|broken| *broken = Broken::default());
        self.apply()
    }

    fn apply(&self) -> Result<()> {
        let Some(spaces) = &self.spaces else { bail!("{HOW_TO}") };
        for (node, broken) in &self.broken {
            let name = spaces.nodes.get(node).with_context(|| format!("no node {node}"))?;
            shell::feed(&format!("ip netns exec {name} nft -f -"), &self.rules(broken))?;
        }
        Ok(())
    }

    /// The whole table at once, so a change of rules is one step.
    fn rules(&self, broken: &Broken) -> String {
        let mut incoming = String::new();
        for end in &broken.deaf_to {
            incoming.push_str(&format!("ip saddr {} drop; ", self.ip_of(*end)));
        }
        if broken.loss_percent > 0 {
            incoming.push_str(&format!("iifname \"eth0\" numgen random mod 100 < {} drop; ", broken.loss_percent));
        }
        let outgoing = if broken.mute_to_us { format!("ip daddr {} drop; ", address(HUB)) } else { String::new() };
        format!(
            "table inet faults {{ }}\ndelete table inet faults\ntable inet faults {{\n  chain incoming {{ type filter hook input priority \
             0; policy accept; {incoming}}}\n  chain outgoing {{ type filter hook output priority 0; policy accept; {outgoing}}}\n}}\n"
        )
    }

    fn ip_of(&self, end: End) -> Ipv4Addr {
        match end {
            End::Us => address(HUB),
            End::Node(node) => self.ip(node),
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some(spaces) = &self.spaces {
            spaces.nodes.values().for_each(|name| remove(name));
            remove(&spaces.hub);
        }
    }
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, last)
}

/// Ends what still runs in a namespace, and the namespace.
fn remove(name: &str) {
    if let Ok(pids) = shell::ask(&format!("ip netns pids {name}")) {
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != std::process::id()) {
            super::node::signal(pid, rustix::process::Signal::KILL);
        }
    }
    let _ = shell::ask(&format!("ip netns del {name}"));
}

/// What a test process left that was killed itself.
fn remove_left_overs() -> Result<()> {
    for line in shell::ask("ip netns list")?.lines() {
        let Some(name) = line.split_whitespace().next().filter(|name| name.starts_with(PREFIX)) else { continue };
        let pid = name[PREFIX.len()..].split('-').next().unwrap_or_default();
        if !std::path::Path::new("/proc").join(pid).exists() {
            remove(name);
        }
    }
    Ok(())
}
