//! Runs started on a schedule, whatever the cluster does.

use super::client::{Clients, passes, timed};
use super::definitions::{KINDS, Kind};
use super::pace::Pace;
use anyhow::{Context, Result, ensure};
use granary_proto::v1::{self, run_control_client::RunControlClient, workflow_engine_client::WorkflowEngineClient};
use granary_proto::wire::Json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

/// Submissions that may lie unanswered; more are left out and said so.
const IN_FLIGHT_MAX: usize = 5_000;

/// A look that is not answered says nothing.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What became of one submission.
#[derive(Clone, Debug)]
pub struct Started {
    pub run_id: Uuid,
    pub kind: Kind,
    /// From the intended moment to the acknowledgement; `None`: never acknowledged.
    pub acknowledged: Option<Duration>,
    /// Tries that failed before.
    pub failed: u32,
    /// The last word, if it was not acknowledged.
    pub refusal: Option<String>,
    /// What was wrong with the first look at it, at another node.
    pub read_back: Option<String>,
}

/// Loads the definitions, at any node.
///
/// # Errors
/// One is refused.
pub async fn publish(clients: &Clients, kinds: &[Kind], patience: Duration) -> Result<()> {
    for kind in kinds {
        let request = v1::LoadWorkflowDefinitionRequest { document: kind.document(), ..Default::default() };
        let answer = clients.persist(0, patience, |channel| {
            let request = timed(request.clone());
            async move { WorkflowEngineClient::new(channel).load_workflow_definition(request).await }
        });
        let loaded = answer.await.result.with_context(|| format!("load {}", kind.definition_id()))?;
        ensure!(loaded.loaded, "{}: {:?}", kind.definition_id(), loaded.findings);
    }
    Ok(())
}

/// A load that goes on until it is stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    work: JoinHandle<Vec<Started>>,
}

impl Load {
    /// `rate` runs a second of all kinds in turn, each at the next node. A submission is given up after `patience`.
    pub fn start(clients: Clients, rate: f64, patience: Duration, pace: Pace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let work = tokio::spawn(open_loop(clients, rate, patience, pace, stop.clone()));
        Self { stop, work }
    }

    /// Starts no more, waits for the answers of those under way.
    ///
    /// # Errors
    /// The load itself broke.
    pub async fn stop(self) -> Result<Vec<Started>> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.work.await?)
    }
}

async fn open_loop(clients: Clients, rate: f64, patience: Duration, pace: Pace, stop: Arc<AtomicBool>) -> Vec<Started> {
    let start = Instant::now();
    let mut submissions = JoinSet::new();
    let mut started = Vec::new();
    for n in 0_u32.. {
        let intended = start + Duration::from_secs_f64(f64::from(n) / rate);
        tokio::time::sleep_until(intended.into()).await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        while let Some(done) = submissions.try_join_next() {
            started.extend(done);
        }
        if submissions.len() >= IN_FLIGHT_MAX {
            continue;
        }
        let kind = KINDS[n as usize % KINDS.len()];
        // Not the kind's own stride, or each kind would have its node.
        let node = n as usize / KINDS.len() + n as usize;
        let (clients, pace) = (clients.clone(), pace.clone());
        submissions.spawn(async move {
            let done = submit(&clients, node, kind, intended, patience).await;
            if done.acknowledged.is_some() {
                pace.sign();
            }
            done
        });
    }
    while let Some(done) = submissions.join_next().await {
        started.extend(done);
    }
    started
}

/// One submission under an id of our own, until it is answered.
pub async fn submit(clients: &Clients, node: usize, kind: Kind, intended: Instant, patience: Duration) -> Started {
    let run_id = Uuid::now_v7();
    let request = v1::SubmitRunRequest {
        run_id: run_id.to_string(),
        definition_id: kind.definition_id(),
        project_id: "chaos".to_owned(),
        input: Some(Json::new(kind.input().as_bytes().to_vec())),
        ..Default::default()
    };
    let answer = clients.persist(node, patience, |channel| {
        let request = timed(request.clone());
        async move { RunControlClient::new(channel).submit_run(request).await }
    });
    let answer = answer.await;
    let refusal = answer.result.as_ref().err().map(|status| format!("{:?}: {}", status.code(), status.message()));
    let acknowledged = refusal.is_none().then(|| intended.elapsed());
    let read_back = if acknowledged.is_some() { read_back(clients, node + 1, run_id).await } else { None };
    Started { run_id, kind, acknowledged, failed: answer.failed, refusal, read_back }
}

/// One look, without a retry, at another node than the one that took it: it may pass, but it may not be unknown.
async fn read_back(clients: &Clients, node: usize, run_id: Uuid) -> Option<String> {
    let request = timed(v1::GetRunRequest { run_id: run_id.to_string() });
    let look = async { clients.run_control(node).get_run(request).await };
    match tokio::time::timeout(LOOK_MAX, look).await {
        Ok(Err(status)) if !passes(&status) => Some(format!("{:?}: {}", status.code(), status.message())),
        _ => None,
    }
}
