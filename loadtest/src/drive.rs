//! Starts runs: on a schedule (open loop) or so many at a time (closed loop).

use crate::ledger::{End, Ledger};
use crate::server_link::Link;
use crate::workload::Workload;
use granary_proto::v1;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

/// Runs that the open loop lets lie unanswered before it says that it cannot keep up.
const OPEN_LOOP_IN_FLIGHT_MAX: usize = 100_000;

/// Failed tries, by what they failed with.
#[derive(Default)]
pub struct Retries(Mutex<BTreeMap<String, u64>>);

impl Retries {
    fn add(&self, failed: &[tonic::Code]) {
        if failed.is_empty() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().for_each(|code| *counts.entry(format!("{code:?}")).or_default() += 1);
    }

    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn by_code(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Clone)]
pub struct Driver {
    pub link: Link,
    pub ledger: Arc<Ledger>,
    pub workload: Arc<Workload>,
    pub release_id: Arc<str>,
    /// Tries of a submission that failed and were made again.
    pub retries: Arc<Retries>,
    /// False while no new run may be started (the server was killed and has not caught up).
    pub gate: watch::Receiver<bool>,
}

impl Driver {
    /// One run from submission to end. `None`: it was refused.
    pub async fn one(&self, number: u64, intended: Instant, measured: bool) -> Option<End> {
        let run = Uuid::now_v7();
        let ended = self.ledger.open(run, intended, measured);
        let request = v1::SubmitRunRequest {
            run_id: run.to_string(),
            definition_release_id: self.release_id.to_string(),
            project_id: "loadtest".to_owned(),
            input: Some(self.workload.input.clone()),
            ..Default::default()
        };
        // Each try at the next server: under its own id the run is started once, wherever it is asked for.
        let (answer, failed) = self
            .link
            .until_answered(|attempt| {
                let (mut client, request) = (self.link.run_control(number + attempt), request.clone());
                async move { client.submit_run(request).await }
            })
            .await;
        self.retries.add(&failed);
        if let Err(status) = answer {
            self.ledger.refuse(run, format!("{:?}: {}", status.code(), status.message()));
            return None;
        }
        ended.await.ok()
    }

    /// `rate` runs a second, each at its own moment, for `duration`. Gives the number that had to be left out.
    pub async fn open_loop(&self, rate: f64, duration: Duration) -> u64 {
        let start = Instant::now();
        let number = (rate * duration.as_secs_f64()).ceil() as u64;
        let mut runs = JoinSet::new();
        let mut left_out = 0;
        for n in 0..number {
            let intended = start + Duration::from_secs_f64(n as f64 / rate);
            tokio::time::sleep_until(intended.into()).await;
            while runs.try_join_next().is_some() {}
            if runs.len() >= OPEN_LOOP_IN_FLIGHT_MAX {
                left_out += 1;
                continue;
            }
            let driver = self.clone();
            runs.spawn(async move { driver.one(n, intended, true).await });
        }
        while runs.join_next().await.is_some() {}
        left_out
    }

    /// `concurrency` runs at a time until `number` were made.
    pub async fn closed_loop(&self, concurrency: usize, number: u64, measured: bool) {
        let next = Arc::new(AtomicU64::new(0));
        let mut loops = JoinSet::new();
        for _ in 0..concurrency.min(number as usize) {
            let (mut driver, next) = (self.clone(), next.clone());
            loops.spawn(async move {
                loop {
                    // Closed for good only when the test ends, and then this task is dropped.
                    if driver.gate.wait_for(|open| *open).await.is_err() {
                        return;
                    }
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= number {
                        return;
                    }
                    driver.one(n, Instant::now(), measured).await;
                }
            });
        }
        while loops.join_next().await.is_some() {}
    }
}
