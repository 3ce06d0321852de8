//! The order of a start: port → data folder → mesh → silo → edge → membership.
//!
//! The edge stands before the node belongs to a cluster, so that a probe hears that it lives and why it is not ready yet
//! (FR-015); until then calls are answered with `Unavailable`.

use super::neighbours::Prepared;
use super::serve::Serving;
use super::{Node, options};
use crate::api::Api;
use crate::config::{Config, Live, Source, Watcher};
use crate::journal_client::JournalClient;
use crate::library::{Library, Supplies};
use crate::metrics::{Figures, follow};
use crate::telemetry;
use anyhow::Context as _;
use cluster::membership::{self, Ground};
use cluster::{Around, Clock, Membership, Silo};
use grains::kinds::grain_types;
use shard::Host;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub async fn start(config: Config, source: Option<Source>, clock: Arc<dyn Clock>) -> anyhow::Result<Node> {
    config.check().map_err(anyhow::Error::msg)?;
    config.cluster.warnings(&config.name).iter().for_each(|warning| tracing::warn!("{warning}"));
    // First of all, so that a taken port or a wrong certificate is said before the data folder is touched.
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let addr = listener.local_addr()?;
    let prepared = if config.cluster.enabled { Some(Prepared::new(&config, addr)?) } else { None };
    let live = Live::new(config.clone());
    let figures = Figures::new()?;
    let library = Library::new(live.clone(), Arc::clone(&figures))?;
    let journal = Some(config.run_control_journal.endpoint.as_str()).filter(|e| !e.is_empty());
    let journal = journal.map(JournalClient::connect).transpose()?;

    let folder = config.store.data_dir.display().to_string();
    let link = prepared.as_ref().map(|prepared| prepared.pipe() as Arc<dyn shard::RaftLink>);
    let host =
        Host::open(options::host(&config, link)).await.with_context(|| format!("cannot open data folder {folder}"))?;
    let mut types = grain_types(options::kinds(&live));
    let (around, neighbours) = match prepared {
        None => (Around::alone(), None),
        Some(prepared) => {
            types.extend(membership::grain_types());
            let neighbours = prepared.start(&host).await.context("cannot start the connections to other silos")?;
            (neighbours.around(), Some(neighbours))
        }
    };
    let supplies = Arc::new(Supplies(Arc::clone(&library)));
    let silo =
        Silo::start(host.clone(), options::silo(&config), types, supplies, clock.clone(), around.clone()).await?;
    library.attach(silo.clone());
    figures.census().attach(host.clone());
    figures.groups().attach(host.clone(), neighbours.as_ref().map(|neighbours| Arc::clone(neighbours.mesh())));

    let (stopping, stop) = watch::channel(false);
    let api = Api::new(silo.clone(), live.clone(), library, journal, stop);
    let serving = Serving::start(listener, &api, &figures)?;
    let watcher = watch_file(source, live, api.clone())?;
    let clocks = neighbours.is_some().then(|| {
        figures.clocks().attach(silo.clocks(), around.directory.clone());
        cluster::clocks::watch(silo.clone(), around.clone(), clock.clone(), config.cluster.clock_skew_max_ms)
    });
    let ground = Ground {
        host: host.clone(),
        silo: silo.clone(),
        peers: around.peers,
        services: around.services,
        directory: around.directory,
        clock,
        boot: neighbours.as_ref().map_or(0, |neighbours| neighbours.boot()),
        set_cluster: match &neighbours {
            Some(neighbours) => neighbours.set_cluster(),
            None => Arc::new(|_| {}),
        },
    };
    let membership_options = options::membership(&config, addr);
    let groups = Arc::clone(figures.groups());
    let mut helpers = vec![
        tokio::spawn(follow(silo, host.clone(), Arc::clone(&figures))),
        tokio::spawn(async move { groups.follow().await }),
    ];
    helpers.extend(clocks.map(tokio::spawn));
    match &neighbours {
        None => api.joined(Membership::alone(ground, membership_options)),
        Some(neighbours) => helpers.push(neighbours.enter(ground, membership_options, api.clone())),
    }
    tracing::info!(%addr, data = folder, shards = host.shards(), cluster = config.cluster.enabled, "granary listens");
    Ok(Node { addr, host, api, figures, stopping, serving, neighbours, helpers, _watcher: watcher })
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
