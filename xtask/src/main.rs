//! `cargo xtask sim` and `cargo xtask chaos`: the long forms of what every change is tested with.

mod chaos;
mod sim;

use clap::{Parser, Subcommand};
use std::process::Command;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs seeds of the simulated cluster.
    Sim(sim::Sim),
    /// Runs the trials of real processes.
    Chaos(chaos::Chaos),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Sim(sim) => sim.run(),
        Task::Chaos(chaos) => chaos.run(),
    }
}

/// One test of the whole's package, with its output shown.
fn test(binary: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--package", "cluster-tests", "--test", binary, "--"]);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let status = command.status()?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
