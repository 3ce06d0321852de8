//! One trial from start to proof.

use super::check::{self, agree};
use super::client::{Clients, passes, timed};
use super::consumer::Consumer;
use super::definitions::QUEUE;
use super::load::{self, Load, Started};
use super::net::Net;
use super::pace::Pace;
use super::setup::Shape;
use super::{Fleet, serial};
use crate::worker::Echo;
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use granary_proto::v1::{self, cluster_client::ClusterClient, run_control_client::RunControlClient};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tonic::Code;

/// Between two looks at something that becomes true by itself.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a read of a healed cluster is repeated.
const READ_MAX: Duration = Duration::from_secs(30);
/// Runs read at the same time.
const READERS: usize = 16;
/// Faults that are printed; the number of all is printed too.
const SHOWN_MAX: usize = 20;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Also the name of the folder that keeps the logs of a failure.
    pub name: &'static str,
    pub nodes: usize,
    /// Runs a second.
    pub rate: f64,
    pub workers: usize,
    /// The trial cuts connections, so it fails where there are no namespaces.
    pub cuts: bool,
    pub shape: Shape,
    /// How long a client repeats a submission.
    pub patience: Duration,
    /// How long all runs may take to end once everything is healed.
    pub settle: Duration,
    /// Clocks are wrong, so times that two nodes wrote say nothing about each other.
    pub clocks_are_wrong: bool,
}

impl Plan {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            nodes: 3,
            rate: 15.0,
            workers: 3,
            cuts: false,
            shape: Shape::default(),
            patience: Duration::from_secs(90),
            settle: Duration::from_secs(120),
            clocks_are_wrong: false,
        }
    }
}

pub struct Trial {
    // Clients go before the fleet they speak to.
    load: Option<Load>,
    consumers: Vec<Consumer>,
    echoes: Vec<Echo>,
    pub clients: Clients,
    pub pace: Pace,
    pub fleet: Fleet,
    pub plan: Plan,
    started: Vec<Started>,
    /// Lines for the report.
    notes: Vec<String>,
}

/// What the proof found.
#[derive(Debug, Default)]
pub struct Report {
    pub started: usize,
    pub acknowledged: usize,
    pub failed_tries: u64,
    pub attempts: usize,
    pub uncertain: usize,
    pub faults: Vec<String>,
}

/// Runs `faults` under load on a fresh fleet, then proves that nothing was lost or doubled.
///
/// # Errors
/// What the trial itself says; the fleet does not heal; the proof fails. The logs are kept then, and their place is told.
pub fn trial<F>(plan: Plan, faults: F) -> Result<()>
where
    F: AsyncFnOnce(&mut Trial) -> Result<()> + Send,
{
    // A thread of its own: it moves to the trial's network and never comes back.
    std::thread::scope(|scope| scope.spawn(|| run(plan, faults)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run<F: AsyncFnOnce(&mut Trial) -> Result<()>>(plan: Plan, faults: F) -> Result<()> {
    let _turn = serial::turn()?;
    let net = if plan.cuts { Net::of_namespaces()? } else { Net::of_any_kind() };
    let entrance = net.entrance();
    entrance.enter()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // A thread that stays outside would only find nobody there: the calls fail, and the trial says so.
        .on_thread_start(move || {
            let _ = entrance.enter();
        })
        .build()?;
    let folder = tempfile::Builder::new().prefix("granary-chaos-").tempdir()?;
    let name = plan.name;
    let outcome = runtime.block_on(async {
        let fleet = Fleet::start(folder.path(), net, plan.nodes, plan.shape.clone())?;
        let mut trial = Trial::new(plan, fleet).await?;
        let broken = faults(&mut trial).await.context("while things were being broken");
        let proven = match broken {
            Ok(()) => trial.prove().await.map(drop),
            Err(error) => Err(error),
        };
        trial.echoes.iter().for_each(Echo::stop);
        proven
    });
    runtime.shutdown_timeout(Duration::from_secs(2));
    outcome.map_err(|error| match keep_logs(folder.path(), name) {
        Ok(kept) => error.context(format!("logs of the nodes: {}", kept.display())),
        Err(_) => error,
    })
}

/// Copies the logs to where they outlive the trial.
fn keep_logs(folder: &Path, name: &str) -> Result<PathBuf> {
    let binary = crate::process::binary()?;
    let kept = binary.parent().context("a binary lies in a folder")?.join("chaos").join(name);
    std::fs::create_dir_all(&kept)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log" || extension == "yaml") {
            std::fs::copy(&path, kept.join(path.file_name().context("a file has a name")?))?;
        }
    }
    Ok(kept)
}

impl Trial {
    async fn new(plan: Plan, fleet: Fleet) -> Result<Self> {
        let clients = fleet.clients()?;
        load::publish(&clients, plan.patience).await?;
        let pace = Pace::default();
        let echoes = (0..plan.workers).map(|n| Echo::among(clients.clone(), n, &[QUEUE], 64, pace.clone())).collect();
        let consumers = (0..2).map(|n| Consumer::start(clients.clone(), &format!("consumer-{n}"), n)).collect();
        let load = Load::start(clients.clone(), plan.rate, plan.patience, pace.clone());
        let mut trial = Self {
            load: Some(load),
            consumers,
            echoes,
            clients,
            pace,
            fleet,
            plan,
            started: Vec::new(),
            notes: Vec::new(),
        };
        // Before anything is broken it has to work.
        trial.progress(20, Duration::from_secs(60)).await.context("the load does not get going")?;
        Ok(trial)
    }

    /// Waits for so many signs of progress (submissions acknowledged, outcomes taken).
    ///
    /// # Errors
    /// They do not come in time.
    pub async fn progress(&mut self, signs: u64, within: Duration) -> Result<()> {
        let (wanted, deadline) = (self.pace.signs() + signs, Instant::now() + within);
        while self.pace.signs() < wanted {
            if Instant::now() > deadline {
                bail!("{} of {signs} signs of progress within {within:?}", signs - (wanted - self.pace.signs()));
            }
            tokio::time::sleep(LOOK_EVERY / 4).await;
        }
        Ok(())
    }

    /// Lets the load go on for a time, in the state that things are in.
    pub async fn spend(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Measures the longest time without progress from a fault on, until the work has its pace again.
    ///
    /// # Errors
    /// It does not get its pace again.
    pub async fn gap_of(&mut self, what: &str) -> Result<Duration> {
        self.progress(60, Duration::from_secs(60)).await.with_context(|| format!("after {what}"))?;
        let (gap, _) = self.pace.longest_gap();
        self.note(format!("longest time without progress after {what}: {gap:.2?}"));
        Ok(gap)
    }

    pub fn note(&mut self, line: impl Into<String>) {
        let line = line.into();
        println!("{}: {line}", self.plan.name);
        self.notes.push(line);
    }

    /// One more node, which joins by itself. Gives its place.
    ///
    /// # Errors
    /// It does not start.
    pub fn join(&mut self) -> Result<usize> {
        let place = self.fleet.add()?;
        self.fleet.boot_ready(place)?;
        self.clients.add(&self.fleet.node(place).url())?;
        Ok(place)
    }

    /// What the cluster says about itself, from any node.
    ///
    /// # Errors
    /// No node answers.
    pub async fn status(&self) -> Result<v1::GetClusterResponse> {
        let answer = self.clients.persist(0, READ_MAX, |channel| async move {
            ClusterClient::new(channel).get_cluster(timed(v1::GetClusterRequest {})).await
        });
        answer.await.result.context("status of the cluster")
    }

    /// The place of the node that leads most shards.
    ///
    /// # Errors
    /// No node answers.
    pub async fn busiest(&self) -> Result<usize> {
        let status = self.status().await?;
        let busiest = status.nodes.iter().max_by_key(|node| node.leads).context("a cluster has nodes")?;
        self.place_of(&busiest.name)
    }

    /// # Errors
    /// There is no such node.
    pub fn place_of(&self, name: &str) -> Result<usize> {
        self.fleet.nodes().iter().position(|node| node.name == name).with_context(|| format!("no node {name}"))
    }

    /// Waits until what the cluster says about itself pleases.
    ///
    /// # Errors
    /// It does not in time; says what it said last.
    pub async fn until<P>(&self, what: &str, within: Duration, mut open: P) -> Result<()>
    where
        P: FnMut(&v1::GetClusterResponse) -> Vec<String>,
    {
        let deadline = Instant::now() + within;
        loop {
            let left = match self.status().await {
                Ok(status) => open(&status),
                Err(error) => vec![format!("{error:#}")],
            };
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{what} did not come within {within:?}: {}", left.join("; "));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the load, heals everything, waits for the end of every run and reads all of them.
    ///
    /// # Errors
    /// The fleet does not heal; a run does not end; a promise was broken.
    async fn prove(&mut self) -> Result<Report> {
        if let Some(load) = self.load.take() {
            self.started = load.stop().await?;
        }
        self.fleet.heal().context("heal the fleet")?;
        let deadline = Instant::now() + self.plan.settle;
        let mut report = Report { started: self.started.len(), ..Report::default() };
        let acknowledged: Vec<Started> = self.started.iter().filter(|s| s.acknowledged.is_some()).cloned().collect();
        report.acknowledged = acknowledged.len();
        report.failed_tries = self.started.iter().map(|s| u64::from(s.failed)).sum();
        for started in &self.started {
            if let Some(refusal) = &started.refusal {
                report.faults.push(format!("run {} was never acknowledged: {refusal}", started.run_id));
            }
        }
        let silent = self.wait_for_ends(&acknowledged, deadline).await;
        report.faults.extend(silent.into_iter().map(|run| format!("run {run}: its end never came to the consumers")));
        self.read_all(&acknowledged, &mut report).await;
        let seen: Vec<_> = self.echoes.iter().map(Echo::seen).collect();
        report.faults.extend(check::workers::faults(&seen));
        report.faults.extend(self.consumers.iter().flat_map(Consumer::faults));
        if self.fleet.size() > 1 {
            let replicas = self.fleet.size().min(3);
            let settled = self.until("agreement of the replicas", READ_MAX * 2, |s| agree::unsettled(s, replicas));
            if let Err(error) = settled.await {
                report.faults.push(format!("{error:#}"));
            }
        }
        self.print(&report);
        let shown = report.faults.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join("\n  ");
        ensure!(report.faults.is_empty(), "{} faults:\n  {shown}", report.faults.len());
        ensure!(report.acknowledged > 0, "no run was made, so nothing is proven");
        Ok(report)
    }

    /// Runs whose last event did not come to all consumers in time.
    async fn wait_for_ends(&self, runs: &[Started], deadline: Instant) -> Vec<String> {
        let mut open: Vec<String> = runs.iter().map(|started| started.run_id.to_string()).collect();
        loop {
            open.retain(|run| !self.consumers.iter().all(|consumer| consumer.has_end_of(run)));
            if open.is_empty() || Instant::now() > deadline {
                return open;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn read_all(&self, runs: &[Started], report: &mut Report) {
        let mut reads = futures::stream::iter(runs.iter().enumerate())
            .map(|(n, started)| self.read(n, started))
            .buffer_unordered(READERS);
        while let Some(read) = reads.next().await {
            match read {
                Ok(read) => {
                    let outcomes = read.journal.iter().filter(|entry| entry.r#type == "AttemptOutcomeRecorded");
                    report.uncertain += outcomes.filter(|entry| entry.outcome == "Uncertain").count();
                    report.attempts += read.journal.iter().filter(|e| e.r#type == "AttemptCreated").count();
                    report.faults.extend(check::faults(&read, self.plan.clocks_are_wrong));
                }
                Err(error) => report.faults.push(format!("{error:#}")),
            }
        }
    }

    /// The journal from one node, the graph from the next.
    async fn read(&self, n: usize, started: &Started) -> Result<check::Read> {
        let run_id = started.run_id.to_string();
        let journal = self.journal(n, &run_id).await.with_context(|| format!("journal of run {run_id}"))?;
        let answer =
            self.clients.persist(n + 1, READ_MAX, |channel| {
                let request = v1::GetRunGraphRequest { run_id: run_id.clone(), ..Default::default() };
                async move {
                    v1::workflow_engine_client::WorkflowEngineClient::new(channel).get_run_graph(timed(request)).await
                }
            });
        let graph = answer.await.result.with_context(|| format!("graph of run {run_id}"))?;
        let heard = self.consumers.iter().map(|consumer| consumer.heard_of(&run_id)).collect();
        Ok(check::Read { started: started.clone(), journal, graph, heard })
    }

    async fn journal(&self, n: usize, run_id: &str) -> Result<Vec<v1::JournalEntry>> {
        let mut entries = Vec::new();
        let mut after = 0;
        loop {
            let request = v1::ReadJournalRequest { run_id: run_id.to_owned(), after, page_size: 0 };
            let answer = self.clients.persist(n, READ_MAX, |channel| {
                let request = timed(request.clone());
                async move { RunControlClient::new(channel).read_journal(request).await }
            });
            let page = answer.await.result?;
            entries.extend(page.entries);
            if page.next_after == 0 {
                return Ok(entries);
            }
            after = page.next_after;
        }
    }

    /// What a node says about a run when it is asked once, without a retry: what a client sees that gives up at once.
    pub async fn ask_once(&self, place: usize, run_id: &str) -> Result<v1::RunGraph, tonic::Status> {
        let request = timed(v1::GetRunGraphRequest { run_id: run_id.to_owned(), ..Default::default() });
        let answer = tokio::time::timeout(Duration::from_secs(6), async {
            self.clients.engine(place).get_run_graph(request).await
        });
        match answer.await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(tonic::Status::deadline_exceeded("no answer at all")),
        }
    }

    fn print(&self, report: &Report) {
        let (gap, at) = self.pace.longest_gap();
        let mut waits: Vec<Duration> = self.started.iter().filter_map(|s| s.acknowledged).collect();
        waits.sort();
        let quantile = |of: usize| waits.get(waits.len().saturating_sub(1) * of / 100).copied().unwrap_or_default();
        let (streams, again) = self.consumers.iter().map(Consumer::figures).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!(
            "{}: {} runs, {} acknowledged (p50 {:.0?}, p99 {:.0?}, max {:.0?}) after {} failed tries; {} attempts, {} uncertain; \
             consumers: {streams} streams, {again} events again; longest time without progress since the last fault {gap:.2?} (at \
             {at:.0?}); {} faults",
            self.plan.name,
            report.started,
            report.acknowledged,
            quantile(50),
            quantile(99),
            quantile(100),
            report.failed_tries,
            report.attempts,
            report.uncertain,
            report.faults.len()
        );
    }
}

/// Whether an answer is one that a client may get while things are broken: a word that passes, never "not found".
pub fn may_pass(status: &tonic::Status) -> bool {
    passes(status) && status.code() != Code::NotFound
}
