//! The servers under load: somebody else's, one, or a cluster.

use crate::args::Args;
use crate::cluster::Cluster;
use crate::processes::{self, Server};
use crate::server_link::Link;
use crate::usage::Usage;

/// Of `granary cluster up`: a silo that has ended is started again.
const RESPAWN: &str = "--respawn";

/// What the load is for.
pub enum Target {
    /// Servers of somebody else's.
    Outside,
    One(Server),
    Many(Cluster),
}

impl Target {
    pub async fn start(args: &Args) -> anyhow::Result<Self> {
        if !args.server.is_empty() {
            return Ok(Self::Outside);
        }
        let Some(nodes) = args.nodes else { return Server::start(args).await.map(Self::One) };
        let program = processes::granary_binary(args).await?;
        let mut more: Vec<String> = args.server_args.split_whitespace().map(str::to_owned).collect();
        if args.kills > 1 && !more.iter().any(|word| word == RESPAWN) {
            more.push(RESPAWN.to_owned());
        }
        Cluster::start(&program, nodes, args.data.as_deref(), &more).await.map(Self::Many)
    }

    /// Waits for the first answer.
    pub async fn ready(&mut self, link: &Link) -> anyhow::Result<()> {
        match self {
            Self::One(server) => server.ready(link).await,
            Self::Outside | Self::Many(_) => processes::ready(link).await,
        }
    }

    pub fn urls(&self, args: &Args) -> Vec<String> {
        match self {
            Self::Outside => args.server.clone(),
            Self::One(server) => vec![server.url.clone()],
            Self::Many(cluster) => cluster.urls(),
        }
    }

    pub fn usage(&self) -> Usage {
        match self {
            Self::Outside => Usage::default(),
            Self::One(server) => server.usage(),
            Self::Many(cluster) => cluster.usage(),
        }
    }

    pub async fn stop(self) {
        match self {
            Self::Outside => {}
            Self::One(server) => server.stop().await,
            Self::Many(cluster) => cluster.stop().await,
        }
    }
}
