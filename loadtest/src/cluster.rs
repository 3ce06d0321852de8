//! A local cluster: `granary cluster up` as a process, and its silos by name.

use crate::usage::{self, Usage};
use anyhow::Context;
use rustix::process::Signal;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How long the cluster may take until every silo is ready.
const READY_MAX: Duration = Duration::from_secs(150);
/// How long it may take to stop.
const STOP_MAX: Duration = Duration::from_secs(45);

pub struct Cluster {
    child: Child,
    nodes: Arc<Mutex<Vec<Node>>>,
    temporary: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub url: String,
    /// `None` while it does not run.
    pub pid: Option<u32>,
    /// Of the processes it had before, as far as they were seen.
    spent: Duration,
    peak_rss_bytes: u64,
}

/// One line of `granary cluster up --format json`.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "camelCase")]
enum Said {
    Ready {
        nodes: Vec<Begun>,
    },
    Started {
        node: String,
        pid: Option<u32>,
    },
    Ended {
        node: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Begun {
    name: String,
    url: String,
    pid: Option<u32>,
}

impl Cluster {
    /// Starts so many silos and waits until all are ready.
    pub async fn start(program: &Path, number: u32, dir: Option<&Path>, more: &[String]) -> anyhow::Result<Self> {
        let temporary = dir.is_none().then(|| {
            let name = format!("granary-loadtest-{}-{}", std::process::id(), uuid::Uuid::now_v7().simple());
            std::env::temp_dir().join(name)
        });
        let dir = dir.map(Path::to_owned).or_else(|| temporary.clone()).expect("one of the two is there");
        let mut child = Command::new(program)
            .args(["cluster", "up", "--format", "json", "--nodes", &number.to_string(), "--dir"])
            .arg(&dir)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Its silos end with it, however it ends.
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("the cluster's words")?;
        let mut lines = BufReader::new(stdout).lines();
        let nodes = Arc::new(Mutex::new(Vec::new()));
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if let Ok(Said::Ready { nodes: begun }) = serde_json::from_str(&line) {
                    return Ok(begun);
                }
            }
            anyhow::bail!("the cluster ended before it was ready (its own words are above)")
        };
        let begun = tokio::time::timeout(READY_MAX, ready)
            .await
            .with_context(|| format!("the cluster was not ready within {} s", READY_MAX.as_secs()))??;
        let node =
            |it: Begun| Node { name: it.name, url: it.url, pid: it.pid, spent: Duration::ZERO, peak_rss_bytes: 0 };
        locked(&nodes).extend(begun.into_iter().map(node));
        tokio::spawn(listen(lines, Arc::clone(&nodes)));
        Ok(Self { child, nodes, temporary })
    }

    pub fn urls(&self) -> Vec<String> {
        locked(&self.nodes).iter().map(|node| node.url.clone()).collect()
    }

    /// The silo of this name, or the first one that runs.
    pub fn node(&self, name: Option<&str>) -> Option<Node> {
        let nodes = locked(&self.nodes);
        let mut running = nodes.iter().filter(|node| node.pid.is_some());
        match name {
            Some(name) => running.find(|node| node.name == name).cloned(),
            None => running.next().cloned(),
        }
    }

    pub fn all_run(&self) -> bool {
        locked(&self.nodes).iter().all(|node| node.pid.is_some())
    }

    /// To be called before a silo is killed: afterwards nobody can say what it used.
    pub fn remember_usage(&self, name: &str) {
        let mut nodes = locked(&self.nodes);
        let Some(node) = nodes.iter_mut().find(|node| node.name == name) else { return };
        if let Some(used) = node.pid.and_then(usage::of) {
            node.spent += used.cpu;
            node.peak_rss_bytes = node.peak_rss_bytes.max(used.peak_rss_bytes);
            // Until its end or its next start is heard of, so that it is not counted twice.
            node.pid = None;
        }
    }

    /// All silos together, over all their lives.
    pub fn usage(&self) -> Usage {
        let nodes = locked(&self.nodes);
        nodes.iter().fold(Usage::default(), |sum, node| {
            let now = node.pid.and_then(usage::of).unwrap_or_default();
            Usage {
                cpu: sum.cpu + node.spent + now.cpu,
                peak_rss_bytes: sum.peak_rss_bytes + node.peak_rss_bytes.max(now.peak_rss_bytes),
                rss_bytes: sum.rss_bytes + now.rss_bytes,
            }
        })
    }

    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id() {
            crate::faults::tell(pid, Signal::TERM);
        }
        if tokio::time::timeout(STOP_MAX, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        if let Some(folder) = &self.temporary {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Keeps the list of silos in step with what the cluster says.
async fn listen(mut lines: Lines<BufReader<ChildStdout>>, nodes: Arc<Mutex<Vec<Node>>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let (name, pid) = match serde_json::from_str(&line) {
            Ok(Said::Started { node, pid }) => (node, pid),
            Ok(Said::Ended { node }) => (node, None),
            _ => continue,
        };
        if let Some(node) = locked(&nodes).iter_mut().find(|node| node.name == name) {
            node.pid = pid;
        }
    }
}

fn locked(nodes: &Mutex<Vec<Node>>) -> MutexGuard<'_, Vec<Node>> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}
