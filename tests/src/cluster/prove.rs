//! The proof at the end of a trial: everything is healed, every run must end, and everything is read.

use super::check::{self, agree};
use super::client::timed;
use super::consumer::Consumer;
use super::load::Started;
use super::node::Node;
use super::trial::Trial;
use crate::worker::{Echo, Seen};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use granary_proto::v1::{self, run_control_client::RunControlClient, workflow_engine_client::WorkflowEngineClient};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a read of a healed cluster is repeated.
const READ_MAX: Duration = Duration::from_secs(90);
/// Runs read at the same time.
const READERS: usize = 16;
/// Faults that are printed; the number of all is printed too.
const SHOWN_MAX: usize = 20;

/// What the proof found.
#[derive(Debug, Default)]
pub struct Report {
    pub started: usize,
    pub acknowledged: usize,
    pub failed_tries: u64,
    pub attempts: usize,
    pub uncertain: usize,
    pub faults: Vec<String>,
    /// Run → its journal in words, for those who look into a fault.
    journals: HashMap<String, String>,
}

impl Trial<'_> {
    /// Ends the load, heals everything, waits for the end of every run and reads all of them.
    ///
    /// # Errors
    /// The fleet does not heal; a run does not end; a promise was broken.
    pub async fn prove(&mut self) -> Result<Report> {
        if let Some(load) = self.load.take() {
            self.started.extend(load.stop().await?);
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
            if let Some(denial) = &started.read_back {
                report
                    .faults
                    .push(format!("run {} was acknowledged, and then another node said: {denial}", started.run_id));
            }
        }
        let silent = self.wait_for_ends(&acknowledged, deadline).await;
        report.faults.extend(silent.into_iter().map(|run| format!("run {run}: its end never came to the consumers")));
        self.read_all(&acknowledged, &mut report).await;
        let seen: Vec<_> = self.echoes.iter().map(Echo::seen).collect();
        report.faults.extend(check::workers::doubled(&seen));
        if !self.plan.clocks_are_wrong {
            report.faults.extend(check::workers::early(&seen));
        }
        report.faults.extend(self.consumers.iter().flat_map(Consumer::faults));
        if self.fleet.members() > 1 {
            let replicas = self.fleet.members().min(3);
            let settled = self.until("agreement of the replicas", READ_MAX * 2, |s| agree::unsettled(s, replicas));
            if let Err(error) = settled.await {
                report.faults.push(format!("{error:#}"));
            }
        }
        if self.stranger.runs() > 0 {
            report.faults.push(format!("another tenant heard of {} of our runs", self.stranger.runs()));
        }
        for node in self.fleet.nodes() {
            let log = std::fs::read_to_string(&node.log).unwrap_or_default();
            report.faults.extend(check::nodes::log_faults(&node.name, &log));
            let metrics = node.probe("/metrics").map(|(_, text)| text).unwrap_or_default();
            report.faults.extend(check::nodes::metrics_faults(&node.name, &metrics));
        }
        self.echoes.iter().for_each(Echo::stop);
        self.print(&report);
        self.keep(&report, &seen)?;
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
                    report.journals.insert(read.started.run_id.to_string(), told(&read.journal));
                }
                Err(error) => report.faults.push(format!("{error:#}")),
            }
        }
    }

    /// The journal from one node, the graph from the next.
    async fn read(&self, n: usize, started: &Started) -> Result<check::Read> {
        let run_id = started.run_id.to_string();
        let journal = self.journal(n, &run_id).await.with_context(|| format!("journal of run {run_id}"))?;
        let answer = self.clients.persist(n + 1, READ_MAX, |channel| {
            let request = v1::GetRunGraphRequest { run_id: run_id.clone(), ..Default::default() };
            async move { WorkflowEngineClient::new(channel).get_run_graph(timed(request)).await }
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

    /// Writes faults, and what is known of the runs they name, beside the nodes' logs, which are kept when a trial fails.
    fn keep(&self, report: &Report, seen: &[Vec<Seen>]) -> Result<()> {
        let mut text = report.faults.join("\n");
        for (run, journal) in report.journals.iter().filter(|(run, _)| report.faults.iter().any(|f| f.contains(*run))) {
            write!(text, "\n\n== run {run}\n{journal}")?;
            for (worker, seen) in seen.iter().enumerate() {
                for one in seen.iter().filter(|one| one.run_id == *run) {
                    writeln!(
                        text,
                        "worker {worker} got {} of {}, {:.3?} ago",
                        one.attempt_id,
                        one.step_id,
                        one.at.elapsed()
                    )?;
                }
            }
        }
        writeln!(text, "\nwritten at {:?}", std::time::SystemTime::now())?;
        std::fs::write(self.fleet.folder().join("faults.log"), text)?;
        Ok(())
    }

    fn print(&self, report: &Report) {
        let (gap, at) = self.pace.longest_gap();
        let mut waits: Vec<Duration> = self.started.iter().filter_map(|s| s.acknowledged).collect();
        waits.sort();
        let quantile = |of: usize| waits.get(waits.len().saturating_sub(1) * of / 100).copied().unwrap_or_default();
        let cpu: Vec<Duration> = self.fleet.nodes().iter().map(Node::cpu).collect();
        let (streams, again) = self.consumers.iter().map(Consumer::figures).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!(
            "{}: {} runs, {} acknowledged (p50 {:.0?}, p99 {:.0?}, max {:.0?}) after {} failed tries; {} attempts, {} uncertain; \
             consumers: {streams} streams, {again} events again; longest time without progress since the last fault {gap:.2?} (at \
             {at:.0?}); processor time of the last boots {cpu:.1?}; {} faults",
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

/// One line an entry.
fn told(journal: &[v1::JournalEntry]) -> String {
    let mut text = String::new();
    for entry in journal {
        let at = entry.at.unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>4} {}.{:03} {} {} {} {} {} {}",
            entry.number,
            at.seconds,
            at.nanos / 1_000_000,
            entry.r#type,
            entry.step_id,
            entry.attempt_id,
            entry.outcome,
            entry.by,
            entry.text
        );
    }
    text
}
