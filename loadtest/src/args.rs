//! The command line.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser, Debug)]
#[command(
    name = "loadtest",
    about = "Load on a Granary server with 6 Tool steps in a row, and the proof afterwards",
    after_help = "Examples:\n  loadtest --rate 50 --duration 60s\n  loadtest --concurrency 256 --runs 20000 --format json\n  \
                  loadtest --concurrency 256 --runs 30000 --kill-server-at 25000\n  \
                  loadtest --nodes 3 --rate 50 --duration 60s --kill-node-at 1500\n  loadtest --nodes 3 --rate 50 --duration 5m --kill-node-at 1000 --kills 10\n  \
                  loadtest --nodes 3 --waiting 100000\n\nExit codes: 0 every run ended once and every \
                  step was done once; 1 not so; 2 the test could not be made."
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Open loop: runs a second, started on schedule whatever the server does.
    #[arg(long, conflicts_with = "concurrency")]
    pub rate: Option<f64>,
    /// How long the open loop goes on.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub duration: Duration,
    /// Closed loop: runs in flight at any moment.
    #[arg(long)]
    pub concurrency: Option<usize>,
    /// Closed loop: runs in all.
    #[arg(long, default_value_t = 20_000)]
    pub runs: u64,

    /// Use these servers instead of starting one; several with commas. Their CPU and memory are not measured then.
    #[arg(long, value_delimiter = ',')]
    pub server: Vec<String>,
    /// Start a cluster of so many silos on this machine instead of one server.
    #[arg(long, conflicts_with_all = ["server", "kill_server_at"], value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes: Option<u32>,
    /// The granary binary; by default the one beside this program.
    #[arg(long)]
    pub granary: Option<PathBuf>,
    /// Data folder of the server or cluster that is started; by default a new one that is removed at the end.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// More arguments for `granary dev` or `granary cluster up`, separated by blanks, e.g. "--store fjall" or "--respawn".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub server_args: String,

    /// Steps of a run.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub steps: u32,
    /// Bytes of JSON that each step takes and gives back.
    #[arg(long, default_value_t = 300)]
    pub payload: usize,
    /// Attempts that the worker holds at once.
    #[arg(long, default_value_t = 1024)]
    pub capacity: u32,
    /// Runs made before the measurement begins.
    #[arg(long, default_value_t = 50)]
    pub warm_up: u64,

    /// SIGKILL the server when this many runs have ended, start it again on the same data, and measure how long the runs then in
    /// flight take to complete.
    #[arg(long, conflicts_with = "server")]
    pub kill_server_at: Option<u64>,

    /// SIGKILL a silo of the cluster when this many runs have ended.
    #[arg(long, requires = "nodes")]
    pub kill_node_at: Option<u64>,
    /// So many SIGKILLs in all, each time of the silo that leads most shards then. Silos are started again, and the next kill waits
    /// until all are back.
    #[arg(long, requires = "kill_node_at", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub kills: u32,
    /// Runs that have to end between two kills; by default as many as before the first.
    #[arg(long, requires = "kill_node_at")]
    pub kill_every: Option<u64>,
    /// SIGTERM a silo of the cluster when this many runs have ended.
    #[arg(long, requires = "nodes")]
    pub term_node_at: Option<u64>,
    /// Freeze a silo of the cluster (SIGSTOP) when this many runs have ended, for `--freeze-for`.
    #[arg(long, requires = "nodes")]
    pub freeze_node_at: Option<u64>,
    #[arg(long, default_value = "20s", value_parser = duration)]
    pub freeze_for: Duration,
    /// Which silo the faults are for, e.g. node-2; by default the one that leads most shards then.
    #[arg(long, requires = "nodes")]
    pub node: Option<String>,
    /// Instead of a load: start so many runs of one Human step that nobody answers, then measure what the servers use at rest.
    #[arg(long, conflicts_with_all = ["rate", "concurrency", "server", "kill_server_at", "kill_node_at", "term_node_at", "freeze_node_at"])]
    pub waiting: Option<u64>,
    /// How long the rest is measured.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub rest: Duration,

    /// A call that has no answer after this time is made again, at the next server if there is one; by default 2 s with several
    /// servers, else 20 s.
    #[arg(long, value_parser = duration)]
    pub call_timeout: Option<Duration>,

    /// Give up after this time: what has not ended by then counts as lost.
    #[arg(long, default_value = "15m", value_parser = duration)]
    pub deadline: Duration,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// No lines of progress.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// The echoing worker process.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(ClapArgs, Debug)]
pub struct WorkerArgs {
    #[arg(long, value_delimiter = ',', required = true)]
    pub server: Vec<String>,
    #[arg(long)]
    pub queue: String,
    #[arg(long)]
    pub capacity: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// What the load looks like.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Open { rate: f64, duration: Duration },
    Closed { concurrency: usize, runs: u64 },
}

impl Args {
    pub fn mode(&self) -> anyhow::Result<Mode> {
        match (self.rate, self.concurrency) {
            (Some(rate), None) if rate > 0.0 && rate.is_finite() => Ok(Mode::Open { rate, duration: self.duration }),
            (Some(rate), None) => anyhow::bail!("Expected a rate above 0, but found {rate}."),
            (None, Some(0)) => anyhow::bail!("Expected a concurrency of at least 1, but found 0."),
            (None, Some(concurrency)) => Ok(Mode::Closed { concurrency, runs: self.runs }),
            _ => anyhow::bail!("Expected --rate (open loop) or --concurrency (closed loop), but found neither."),
        }
    }
}

/// `250ms`, `60s`, `15m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("Expected a duration like 250ms, 60s, 15m or 1h, but found {text:?}.")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|n| Duration::try_from_secs_f64(n * seconds).ok())
        .ok_or_else(|| format!("Expected a duration like 250ms, 60s, 15m or 1h, but found {text:?}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, wanted) in [("250ms", 250), ("60s", 60_000), ("1.5m", 90_000), ("2", 2_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(wanted)), "{text}");
        }
        for text in ["", "s", "1d", "-1s", "1e400s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_load_is_open_or_closed_but_not_both() {
        let parse = |line: &str| Args::try_parse_from(line.split(' ')).map_err(|e| e.to_string());
        assert!(matches!(parse("loadtest --rate 50").expect("parses").mode(), Ok(Mode::Open { .. })));
        assert!(matches!(parse("loadtest --concurrency 2").expect("parses").mode(), Ok(Mode::Closed { .. })));
        assert!(parse("loadtest").expect("parses").mode().is_err());
        assert!(parse("loadtest --rate 50 --concurrency 2").is_err());
        assert!(parse("loadtest --rate 50 --kill-node-at 3").is_err(), "there is no cluster");
        assert!(parse("loadtest --rate 50 --nodes 3 --kill-server-at 3").is_err());
        assert!(parse("loadtest --rate 50 --nodes 3 --kills 3").is_err(), "kills begin somewhere");
        assert_eq!(parse("loadtest --rate 50 --nodes 3 --kill-node-at 9 --kills 3").expect("parses").kills, 3);
        assert!(parse("loadtest --waiting 9 --rate 50").is_err());
        assert_eq!(parse("loadtest --waiting 9 --nodes 3").expect("parses").waiting, Some(9));
        assert_eq!(parse("loadtest --rate 1 --server http://a:1,http://b:2").expect("parses").server.len(), 2);
    }
}
