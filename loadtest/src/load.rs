//! The test from beginning to end: start, warm up, load, (kill,) measure, prove, stop.

use crate::args::{Args, Format, Mode};
use crate::drive::Driver;
use crate::ledger::{Ledger, Summary};
use crate::processes::{Server, Worker};
use crate::proof::{self, Mismatch, Proof};
use crate::report::{Cpu, FaultGaps, FaultReport, Latency, Memory, ProofReport, Recovery, Report, Stall};
use crate::server_link::Link;
use crate::target::Target;
use crate::usage::{self, Usage};
use crate::workload::Workload;
use crate::{events, faults, workload};
use anyhow::Context;
use granary_proto::v1;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The first run proves that definition, worker and subscription work together.
const FIRST_RUN_MAX: Duration = Duration::from_secs(30);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How long a single call may take, with one server and with several.
const CALL_ONE: Duration = Duration::from_secs(20);
const CALL_MANY: Duration = Duration::from_secs(2);
/// Runs at a time while warming up.
const WARM_UP_CONCURRENCY: usize = 8;

pub async fn run(args: &Args) -> anyhow::Result<Report> {
    let mode = args.mode()?;
    let mut target = Target::start(args).await?;
    let urls = target.urls(args);
    let call_timeout = args.call_timeout.unwrap_or(if urls.len() > 1 { CALL_MANY } else { CALL_ONE });
    let link = Link::new(&urls, call_timeout)?;
    target.ready(&link).await?;
    let workload = Arc::new(Workload::new(args.steps, args.payload));
    let release_id = load_definition(&link, &workload.load_request()).await?;
    let worker = Worker::start(&urls, args.capacity)?;
    let ledger = Arc::new(Ledger::new());
    let subscription = tokio::spawn(events::follow(link.clone(), ledger.clone()));
    let (gate, gate_seen) = watch::channel(true);
    let driver = Driver {
        link: link.clone(),
        ledger: ledger.clone(),
        workload: workload.clone(),
        release_id: release_id.into(),
        retries: Arc::default(),
        gate: gate_seen,
    };

    warm_up(&driver, args.warm_up).await?;
    driver.retries.forget();
    let progress = (!args.quiet && args.format == Format::Text).then(|| tokio::spawn(progress(ledger.clone())));

    let before = Meter::read(&target, &worker);
    let start = Instant::now();
    let deadline = start + args.deadline;
    let load = async {
        match mode {
            Mode::Open { rate, duration } => driver.open_loop(rate, duration).await,
            Mode::Closed { concurrency, runs } => {
                driver.closed_loop(concurrency, runs, true).await;
                0
            }
        }
    };
    let faults = faults::wanted(args);
    let harm = async {
        match &mut target {
            Target::One(server) => match args.kill_server_at {
                Some(after) => {
                    kill_and_restart(server, &link, &ledger, &gate, after).await.map(|it| (Some(it), Vec::new()))
                }
                None => Ok((None, Vec::new())),
            },
            Target::Many(cluster) => {
                let done = faults::inject(&faults, args.node.as_deref(), cluster, &link, &ledger).await?;
                Ok((None, done))
            }
            Target::Outside => Ok((None, Vec::new())),
        }
    };
    // What does not end by the deadline is not waited for; it stays open in the ledger and is reported as lost.
    let (left_out, (recovery, faults)) =
        match tokio::time::timeout_at(deadline.into(), async { tokio::join!(load, harm) }).await {
            Ok((left_out, harm)) => (left_out, harm?),
            Err(_) => (0, (None, Vec::new())),
        };
    let after = Meter::read(&target, &worker);
    let summary = ledger.summary();
    if let Some(progress) = progress {
        progress.abort();
    }

    let proof_start = Instant::now();
    let proof = proof::read(&link, &summary.started, &workload.steps).await;
    let proof_seconds = proof_start.elapsed().as_secs_f64();
    subscription.abort();
    worker.stop().await;
    let measured_server = !matches!(target, Target::Outside);
    target.stop().await;

    let seconds = summary.last_end.map_or(0.0, |end| end.duration_since(start).as_secs_f64());
    let steps = summary.measured as f64 * f64::from(args.steps);
    let retries = driver.retries.by_code();
    let faults: Vec<_> = faults.iter().enumerate().map(|(n, done)| fault_report(n, done, &summary, start)).collect();
    Ok(Report {
        load: match mode {
            Mode::Open { rate, duration } => format!("open {rate}/s for {} s", duration.as_secs_f64()),
            Mode::Closed { concurrency, .. } => format!("closed {concurrency}"),
        },
        steps_per_run: args.steps,
        payload_bytes: workload.input.text.len(),
        runs: summary.measured + summary.lost.len() as u64 + summary.refused.len() as u64,
        completed: summary.measured.saturating_sub(summary.not_completed.len() as u64),
        seconds,
        runs_per_second: summary.measured as f64 / seconds.max(f64::EPSILON),
        steps_per_second: steps / seconds.max(f64::EPSILON),
        latency_ms: Latency::of(&summary.latency),
        cpu_seconds_per_1000_steps: (measured_server && steps > 0.0).then(|| after.cpu_since(&before, steps / 1_000.0)),
        memory_mb: measured_server.then(|| after.memory()),
        submission_retries: retries.values().sum(),
        failed_tries: retries,
        nodes: args.nodes,
        longest_gap_ms: millis(summary.gaps.longest),
        stall_ms: Stall::of(&proof.stalls_ms),
        fault_gap_ms: FaultGaps::of(&faults),
        faults,
        left_out,
        redelivered_events: summary.redelivered,
        recovery,
        proof: proof_report(proof, &summary, proof_seconds),
    })
}

pub async fn load_definition(link: &Link, request: &v1::LoadWorkflowDefinitionRequest) -> anyhow::Result<String> {
    let (answer, _) = link
        .until_answered(|attempt| {
            let (mut engine, request) = (link.engine(attempt), request.clone());
            async move { engine.load_workflow_definition(request).await }
        })
        .await;
    let answer = answer.context("the definition could not be loaded")?;
    let version = answer.version.filter(|_| answer.loaded);
    version.map(|v| v.release_id).with_context(|| format!("the definition was refused: {:?}", answer.findings))
}

async fn warm_up(driver: &Driver, runs: u64) -> anyhow::Result<()> {
    let first = async {
        // The subscription may not stand yet when the first run ends; then its end is never seen and the next one is tried.
        loop {
            let one = driver.one(0, Instant::now(), false);
            match tokio::time::timeout(Duration::from_secs(2), one).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {
                    let why = driver.ledger.summary().refused.pop().map(|(_, why)| why).unwrap_or_default();
                    anyhow::bail!("the first run was refused: {why}");
                }
                Err(_) => driver.ledger.forget_open(),
            }
        }
    };
    tokio::time::timeout(FIRST_RUN_MAX, first).await.with_context(|| {
        format!(
            "no run came to its end within {} s (is the worker for {} connected?)",
            FIRST_RUN_MAX.as_secs(),
            workload::QUEUE
        )
    })??;
    driver.closed_loop(WARM_UP_CONCURRENCY, runs, false).await;
    Ok(())
}

async fn kill_and_restart(
    server: &mut Server,
    link: &Link,
    ledger: &Ledger,
    gate: &watch::Sender<bool>,
    after: u64,
) -> anyhow::Result<Recovery> {
    ledger.when_ended(after).await.context("the ledger is gone")?;
    // No new runs until those in flight are through, so that the figure is about them alone.
    gate.send_replace(false);
    server.kill().await?;
    let in_flight = ledger.in_flight();
    let all_closed = ledger.when_closed(&in_flight);
    let start = Instant::now();
    server.start_again()?;
    server.ready(link).await?;
    let first_answer = start.elapsed();
    all_closed.await.context("the ledger is gone")?;
    let all_complete = start.elapsed();
    gate.send_replace(true);
    Ok(Recovery {
        killed_after_runs: after,
        in_flight: in_flight.len(),
        first_answer_ms: first_answer.as_secs_f64() * 1_000.0,
        all_complete_ms: all_complete.as_secs_f64() * 1_000.0,
    })
}

async fn progress(ledger: Arc<Ledger>) {
    let start = Instant::now();
    let mut tick = tokio::time::interval(PROGRESS_EVERY);
    tick.tick().await;
    loop {
        tick.tick().await;
        let (ended, open) = ledger.counts();
        eprintln!("loadtest: {:>4.0} s  {ended} ended, {open} in flight", start.elapsed().as_secs_f64());
    }
}

fn proof_report(proof: Proof, summary: &Summary, seconds: f64) -> ProofReport {
    let texts = |runs: &[uuid::Uuid]| runs.iter().map(uuid::Uuid::to_string).collect();
    ProofReport {
        runs: proof.runs,
        journal_entries: proof.entries,
        seconds,
        mismatches: proof.mismatches,
        lost: texts(&summary.lost),
        not_completed: texts(&summary.not_completed),
        ended_twice: texts(&summary.doubled),
        refused: summary
            .refused
            .iter()
            .map(|(run, why)| Mismatch { run_id: run.to_string(), what: why.clone() })
            .collect(),
    }
}

fn fault_report(n: usize, done: &faults::Done, summary: &Summary, start: Instant) -> FaultReport {
    FaultReport {
        what: done.fault.kind.name(),
        node: done.node.clone(),
        leads: done.leads,
        after_runs: done.fault.after_runs,
        at_seconds: done.at.duration_since(start).as_secs_f64(),
        longest_gap_ms: summary.gaps.since_faults.get(n).copied().map_or(0.0, millis),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The three processes at one moment.
struct Meter {
    server: Usage,
    worker: Usage,
    client: Usage,
}

impl Meter {
    fn read(target: &Target, worker: &Worker) -> Self {
        Self {
            server: target.usage(),
            worker: worker.usage(),
            client: usage::of(std::process::id()).unwrap_or_default(),
        }
    }

    fn cpu_since(&self, before: &Meter, thousands: f64) -> Cpu {
        let each = |now: Usage, then: Usage| now.cpu.saturating_sub(then.cpu).as_secs_f64() / thousands;
        let (server, worker) = (each(self.server, before.server), each(self.worker, before.worker));
        Cpu { server, worker, client: each(self.client, before.client), server_and_worker: server + worker }
    }

    fn memory(&self) -> Memory {
        let mb = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
        Memory {
            server_peak: mb(self.server.peak_rss_bytes),
            server_at_end: mb(self.server.rss_bytes),
            worker_peak: mb(self.worker.peak_rss_bytes),
            client_peak: mb(self.client.peak_rss_bytes),
        }
    }
}
