//! `granary node`: one silo as its configuration says, alone or of a cluster.

use super::out::say;
use super::{Exit, Failure, serve};
use granary::config::{self, Config, Source};
use rustix::process::{Pid, Signal};
use std::path::PathBuf;

/// Start a silo as its configuration says: alone, or as one of a cluster
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  granary node --config /etc/granary/node.yaml\n  GRANARY_NAME=silo-0 GRANARY_CLUSTER__ENABLED=true granary node --config \
                        shared.yaml\n\nSIGTERM or ctrl-C: it hands its shards over, finishes what it does and ends, within drainSeconds.\n\nExit code 6: \
                        the cluster does not take it (its name is taken, its data is another cluster's, it was removed)."
)]
pub struct NodeArgs {
    /// Configuration file. See docs/configuration.example.yaml.
    #[arg(long, env = "GRANARY_CONFIG")]
    pub config: Option<PathBuf>,
    /// No word on standard output.
    #[arg(long)]
    pub quiet: bool,
    /// Ends at once when this process, which started it, ends.
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

pub async fn run(args: NodeArgs) -> Result<Exit, Failure> {
    if let Some(parent) = args.parent {
        bind_to(parent)?;
    }
    let source = Source::of_process(args.config.clone(), Config::default());
    let config = config::load(&source).map_err(|error| Failure::usage(error.to_string()))?;
    let (name, data) = (config.name.clone(), config.store.data_dir.display().to_string());
    let in_cluster = config.cluster.enabled;
    serve::serve(config, args.config.is_some().then_some(source), |node| {
        if !args.quiet {
            let state = if in_cluster { "looking for its cluster" } else { "alone" };
            say!("granary node: {name} on {} (gRPC and HTTP), {state}, data in {data}", node.url());
        }
    })
    .await
}

/// The kernel tells us of our parent's end, unless it came before we asked.
fn bind_to(parent: i32) -> Result<(), Failure> {
    let wrong = |why: String| Failure::no("internal", format!("Expected to end with process {parent}, but {why}."));
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| wrong(error.to_string()))?;
    if rustix::process::getppid().map(Pid::as_raw_nonzero).map(i32::from) == Some(parent) {
        return Ok(());
    }
    Err(wrong("it has ended already".to_owned()))
}
