//! `granary worker`: does the attempts of a server, as its file says.

use super::{Common, Exit, Failure, signals};
use granary::tenant::DEFAULT_TENANT;
use granary::worker::{Journal, Worker, WorkerOptions, config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Do the work of agents and tools, as a file says
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  granary worker --config examples/repository-assessment.worker.yaml\n\nSIGTERM or ctrl-C: it takes nothing \
                        new, finishes what it holds and reports it."
)]
pub struct WorkerArgs {
    /// The worker file.
    #[arg(long, short)]
    pub config: PathBuf,
    /// Attempts at once, instead of what the file says.
    #[arg(long)]
    pub capacity: Option<u32>,
    /// Folder that remembers attempts over a kill of the worker, instead of what the file says.
    #[arg(long)]
    pub state: Option<PathBuf>,
}

pub async fn run(common: &Common, args: WorkerArgs) -> Result<Exit, Failure> {
    let overrides = Overrides {
        servers: common.server.clone(),
        tenant: common.tenant.clone(),
        capacity: args.capacity,
        state: args.state,
        drain: None,
    };
    let worker = make(&args.config, overrides)?;
    let stop = signals::stop();
    worker.run(stop).await?;
    Ok(Exit::Good)
}

/// What comes before the worker file's own words.
#[derive(Default)]
pub struct Overrides {
    /// Empty = what the file says.
    pub servers: Vec<String>,
    pub tenant: Option<String>,
    pub capacity: Option<u32>,
    pub state: Option<PathBuf>,
    pub drain: Option<Duration>,
}

pub fn make(file: &Path, overrides: Overrides) -> Result<Worker, Failure> {
    let config = config::read(file, &|name| std::env::var(name).ok())?;
    let options = WorkerOptions {
        servers: [overrides.servers, config.servers, vec![super::DEFAULT_SERVER.to_owned()]]
            .into_iter()
            .find(|servers| !servers.is_empty())
            .unwrap_or_default(),
        tenant: overrides.tenant.or(config.tenant).unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
        capacity: overrides.capacity.unwrap_or(config.capacity),
        drain: overrides.drain.unwrap_or(config.drain),
    };
    let mut worker = Worker::new(options);
    for (queue, handler) in config.handlers {
        worker = worker.serve_shared(queue, handler);
    }
    if let Some(folder) = overrides.state.or(config.state) {
        worker = worker.remember_in(Journal::open(&folder)?);
    }
    Ok(worker)
}

/// A worker inside this process, ended by `stop`.
pub fn spawn(worker: Worker, stop: CancellationToken) -> tokio::task::JoinHandle<Result<(), Failure>> {
    tokio::spawn(async move { worker.run(stop).await.map_err(Failure::from) })
}
