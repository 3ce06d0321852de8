//! `granary dev`: one silo with everything embedded, as a server.

use super::out::say;
use super::{Common, Exit, Failure, serve};
use granary::config::{self, Config, Source};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Start a silo for development: gRPC and HTTP on one port, no other service needed
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  granary dev\n  granary dev --data /tmp/try --listen 127.0.0.1:0 --store fjall")]
pub struct DevArgs {
    /// Where everything is kept.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Address and port; port 0 takes one that is free.
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// State store: sled, fjall, memory
    #[arg(long, value_parser = store)]
    pub store: Option<config::StateKind>,
    /// Configuration file; the arguments here come before it. See docs/configuration.example.yaml.
    #[arg(long, env = "GRANARY_CONFIG")]
    pub config: Option<PathBuf>,
    /// No word on standard output.
    #[arg(long)]
    pub quiet: bool,
}

fn store(text: &str) -> Result<config::StateKind, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| format!("Expected sled, fjall or memory, but found {text:?}"))
}

pub async fn run(_common: &Common, args: DevArgs) -> Result<Exit, Failure> {
    let source = Source::of_process(args.config.clone(), Config::development("data/dev"));
    let mut config = config::load(&source).map_err(|error| Failure::usage(error.to_string()))?;
    if let Some(data) = args.data {
        config.store.data_dir = data;
    }
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    if let Some(store) = args.store {
        config.store.state = store;
    }
    let data = config.store.data_dir.display().to_string();
    serve::serve(config, args.config.is_some().then_some(source), |node| {
        if !args.quiet {
            say!(
                "granary dev: {url} (gRPC and HTTP), data in {data}\ntry: granary run FILE --server {url}   |   ctrl-C stops it",
                url = node.url()
            );
        }
    })
    .await
}
