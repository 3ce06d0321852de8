//! One running node: silo, edge and figures in one handle.

use crate::api::Api;
use crate::config::{Config, Live, RunControlMode, Source, StateKind, Watcher};
use crate::http::Edge;
use crate::journal_client::JournalClient;
use crate::library::{Library, Supplies};
use crate::metrics::{Figures, follow};
use crate::{grpc, http, telemetry};
use anyhow::Context as _;
use cluster::{Around, Clock, Silo, SiloOptions, SystemClock};
use grains::kinds::{KindOptions, RunMode, grain_types, methods};
use shard::{Host, HostOptions, StateBackend};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// HTTP/2 pings keep dead connections from being held for ever.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);
/// After the last request is answered, connections get this long to close in order.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Streams of one connection at once.
const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;

/// Starts nodes.
pub struct Granary;

/// A running node. Dropping it does not stop it in order: call [`Node::shutdown`].
pub struct Node {
    addr: SocketAddr,
    host: Host,
    api: Api,
    figures: Arc<Figures>,
    stopping: watch::Sender<bool>,
    in_flight: Arc<InFlight>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    follower: JoinHandle<()>,
    // Dropping it ends the watch on the file.
    _watcher: Option<Watcher>,
}

impl Granary {
    /// Opens the data folder, starts the silo and serves. Follows no file (see [`Granary::start_from`]).
    ///
    /// # Errors
    /// Data folder in use, damaged, of a newer format; port taken; a key out of its bounds.
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
        config.check().map_err(anyhow::Error::msg)?;
        // First of all, so that a taken port is said before the data folder is touched.
        let listener =
            TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
        let addr = listener.local_addr()?;
        let live = Live::new(config.clone());
        let figures = Figures::new()?;
        let library = Library::new(live.clone(), Arc::clone(&figures))?;
        let journal = Some(config.run_control_journal.endpoint.as_str()).filter(|e| !e.is_empty());
        let journal = journal.map(JournalClient::connect).transpose()?;

        let folder = config.store.data_dir.display().to_string();
        let host =
            Host::open(host_options(&config)).await.with_context(|| format!("cannot open data folder {folder}"))?;
        let supplies = Arc::new(Supplies(Arc::clone(&library)));
        let types = grain_types(kind_options(&live));
        let silo = Silo::start(host.clone(), silo_options(&config), types, supplies, clock, Around::alone()).await?;
        library.attach(silo.clone());
        figures.census().attach(host.clone());
        let follower = tokio::spawn(follow(silo.clone(), host.clone(), Arc::clone(&figures)));

        let (stopping, stop) = watch::channel(false);
        let api = Api::new(silo, live.clone(), library, journal, stop);
        let in_flight = Arc::new(InFlight::default());
        let server = serve(listener, &api, &figures, &in_flight)?;
        let watcher = watch_file(source, live, api.clone())?;
        tracing::info!(%addr, data = folder, shards = host.shards(), "granary listens");
        Ok(Node { addr, host, api, figures, stopping, in_flight, server, follower, _watcher: watcher })
    }
}

impl Node {
    /// Where it listens; with port 0 in the configuration, the port that was free.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For clients on this machine: `http://127.0.0.1:7420`.
    pub fn url(&self) -> String {
        let host = match self.addr.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
            ip if ip.is_unspecified() => "[::1]".to_owned(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        format!("http://{host}:{}", self.addr.port())
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

    /// Waits until traffic is welcome.
    ///
    /// # Errors
    /// It did not become ready in time; says what is missing.
    pub async fn ready(&self, within: Duration) -> anyhow::Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        let until = Instant::now() + within;
        loop {
            let health = self.silo().health();
            if health.ready {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "not ready after {within:?}: {}", health.reasons.join("; "));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops accepting, ends streams, lets calls in progress and turns finish, closes the store. Takes at most
    /// `drainSeconds` and a moment, whatever clients do (FR-097).
    ///
    /// # Errors
    /// The store could not be closed in order; the next start recovers from the log.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        let drain = self.api.live().get().drain();
        let until = Instant::now() + drain;
        // Ends streams, turns readiness off, and makes the server send GOAWAY and accept no more.
        let _ = self.stopping.send(true);
        self.follower.abort();
        let calls_until = Instant::now() + drain / 2;
        let _ = tokio::time::timeout_at(calls_until, self.in_flight.none_left()).await;
        self.silo().drain(until.saturating_duration_since(Instant::now())).await;
        let server_abort = self.server.abort_handle();
        // Connections that never said anything would hold it for ever.
        let _ = tokio::time::timeout(CLOSE_MAX, self.server).await;
        server_abort.abort();
        let left = until.saturating_duration_since(Instant::now()).max(CLOSE_MAX);
        match tokio::time::timeout(left, self.host.close()).await {
            Ok(closed) => closed.context("the store was not closed in order"),
            Err(_) => anyhow::bail!("the store was not closed within {drain:?}"),
        }
    }
}

/// Requests that are not answered yet. Long streams count until their head is out: `stopping` ends them.
#[derive(Default)]
struct InFlight {
    count: AtomicUsize,
    ended: Notify,
}

struct Counted(Arc<InFlight>);

impl InFlight {
    fn enter(self: &Arc<Self>) -> Counted {
        self.count.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    async fn none_left(&self) {
        loop {
            // Waits from before the look, so an end between the two is not missed.
            let told = self.ended.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

fn serve(
    listener: TcpListener,
    api: &Api,
    figures: &Arc<Figures>,
    in_flight: &Arc<InFlight>,
) -> anyhow::Result<JoinHandle<Result<(), tonic::transport::Error>>> {
    let edge = Edge { api: api.clone(), figures: Arc::clone(figures) };
    let counting = Arc::clone(in_flight);
    let count = axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
        let counted = counting.enter();
        async move {
            let response = next.run(request).await;
            drop(counted);
            response
        }
    });
    let router = http::router(edge, grpc::routes(api)?).layer(count);
    let server = tonic::transport::Server::builder()
        .accept_http1(true)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_ANSWER))
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .add_routes(tonic::service::Routes::from(router));
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let api = api.clone();
    Ok(tokio::spawn(
        async move { server.serve_with_incoming_shutdown(incoming, async move { api.stopping().await }).await },
    ))
}

fn watch_file(source: Option<Source>, live: Live, api: Api) -> anyhow::Result<Option<Watcher>> {
    let Some(source) = source else { return Ok(None) };
    let changed = move |config: &Config| {
        // Defaults of the engine are compiled into plans.
        api.library().forget_plans();
        if let Err(why) = telemetry::configured(&config.log) {
            tracing::error!(why, "the log filter was not taken over");
        }
    };
    Watcher::start(source, live, changed).context("cannot watch the configuration file")
}

fn host_options(config: &Config) -> HostOptions {
    let mut options = HostOptions::new(&config.store.data_dir, config.shards);
    options.state = match config.store.state {
        StateKind::Sled => StateBackend::Sled,
        StateKind::Fjall => StateBackend::Fjall,
        StateKind::Memory => StateBackend::Memory,
    };
    options.cache_bytes = config.store.cache_mebibytes << 20;
    options.segment_bytes = config.store.segment_mebibytes << 20;
    options
}

fn silo_options(config: &Config) -> SiloOptions {
    use methods::run::{CLAIM, LEASE_EXPIRED, SWEEP};
    let mut options = SiloOptions::new(&config.name, CLAIM, LEASE_EXPIRED, SWEEP, methods::index::OPEN_RUNS);
    options.idle = Duration::from_secs(config.limits.idle_seconds);
    options.activation_memory = config.limits.activation_mebibytes << 20;
    options.sweep_every = Duration::from_secs(config.workflows.engine.stuck_run_seconds);
    options.event_retention = Duration::from_secs(config.retention.event_hours * 3_600);
    options.events_kept_max = config.retention.events_per_shard_max;
    options
}

fn kind_options(live: &Live) -> KindOptions {
    let mode = match live.get().run_control {
        RunControlMode::Bundled => RunMode::Bundled,
        RunControlMode::External => RunMode::External,
    };
    let live = live.clone();
    KindOptions { mode, engine: Arc::new(move || live.get().workflows.engine.options()) }
}
