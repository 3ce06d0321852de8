//! One running node: silo, its place in a cluster, edge and figures in one handle.
//!
//! `start` puts it together, `serve` is its listener for clients, `neighbours` what it needs to be one of several.

mod neighbours;
mod options;
mod serve;
mod start;

use crate::api::Api;
use crate::config::{Config, Source, Watcher};
use crate::metrics::Figures;
use anyhow::Context as _;
use cluster::{Clock, Membership, Silo, SystemClock};
use neighbours::Neighbours;
use serve::Serving;
use shard::Host;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// After the last request is answered, connections get this long to close in order.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Starts nodes.
pub struct Granary;

/// A running node. Dropping it does not stop it in order: call [`Node::shutdown`].
pub struct Node {
    addr: SocketAddr,
    host: Host,
    api: Api,
    figures: Arc<Figures>,
    stopping: watch::Sender<bool>,
    serving: Serving,
    /// `None`: it is alone.
    neighbours: Option<Neighbours>,
    helpers: Vec<JoinHandle<()>>,
    // Dropping it ends the watch on the file.
    _watcher: Option<Watcher>,
}

/// Why a node must not go on in its cluster. Another start gives the same answer until somebody has done something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallen {
    pub message: String,
}

impl Granary {
    /// Opens the data folder, starts the silo and serves. Follows no file (see [`Granary::start_from`]). In a cluster it returns
    /// before the node belongs to one: [`Node::ready`] waits for that, [`Node::fallen`] tells that it must not.
    ///
    /// # Errors
    /// Data folder in use, damaged, of a newer format; port taken; a key out of its bounds; a certificate that does not fit.
    pub async fn start(config: Config) -> anyhow::Result<Node> {
        Self::start_with(config, None, Arc::new(SystemClock::default())).await
    }

    /// As [`Granary::start`], and follows the file of `source`, if there is one, for the reloadable keys.
    ///
    /// # Errors
    /// As [`Granary::start`]; the file cannot be watched.
    pub async fn start_from(config: Config, source: Option<Source>) -> anyhow::Result<Node> {
        Self::start_with(config, source, Arc::new(SystemClock::default())).await
    }

    /// As [`Granary::start_from`], with a clock of the caller's.
    ///
    /// # Errors
    /// As [`Granary::start_from`].
    pub async fn start_with(config: Config, source: Option<Source>, clock: Arc<dyn Clock>) -> anyhow::Result<Node> {
        start::start(config, source, clock).await
    }
}

impl Node {
    /// Where it listens; with port 0 in the configuration, the port that was free.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For clients on this machine: `http://127.0.0.1:7420`.
    pub fn url(&self) -> String {
        options::url_of(self.addr)
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    pub fn silo(&self) -> &Silo {
        self.api.silo()
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// `None` until the node belongs to a cluster.
    pub fn membership(&self) -> Option<&Membership> {
        self.api.membership().ok()
    }

    /// Waits until traffic is welcome.
    ///
    /// # Errors
    /// It did not become ready in time; says what is missing.
    pub async fn ready(&self, within: Duration) -> anyhow::Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        let until = Instant::now() + within;
        loop {
            let health = self.api.health();
            if health.ready {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "not ready after {within:?}: {}", health.reasons.join("; "));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Comes when the node must end although nobody asked for it: its name or number is another living node's, its data
    /// another cluster's, or it was taken out of its cluster. [`Node::shutdown`] is still the way to end.
    pub async fn fallen(&self) -> Fallen {
        match &self.neighbours {
            Some(neighbours) => neighbours.fallen().await,
            None => std::future::pending().await,
        }
    }

    /// Stops in order: readiness off and streams told to go elsewhere, leaderships handed over, turns ended, connections closed,
    /// the store closed. Takes at most `drainSeconds` and a moment, whatever clients do (FR-097).
    ///
    /// # Errors
    /// The store could not be closed in order; the next start recovers from the log.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        let drain = self.api.live().get().drain();
        let until = Instant::now() + drain;
        let left = || until.saturating_duration_since(Instant::now());
        // Ends streams and turns readiness off.
        let _ = self.stopping.send(true);
        self.helpers.iter().for_each(JoinHandle::abort);
        match &self.neighbours {
            // Nobody else can answer what is asked here: first the answers, then the end of turns.
            None => {
                self.serving.close(drain / 2).await;
                self.silo().drain(left()).await;
            }
            // The others take over while calls that come here still find their way there; only then is the door shut.
            Some(neighbours) => {
                if let Some(membership) = self.membership() {
                    membership.leave(left()).await;
                }
                self.silo().drain(left()).await;
                self.serving.close(left() / 2).await;
                neighbours.stop(left()).await;
            }
        }
        self.serving.end(CLOSE_MAX).await;
        match tokio::time::timeout(left().max(CLOSE_MAX), self.host.close()).await {
            Ok(closed) => closed.context("the store was not closed in order"),
            Err(_) => anyhow::bail!("the store was not closed within {drain:?}"),
        }
    }
}
