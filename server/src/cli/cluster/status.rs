//! `granary cluster status`.

use super::super::client::Client;
use super::super::out::{is_closed, say_part};
use super::super::style::Style;
use super::super::table::Table;
use super::super::{Common, Exit, Failure, runs, signals};
use granary_proto::v1;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
/// Home, and everything below it gone.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show the silos and where each shard is led and replicated
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  granary cluster status\n  granary cluster status --watch\n\nThe lag of a replica is in log entries behind its leader; `?` = the \
                        leader did not say. A replica in brackets has no vote yet. CLOCK: how far \
                        the silo's clock is ahead of the middle of all; `?` = not measured."
)]
pub struct StatusArgs {
    /// Again every second, until ctrl-C.
    #[arg(long)]
    pub watch: bool,
    /// Only the silos, not the shards.
    #[arg(long)]
    pub nodes: bool,
}

pub async fn run(common: &Common, args: &StatusArgs) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    if !args.watch {
        print(common, args, &ask(&client).await?)?;
        return Ok(Exit::Good);
    }
    let stop = signals::stop();
    let clears = !common.is_json() && std::io::stdout().is_terminal();
    while !is_closed() {
        let found = tokio::select! {
            found = ask(&client) => found,
            () = stop.cancelled() => break,
        };
        if clears {
            say_part!("{CLEAR}");
        }
        match found {
            Ok(cluster) => print(common, args, &cluster)?,
            // The next look may find more.
            Err(failure) => super::super::complain(&failure.message),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => break,
        }
    }
    Ok(Exit::Good)
}

async fn ask(client: &Client) -> Result<v1::GetClusterResponse, Failure> {
    Ok(client.cluster().get_cluster(v1::GetClusterRequest {}).await?.into_inner())
}

fn print(common: &Common, args: &StatusArgs, cluster: &v1::GetClusterResponse) -> Result<(), Failure> {
    if common.is_json() {
        return runs::print_json(cluster);
    }
    say_part!("{}", text(cluster, args.nodes, Style::of_stdout()));
    Ok(())
}

fn text(cluster: &v1::GetClusterResponse, nodes_only: bool, style: Style) -> String {
    let id = if cluster.cluster_id.is_empty() { "-" } else { &cluster.cluster_id };
    let mut out = format!("cluster {id}, book {}, said by {}\n\n", cluster.version, cluster.answered_by);
    out.push_str(&nodes(cluster).render(style));
    for node in &cluster.nodes {
        for it in &node.damaged {
            let _ =
                writeln!(out, "{}: its replica of shard {} is damaged and set aside: {}", node.name, it.shard, it.why);
        }
    }
    if !nodes_only {
        out.push('\n');
        out.push_str(&shards(cluster).render(style));
    }
    out
}

fn nodes(cluster: &v1::GetClusterResponse) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "STATE",
        "REACHABLE",
        "LEADS",
        "REPLICAS",
        "GRAINS",
        "OVERDUE",
        "OUTBOX",
        "WORKERS",
        "CLOCK",
        "ZONE",
        "ADDRESS",
    ]);
    for node in &cluster.nodes {
        table.row([
            node.name.clone(),
            node.state.clone(),
            if node.reachable { "yes" } else { "NO" }.to_owned(),
            node.leads.to_string(),
            node.replicas.to_string(),
            node.active_grains.to_string(),
            node.overdue_reminders.to_string(),
            node.outbox_calls_open.to_string(),
            node.workers.to_string(),
            clock(node.clock_off_ms),
            dash(&node.zone),
            node.address.clone(),
        ]);
    }
    table
}

fn shards(cluster: &v1::GetClusterResponse) -> Table {
    let mut table =
        Table::new(&["SHARD", "LEADER", "EPOCH", "OPEN RUNS", "OVERDUE", "OUTBOX", "MOVING", "REPLICAS: LAG"]);
    for shard in &cluster.shards {
        let replicas: Vec<String> = shard.replicas.iter().map(replica).collect();
        table.row([
            shard.shard.to_string(),
            dash(&shard.leader),
            shard.epoch.to_string(),
            shard.open_runs.to_string(),
            shard.overdue_reminders.to_string(),
            shard.outbox_calls_open.to_string(),
            dash(&shard.moving),
            replicas.join("  "),
        ]);
    }
    table
}

/// Below a tenth of a second clocks are as good as the same.
fn clock(off_ms: Option<i64>) -> String {
    match off_ms {
        None => "?".to_owned(),
        Some(off) if off.unsigned_abs() < 100 => "ok".to_owned(),
        Some(off) => format!("{:+.1} s", off as f64 / 1_000.0),
    }
}

fn replica(replica: &v1::ShardReplica) -> String {
    let lag = if replica.lag < 0 { "?".to_owned() } else { replica.lag.to_string() };
    if replica.voter { format!("{}: {lag}", replica.node) } else { format!("({}: {lag})", replica.node) }
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [FR-017]
    #[test]
    fn a_clock_that_is_off_is_shown_in_seconds() {
        let shown = [None, Some(0), Some(-99), Some(100), Some(-300_040)].map(clock);
        assert_eq!(shown, ["?", "ok", "ok", "+0.1 s", "-300.0 s"]);
    }

    #[test]
    fn nodes_and_shards_are_shown_with_what_is_known() {
        let replica = |node: &str, voter, lag| v1::ShardReplica { node: node.to_owned(), voter, lag };
        let cluster = v1::GetClusterResponse {
            cluster_id: "c".to_owned(),
            version: 7,
            answered_by: "node-1".to_owned(),
            nodes: vec![v1::ClusterNode {
                name: "node-1".to_owned(),
                state: "up".to_owned(),
                leads: 2,
                address: "http://a:1".to_owned(),
                ..Default::default()
            }],
            shards: vec![v1::ClusterShard {
                shard: 3,
                epoch: 5,
                replicas: vec![replica("node-1", true, 0), replica("node-2", false, -1)],
                ..Default::default()
            }],
        };
        let shown = text(&cluster, false, Style::plain());
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), "cluster c, book 7, said by node-1");
        assert_eq!(lines[3], ["node-1", "up", "NO", "2", "0", "0", "0", "0", "0", "?", "-", "http://a:1"]);
        assert_eq!(lines[6], ["3", "-", "5", "0", "0", "0", "-", "node-1:", "0", "(node-2:", "?)"]);
        assert!(!text(&cluster, true, Style::plain()).contains("SHARD"));
    }

    #[test]
    fn a_damaged_replica_is_named_with_what_is_wrong() {
        let damaged = vec![v1::DamagedShard { shard: 3, why: "checksum does not match".to_owned() }];
        let nodes = vec![v1::ClusterNode { name: "node-1".to_owned(), damaged, ..Default::default() }];
        let shown = text(&v1::GetClusterResponse { nodes, ..Default::default() }, true, Style::plain());
        assert!(
            shown.ends_with("node-1: its replica of shard 3 is damaged and set aside: checksum does not match\n"),
            "{shown}"
        );
    }
}
