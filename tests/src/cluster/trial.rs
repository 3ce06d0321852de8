//! One trial: a fleet under load, and what a test may ask of it while it breaks things.

use super::Fleet;
use super::client::{Clients, passes, timed};
use super::consumer::Consumer;
use super::definitions::{KINDS, Kind, QUEUE};
use super::load::{self, Load, Started};
use super::pace::Pace;
use super::setup::Shape;
use crate::worker::Echo;
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use granary_proto::v1::{self, cluster_client::ClusterClient};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Between two looks at something that becomes true by itself.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a question about the cluster is repeated.
const ASK_MAX: Duration = Duration::from_secs(90);
/// How long a node may be silent to one who asks once.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// How long what a trial waits for may take: far more than it needs on a machine that has time for it.
pub const ENDS_MAX: Duration = Duration::from_secs(240);
/// Submissions at once, beside the load.
const SUBMITTERS: usize = 16;

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
            rate: 8.0,
            workers: 3,
            cuts: false,
            shape: Shape::default(),
            patience: ENDS_MAX,
            settle: Duration::from_secs(120),
            clocks_are_wrong: false,
        }
    }

    /// As [`Plan::new`], on a network that can be cut.
    pub fn cutting(name: &'static str) -> Self {
        Self { cuts: true, ..Self::new(name) }
    }
}

pub struct Trial<'a> {
    pub(super) load: Option<Load>,
    pub(super) consumers: Vec<Consumer>,
    /// Reads as another tenant and must hear nothing.
    pub(super) stranger: Consumer,
    pub(super) echoes: Vec<Echo>,
    pub clients: Clients,
    pub pace: Pace,
    pub fleet: &'a mut Fleet,
    pub plan: Plan,
    pub(super) started: Vec<Started>,
}

impl<'a> Trial<'a> {
    /// Takes a fleet that is ready, and sees the load going.
    ///
    /// # Errors
    /// The load does not get going.
    pub async fn new(plan: Plan, fleet: &'a mut Fleet) -> Result<Self> {
        let clients = fleet.clients()?;
        load::publish(&clients, &KINDS, plan.patience).await?;
        let pace = Pace::default();
        let echoes = (0..plan.workers).map(|n| Echo::among(clients.clone(), n, &[QUEUE], 64, pace.clone())).collect();
        let consumers = (0..2).map(|n| Consumer::start(clients.clone(), &format!("consumer-{n}"), n)).collect();
        let stranger = Consumer::start_of(clients.clone(), Some("stranger"), "consumer-0", 0);
        let load = (plan.rate > 0.0).then(|| Load::start(clients.clone(), plan.rate, plan.patience, pace.clone()));
        let mut trial = Self { load, consumers, stranger, echoes, clients, pace, fleet, plan, started: Vec::new() };
        if trial.load.is_some() {
            // Before anything is broken it has to work.
            trial.progress(20, ENDS_MAX).await.context("the load does not get going")?;
        }
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
                let left = wanted.saturating_sub(self.pace.signs());
                bail!("{} of {signs} signs of progress within {within:?}", signs.saturating_sub(left));
            }
            tokio::time::sleep(LOOK_EVERY / 4).await;
        }
        Ok(())
    }

    /// Lets the load go on for a time, in the state that things are in.
    pub async fn spend(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Measures the longest time without progress since the last [`Pace::restart`], once the work has its pace again.
    ///
    /// # Errors
    /// It does not get its pace again.
    pub async fn gap_of(&mut self, what: &str) -> Result<Duration> {
        self.progress(60, ENDS_MAX).await.with_context(|| format!("after {what}"))?;
        let (gap, _) = self.pace.longest_gap();
        self.note(format!("longest time without progress after {what}: {gap:.2?}"));
        Ok(gap)
    }

    pub fn note(&self, line: impl AsRef<str>) {
        println!("{}: {}", self.plan.name, line.as_ref());
    }

    /// Starts `number` runs of one kind beside the load, as fast as they are taken. The proof covers them.
    ///
    /// # Errors
    /// The definition is refused.
    pub async fn submit(&mut self, kind: Kind, number: usize) -> Result<Vec<Uuid>> {
        load::publish(&self.clients, &[kind], self.plan.patience).await?;
        let (clients, patience) = (&self.clients, self.plan.patience);
        let started: Vec<Started> = futures::stream::iter(0..number)
            .map(|n| load::submit(clients, n, kind, Instant::now(), patience))
            .buffer_unordered(SUBMITTERS)
            .collect()
            .await;
        let ids = started.iter().map(|one| one.run_id).collect();
        self.started.extend(started);
        Ok(ids)
    }

    /// Whether the ends of these runs came to all consumers.
    ///
    /// # Errors
    /// They do not in time; says how many are missing.
    pub async fn ends_of(&self, runs: &[Uuid], within: Duration) -> Result<Duration> {
        let (begin, mut open) = (Instant::now(), runs.iter().map(Uuid::to_string).collect::<Vec<_>>());
        loop {
            open.retain(|run| !self.consumers.iter().all(|consumer| consumer.has_end_of(run)));
            if open.is_empty() {
                return Ok(begin.elapsed());
            }
            ensure!(begin.elapsed() < within, "{} of {} runs did not end within {within:?}", open.len(), runs.len());
            tokio::time::sleep(LOOK_EVERY).await;
        }
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
        let answer = self.clients.persist(0, ASK_MAX, |channel| async move {
            ClusterClient::new(channel).get_cluster(timed(v1::GetClusterRequest {})).await
        });
        answer.await.result.context("status of the cluster")
    }

    /// Takes a member out for good.
    ///
    /// # Errors
    /// It is refused.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let answer = self.clients.persist(0, ASK_MAX, |channel| {
            let request = timed(v1::RemoveNodeRequest { node: name.to_owned() });
            async move { ClusterClient::new(channel).remove_node(request).await }
        });
        answer.await.result.map(drop).with_context(|| format!("remove {name}"))
    }

    /// Moves everything off a member, or takes that back.
    ///
    /// # Errors
    /// It is refused.
    pub async fn drain(&self, name: &str, undo: bool) -> Result<()> {
        let answer = self.clients.persist(0, ASK_MAX, |channel| {
            let request = timed(v1::DrainNodeRequest { node: name.to_owned(), undo });
            async move { ClusterClient::new(channel).drain_node(request).await }
        });
        answer.await.result.map(drop).with_context(|| format!("drain {name}"))
    }

    /// Hands a shard to a member.
    ///
    /// # Errors
    /// It is refused.
    pub async fn transfer(&self, shard: u32, name: &str) -> Result<()> {
        let answer = self.clients.persist(0, ASK_MAX, |channel| {
            let request = timed(v1::TransferShardRequest { shard, node: name.to_owned() });
            async move { ClusterClient::new(channel).transfer_shard(request).await }
        });
        answer.await.result.map(drop).with_context(|| format!("transfer shard {shard} to {name}"))
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

    /// Waits until what the cluster says about itself leaves nothing open.
    ///
    /// # Errors
    /// It does not in time; says what is open.
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

    /// Waits until a node takes a new worker, or refuses it as one that should go elsewhere.
    ///
    /// # Errors
    /// It does the other thing for too long.
    pub async fn until_worker_is(&self, place: usize, welcome: bool) -> Result<()> {
        let deadline = Instant::now() + ENDS_MAX;
        loop {
            let said = crate::worker::knock(&self.clients, place).await;
            match &said {
                Ok(()) if welcome => return Ok(()),
                Err(status) if !welcome && status.code() == tonic::Code::Unavailable => return Ok(()),
                _ => {}
            }
            ensure!(Instant::now() < deadline, "node {place} says to a new worker: {said:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether a node, asked once and without a retry, tells of a run nothing that is old or wrong: it may be unable to say, but it
    /// may not deny the run, nor show it as it was before its end, which the others have told.
    ///
    /// # Errors
    /// The node said something old or wrong.
    pub async fn is_honest(&self, place: usize, ended: &[Uuid]) -> Result<()> {
        let ask = |run: &Uuid| {
            let request = timed(v1::GetRunGraphRequest { run_id: run.to_string(), ..Default::default() });
            let (mut engine, run) = (self.clients.engine(place), *run);
            async move { (run, tokio::time::timeout(ANSWER_MAX, engine.get_run_graph(request)).await) }
        };
        // All at once: what it says in the first moment counts most.
        for (run, answer) in futures::future::join_all(ended.iter().map(ask)).await {
            match answer {
                Ok(Ok(graph)) => {
                    let state = graph.into_inner().state;
                    ensure!(state == "Completed", "node {place} shows the ended run {run} as {state}");
                }
                Ok(Err(status)) => ensure!(passes(&status), "node {place} says of the ended run {run}: {status}"),
                Err(_) => {}
            }
        }
        Ok(())
    }
}
