//! Nodes in processes of their own: this test binary, started again as a child.
//!
//! The child is a node with an echo service, and ends when its standard input does, so it never outlives its parent.

use super::hosts::HostNode;
use super::nodes::{Authority, PATIENCE, Plan, soon};
use crate::mesh::{Carrier, Pem, Tls};
use shard::NodeId;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child as Process, Command};

const NAME: &str = "mesh::tests::child::a_node_of_its_own";
const VARIABLE: &str = "GRANARY_MESH_CHILD";

pub(super) struct Child {
    process: Process,
    pub id: NodeId,
    pub peer: String,
    pub gate: String,
    _folder: tempfile::TempDir,
}

/// What a child is started with.
#[derive(Clone)]
pub(super) struct Birth<'a> {
    pub name: &'a str,
    pub id: NodeId,
    pub carrier: Carrier,
    pub peer: &'a str,
    pub gate: &'a str,
    /// Real replicas of that many shards, founded over nodes 1, 2 and 3 by the first; 0 = a stand-in.
    pub shards: u32,
}

impl<'a> Birth<'a> {
    pub(super) fn new(name: &'a str, id: NodeId, carrier: Carrier) -> Self {
        Self { name, id, carrier, peer: "127.0.0.1:0", gate: "127.0.0.1:0", shards: 0 }
    }

    pub(super) async fn start(self, authority: &Authority, seed: &str) -> Child {
        let folder = tempfile::tempdir().unwrap();
        let tls = authority.tls(&[self.name]);
        for (name, pem) in [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] {
            let Pem::Text(text) = pem else { panic!("a text") };
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let told = [
            self.name.to_owned(),
            self.id.to_string(),
            format!("{:?}", self.carrier),
            self.peer.to_owned(),
            self.gate.to_owned(),
            seed.to_owned(),
            folder.path().display().to_string(),
            self.shards.to_string(),
        ];
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(VARIABLE, told.join("\n"))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let addresses = soon("the child's addresses", async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the child lives");
                if let Some(addresses) = line.split("LISTENS ").nth(1) {
                    return addresses.to_owned();
                }
            }
        })
        .await;
        // A child that cannot write ends: its harness says so when a test runs for a minute.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let (peer, gate) = addresses.split_once(' ').unwrap();
        Child { process, id: self.id, peer: peer.to_owned(), gate: gate.to_owned(), _folder: folder }
    }
}

impl Child {
    pub(super) fn pid(&self) -> u32 {
        self.process.id().expect("the child lives")
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// On return it stands still: the signal alone lets threads that are running go on for a moment, on a busy machine a long one.
    pub(super) fn freeze(&self) {
        self.signal("-STOP");
        let until = Instant::now() + PATIENCE;
        while !self.is_stopped() {
            assert!(Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
        tasks.flatten().all(|task| {
            // One that has ended meanwhile does not go on either.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['T', 't']) || rest.is_empty())
        })
    }

    pub(super) fn thaw(&self) {
        self.signal("-CONT");
    }

    pub(super) async fn kill(mut self) {
        soon("the child's end", self.process.kill()).await.unwrap();
    }
}

#[test]
fn a_node_of_its_own() {
    let Ok(told) = std::env::var(VARIABLE) else { return };
    let told: Vec<_> = told.split('\n').collect();
    let [name, id, carrier, peer, gate, seed, folder, shards] = told[..] else { panic!("what a child is told") };
    let path = |name| std::path::Path::new(folder).join(name);
    let mut plan = Plan::new(&Authority::new(), name, id.parse().unwrap(), &[]);
    plan.options.tls = Tls::files(path("ca"), path("cert"), path("key"));
    plan.options.peer_listen = peer.parse().unwrap();
    plan.options.mesh_listen = gate.parse().unwrap();
    plan.options.carrier = if carrier == "Mesh" { Carrier::Mesh } else { Carrier::Tonic };
    plan.options.seeds = vec![seed.to_owned()];
    // Another process than all that had this id before.
    plan.birth.boot = std::process::id().into();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (mesh, host) = match shards.parse().unwrap() {
            0 => (plan.start().await.mesh, None),
            shards => {
                let node = HostNode::start(plan, &path("data"), shards).await;
                if node.host.node_id() == 1 {
                    node.found(&[1, 2, 3]).await;
                } else {
                    node.host_all().await;
                }
                (node.mesh.clone(), Some(node))
            }
        };
        let addresses = mesh.addresses();
        let gate = addresses.mesh.map(|gate| gate.to_string()).unwrap_or("127.0.0.1:0".into());
        println!("LISTENS {} {gate}", addresses.peer);
        tokio::io::stdin().read_to_end(&mut Vec::new()).await.ok();
        mesh.stop(PATIENCE).await;
        if let Some(node) = host {
            node.host.close().await.ok();
        }
    });
}
