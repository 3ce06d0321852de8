//! `granary cluster`: try one out, look at it, change it.

mod certs;
mod change;
mod children;
mod layout;
mod status;
mod up;
mod words;

use super::client::Client;
use super::{Common, Exit, Failure};
use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    Up(up::UpArgs),
    Certs(certs::CertsArgs),
    Status(status::StatusArgs),
    /// Move everything off a silo, in the background; it stays a member
    #[command(after_help = "Examples:\n  granary cluster drain node-2\n  granary cluster drain node-2 --undo")]
    Drain {
        node: String,
        /// Take the drain back.
        #[arg(long)]
        undo: bool,
    },
    /// Take a silo out for good, in the background, also one that is dead
    #[command(
        after_help = "Example:\n  granary cluster remove node-2\n\nIts name can be used again, its data folder cannot."
    )]
    Remove {
        node: String,
    },
    /// Hand the leadership of a shard to a silo that has a replica of it
    #[command(after_help = "Example:\n  granary cluster transfer 3 node-2")]
    Transfer {
        shard: u32,
        node: String,
    },
}

pub async fn run(common: &Common, command: ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Up(args) => up::run(common, args).await,
        ClusterCommand::Certs(args) => certs::run(common, &args),
        ClusterCommand::Status(args) => status::run(common, &args).await,
        ClusterCommand::Drain { node, undo } => {
            change::drain(common, &Client::connect(common).await?, node, undo).await
        }
        ClusterCommand::Remove { node } => change::remove(common, &Client::connect(common).await?, node).await,
        ClusterCommand::Transfer { shard, node } => {
            change::transfer(common, &Client::connect(common).await?, shard, node).await
        }
    }
}
