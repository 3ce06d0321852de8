//! `granary cluster up`: silos on loopback with fresh certificates, for trying out.

use super::super::style::Style;
use super::super::{Common, Exit, Failure, signals};
use super::children::{Children, last_words};
use super::layout::{self, Plan, Wanted};
use super::words::Words;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const READY_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// A silo that ends as soon as it starts is started again no faster than this.
const RESPAWN_AFTER: Duration = Duration::from_secs(1);
/// Longer than a silo's own `drainSeconds`, which ends it.
const STOP_MAX: Duration = Duration::from_secs(40);

/// Start a cluster on this machine, for trying out
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  granary cluster up\n  granary cluster up --nodes 5 --dir /tmp/five   (start it again with the same --dir)\n\nEach silo is \
                        a process of its own with its own certificate; kill one and see what happens. Ctrl-C stops all in order, the \
                        second one kills."
)]
pub struct UpArgs {
    /// How many silos; by default those of the folder, else 3. More than the folder has: the new ones join.
    #[arg(long)]
    pub nodes: Option<u32>,
    /// Where everything is kept; by default a new folder that is removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Shards of the cluster; fixed when it is founded. Default 16.
    #[arg(long)]
    pub shards: Option<u32>,
    /// First port; a silo takes three, the next one begins ten later. By default any that are free.
    #[arg(long)]
    pub port: Option<u16>,
    /// Start a silo again when it has ended.
    #[arg(long)]
    pub respawn: bool,
}

pub async fn run(common: &Common, args: UpArgs) -> Result<Exit, Failure> {
    let (dir, temporary) = match args.dir {
        Some(dir) => (dir, None),
        None => {
            let dir = std::env::temp_dir().join(format!("granary-cluster-{}", Uuid::now_v7().simple()));
            (dir.clone(), Some(Temporary(dir)))
        }
    };
    let wanted = Wanted { dir: dir.clone(), nodes: args.nodes, shards: args.shards, port: args.port };
    let plans = layout::prepare(&wanted, jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC).date())?;
    let words = Words { json: common.is_json(), style: Style::of_stdout() };
    words.begun(&dir, plans.len(), temporary.is_none());
    let begun = Instant::now();
    let mut children = Children::start(&plans)?;
    let mut stops = signals::Stops::new()?;
    let up = tokio::select! {
        up = until_ready(&mut children, &plans) => Some(up),
        () = stops.next() => None,
    };
    let outcome = match up {
        Some(Ok(())) => {
            words.ready(&children, &plans, begun.elapsed());
            follow(&mut children, &mut stops, &words, args.respawn).await
        }
        Some(Err(failure)) => Err(failure),
        None => Ok(Exit::Good),
    };
    stop(&mut children, &mut stops, &words).await;
    outcome
}

/// Every silo welcomes traffic.
async fn until_ready(children: &mut Children, plans: &[Plan]) -> Result<(), Failure> {
    let client = reqwest::Client::builder()
        .timeout(LOOK_MAX)
        .build()
        .map_err(|error| Failure::no("internal", error.to_string()))?;
    let until = Instant::now() + READY_MAX;
    let ready = async {
        for plan in plans {
            while let Err(why) = is_ready(&client, &plan.url).await {
                if Instant::now() >= until {
                    return Err(Failure::no(
                        "not-ready",
                        format!("Expected {} to be ready within {} s, but: {why}", plan.name, READY_MAX.as_secs()),
                    ));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    };
    tokio::select! {
        ready = ready => ready,
        (at, how) = children.ended() => {
            let plan = children.plan(at);
            Err(Failure::no("ended", format!("Expected {} to stay, but it ended ({how}):\n{}", plan.name, last_words(plan))))
        }
    }
}

async fn is_ready(client: &reqwest::Client, url: &str) -> Result<(), String> {
    let response = client.get(format!("{url}/readyz")).send().await.map_err(|error| error.to_string())?;
    if response.status().is_success() {
        return Ok(());
    }
    Err(response.text().await.map_err(|error| error.to_string())?)
}

/// Until the word to stop, or until none is left.
async fn follow(
    children: &mut Children,
    stops: &mut signals::Stops,
    words: &Words,
    respawn: bool,
) -> Result<Exit, Failure> {
    loop {
        let (at, how) = tokio::select! {
            ended = children.ended() => ended,
            () = stops.next() => return Ok(Exit::Good),
        };
        let plan = children.plan(at).clone();
        // Whoever was killed said nothing about it.
        let said = if how.starts_with("exit") { last_words(&plan) } else { String::new() };
        words.ended(&plan, &how, children.left(), &said);
        if respawn {
            tokio::select! {
                () = tokio::time::sleep(RESPAWN_AFTER) => {}
                () = stops.next() => return Ok(Exit::Good),
            }
            children.start_again(at)?;
            words.started_again(&plan, children.pid(at));
        } else if children.left() == 0 {
            return Err(Failure::no("ended", "Expected a silo that runs, but all have ended."));
        }
    }
}

async fn stop(children: &mut Children, stops: &mut signals::Stops, words: &Words) {
    if children.left() == 0 {
        return;
    }
    let begun = Instant::now();
    words.stopping();
    children.terminate();
    let all_ended = async {
        while children.left() > 0 {
            children.ended().await;
        }
    };
    let ended = tokio::select! {
        () = all_ended => true,
        () = stops.next() => false,
        () = tokio::time::sleep(STOP_MAX) => false,
    };
    if !ended {
        children.kill();
        while children.left() > 0 {
            children.ended().await;
        }
    }
    words.stopped(begun.elapsed());
}

/// A folder that is removed at the end, however it comes.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Whatever is left of it lies where temporary things lie.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
