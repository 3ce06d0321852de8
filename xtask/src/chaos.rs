//! Trials of real processes.

use std::process::Command;

#[derive(clap::Args)]
pub struct Chaos {
    /// Only trials whose name holds this.
    #[arg(default_value = "")]
    filter: String,
    /// The short ones alone, which run with all tests too.
    #[arg(long)]
    short: bool,
}

impl Chaos {
    pub fn run(self) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--package", "cluster-tests", "--test", "cluster_trials", "--", &self.filter]);
        command.args(["--nocapture", "--test-threads=1"]);
        if !self.short {
            command.arg("--include-ignored");
        }
        crate::run(command)
    }
}
