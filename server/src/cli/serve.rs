//! What `granary dev` and `granary node` have in common: a node in this process until somebody or something ends it.

use super::{Exit, Failure, signals};
use granary::config::{Config, Source};
use granary::node::{Granary, Node};
use granary::telemetry;

/// Starts a node, tells `started`, and stops it in order at the first SIGTERM or ctrl-C.
pub async fn serve(config: Config, source: Option<Source>, started: impl FnOnce(&Node)) -> Result<Exit, Failure> {
    telemetry::configured(&config.log).map_err(Failure::usage)?;
    let data = config.store.data_dir.display().to_string();
    let stop = signals::stop();
    let node = Granary::start_from(config, source)
        .await
        .map_err(|error| Failure::usage(format!("The silo on {data} did not start: {error:#}")))?;
    started(&node);
    let fallen = tokio::select! {
        () = stop.cancelled() => None,
        fallen = node.fallen() => Some(fallen),
    };
    node.shutdown().await.map_err(|error| Failure::no("internal", format!("{error:#}")))?;
    match fallen {
        None => Ok(Exit::Good),
        Some(fallen) => Err(Failure { exit: Exit::Refused, code: "refused".to_owned(), message: fallen.message }),
    }
}
