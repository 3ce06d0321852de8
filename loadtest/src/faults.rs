//! What is done to a silo while the load runs.

use crate::args::Args;
use crate::cluster::{Cluster, Node};
use crate::ledger::Ledger;
use crate::server_link::Link;
use anyhow::Context;
use granary_proto::v1;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Kill,
    Terminate,
    Freeze(Duration),
}

/// A fault, and after how many ended runs it comes.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub after_runs: u64,
}

/// What was done, and when.
#[derive(Clone, Debug)]
pub struct Done {
    pub fault: Fault,
    pub node: String,
    pub leads: u32,
    pub at: Instant,
}

impl Kind {
    pub fn name(self) -> String {
        match self {
            Self::Kill => "SIGKILL".to_owned(),
            Self::Terminate => "SIGTERM".to_owned(),
            Self::Freeze(time) => format!("frozen for {} s", time.as_secs_f64()),
        }
    }
}

/// In the order in which they come.
pub fn wanted(args: &Args) -> Vec<Fault> {
    let mut faults: Vec<Fault> = [
        (args.kill_node_at, Kind::Kill),
        (args.term_node_at, Kind::Terminate),
        (args.freeze_node_at, Kind::Freeze(args.freeze_for)),
    ]
    .into_iter()
    .filter_map(|(after, kind)| Some(Fault { kind, after_runs: after? }))
    .collect();
    faults.sort_by_key(|fault| fault.after_runs);
    faults
}

/// Does each of them at its time, to the silo of this name or the one that leads most shards then.
pub async fn inject(
    faults: &[Fault],
    name: Option<&str>,
    cluster: &Cluster,
    link: &Link,
    ledger: &Ledger,
) -> anyhow::Result<Vec<Done>> {
    let mut done = Vec::new();
    for fault in faults {
        ledger.when_ended(fault.after_runs).await.context("the ledger is gone")?;
        let (node, leads) = victim(name, cluster, link).await?;
        let pid = node.pid.with_context(|| format!("{} does not run", node.name))?;
        if !matches!(fault.kind, Kind::Freeze(_)) {
            cluster.remember_usage(&node.name);
        }
        let at = Instant::now();
        ledger.begin_gap(at);
        match fault.kind {
            Kind::Kill => tell(pid, Signal::KILL),
            Kind::Terminate => tell(pid, Signal::TERM),
            Kind::Freeze(time) => {
                tell(pid, Signal::STOP);
                tokio::time::sleep(time).await;
                tell(pid, Signal::CONT);
            }
        }
        done.push(Done { fault: *fault, node: node.name, leads, at });
    }
    Ok(done)
}

async fn victim(name: Option<&str>, cluster: &Cluster, link: &Link) -> anyhow::Result<(Node, u32)> {
    let (status, _) = link
        .until_answered(|attempt| {
            let mut client = link.cluster(attempt);
            async move { client.get_cluster(v1::GetClusterRequest {}).await }
        })
        .await;
    let nodes = status.map(|status| status.nodes).unwrap_or_default();
    let leads = |name: &str| nodes.iter().find(|node| node.name == name).map_or(0, |node| node.leads);
    let busiest = nodes.iter().max_by_key(|node| node.leads).map(|node| node.name.as_str());
    let node = cluster.node(name.or(busiest)).with_context(|| {
        format!("Expected a silo {} that runs, but found none.", name.or(busiest).unwrap_or_default())
    })?;
    let leads = leads(&node.name);
    Ok((node, leads))
}

/// A signal to a process of ours.
pub fn tell(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It has ended already: that is what is wanted, or it shows in the report.
        let _ = kill_process(pid, signal);
    }
}
