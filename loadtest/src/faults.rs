//! What is done to a silo while the load runs.

use crate::args::Args;
use crate::cluster::{Cluster, Node};
use crate::ledger::Ledger;
use crate::server_link::Link;
use anyhow::Context;
use granary_proto::v1;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// How long the cluster may take to be whole again between two kills.
const BACK_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Log entries that a replica may be behind and count as caught up; there is load all the while.
const LAG_MAX: i64 = 500;

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
    let others = [(args.term_node_at, Kind::Terminate), (args.freeze_node_at, Kind::Freeze(args.freeze_for))];
    let mut faults: Vec<Fault> =
        others.into_iter().filter_map(|(after, kind)| Some(Fault { kind, after_runs: after? })).collect();
    if let Some(first) = args.kill_node_at {
        let every = args.kill_every.unwrap_or(first);
        let after = |n: u32| first.saturating_add(every.saturating_mul(n.into()));
        faults.extend((0..args.kills).map(|n| Fault { kind: Kind::Kill, after_runs: after(n) }));
    }
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
        if !done.is_empty() && fault.kind == Kind::Kill {
            all_back(cluster, link).await?;
        }
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

/// Waits until all silos run, answer, and have caught up: what the next kill does is its own doing then.
async fn all_back(cluster: &Cluster, link: &Link) -> anyhow::Result<()> {
    let back = async {
        loop {
            let (status, _) = link
                .until_answered(|attempt| {
                    let mut client = link.cluster(attempt);
                    async move { client.get_cluster(v1::GetClusterRequest {}).await }
                })
                .await;
            if cluster.all_run() && status.is_ok_and(|status| is_whole(&status)) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let within = BACK_MAX.as_secs();
    tokio::time::timeout(BACK_MAX, back).await.with_context(|| format!("not all silos were back within {within} s"))
}

fn is_whole(cluster: &v1::GetClusterResponse) -> bool {
    let caught_up = |replica: &v1::ShardReplica| replica.voter && (0..=LAG_MAX).contains(&replica.lag);
    let is_led = |shard: &v1::ClusterShard| !shard.leader.is_empty() && shard.replicas.iter().all(caught_up);
    cluster.nodes.iter().all(|node| node.reachable) && cluster.shards.iter().all(is_led)
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn kills_come_again_after_as_many_runs() {
        let wanted = |line: &str| {
            let args = Args::try_parse_from(line.split(' ')).expect("parses");
            wanted(&args).iter().map(|fault| (fault.kind, fault.after_runs)).collect::<Vec<_>>()
        };
        let frozen = Kind::Freeze(Duration::from_secs(20));
        let three = [(Kind::Kill, 100), (Kind::Kill, 200), (Kind::Kill, 300)];
        assert_eq!(wanted("loadtest --nodes 3 --rate 1 --kill-node-at 100 --kills 3"), three);
        assert_eq!(
            wanted("loadtest --nodes 3 --rate 1 --kill-node-at 100 --kills 2 --kill-every 7 --freeze-node-at 103"),
            [(Kind::Kill, 100), (frozen, 103), (Kind::Kill, 107)]
        );
    }

    #[test]
    fn a_cluster_is_whole_when_all_answer_and_have_caught_up() {
        let replica = |voter, lag| v1::ShardReplica { node: "a".to_owned(), voter, lag };
        let cluster = |leader: &str, replicas| v1::GetClusterResponse {
            nodes: vec![v1::ClusterNode { reachable: true, ..Default::default() }],
            shards: vec![v1::ClusterShard { leader: leader.to_owned(), replicas, ..Default::default() }],
            ..Default::default()
        };
        assert!(is_whole(&cluster("a", vec![replica(true, 0), replica(true, 500)])));
        for broken in [
            cluster("", vec![replica(true, 0)]),
            cluster("a", vec![replica(true, -1)]),
            cluster("a", vec![replica(true, 501)]),
            cluster("a", vec![replica(false, 0)]),
        ] {
            assert!(!is_whole(&broken), "{broken:?}");
        }
    }
}
