//! Runs that wait for a person who never answers: what so many cost at rest.

use crate::args::Args;
use crate::load::load_definition;
use crate::server_link::Link;
use crate::target::Target;
use anyhow::Context;
use granary_proto::v1;
use granary_proto::wire::Json;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Submissions under way at once.
const AT_ONCE: u64 = 64;
/// One try of a submission.
const CALL: Duration = Duration::from_secs(20);
/// What is left to do after the last submission, such as checkpoints, is not rest yet.
const SETTLE: Duration = Duration::from_secs(20);

const DEFINITION: &str = "workflow: loadtest-waiting\nversion: 1.0.0\ninput: anything.json\noutput: anything.json\nsteps:\n  - { id: ask, \
                          kind: Human, actionClass: read, failurePolicy: Fail }\nedges: []\n";

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub runs: u64,
    pub refused: u64,
    /// As the cluster counts them; a shard counts up to 10,000. `None` = not a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    pub grains_in_memory: Option<u64>,
    pub started_in_seconds: f64,
    pub rest_seconds: f64,
    /// Of one core, all servers together, while nothing happens.
    pub cpu_percent: f64,
    pub memory_mb: f64,
    pub memory_before_mb: f64,
    pub memory_peak_mb: f64,
}

pub async fn run(args: &Args, runs: u64) -> anyhow::Result<Waiting> {
    let mut target = Target::start(args).await?;
    let link = Link::new(&target.urls(args), args.call_timeout.unwrap_or(CALL))?;
    target.ready(&link).await?;
    let request = v1::LoadWorkflowDefinitionRequest {
        document: DEFINITION.to_owned(),
        schemas: HashMap::from([("anything.json".to_owned(), "{}".to_owned())]),
        draft: false,
        release_id: String::new(),
    };
    let release: Arc<str> = load_definition(&link, &request).await?.into();
    let before = target.usage();
    let start = Instant::now();
    let refused = tokio::time::timeout(args.deadline, submit(&link, &release, runs))
        .await
        .context("not all runs were started by the deadline")?;
    let started = start.elapsed();
    tokio::time::sleep(SETTLE).await;
    let (rest, from) = (target.usage(), Instant::now());
    tokio::time::sleep(args.rest).await;
    let (after, lasted) = (target.usage(), from.elapsed());
    let (open, grains) = count(&target, &link).await;
    target.stop().await;
    let mb = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
    Ok(Waiting {
        runs,
        refused,
        open,
        grains_in_memory: grains,
        started_in_seconds: started.as_secs_f64(),
        rest_seconds: lasted.as_secs_f64(),
        cpu_percent: 100.0 * after.cpu.saturating_sub(rest.cpu).as_secs_f64() / lasted.as_secs_f64(),
        memory_mb: mb(after.rss_bytes),
        memory_before_mb: mb(before.rss_bytes),
        memory_peak_mb: mb(after.peak_rss_bytes),
    })
}

/// Starts them all; says how many were refused.
async fn submit(link: &Link, release: &Arc<str>, runs: u64) -> u64 {
    let (next, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut hands = JoinSet::new();
    for _ in 0..AT_ONCE.min(runs) {
        let (link, release, next, refused) = (link.clone(), release.clone(), next.clone(), refused.clone());
        hands.spawn(async move {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= runs {
                    return;
                }
                let request = v1::SubmitRunRequest {
                    run_id: Uuid::now_v7().to_string(),
                    definition_release_id: release.to_string(),
                    project_id: "loadtest".to_owned(),
                    input: Some(Json::new(b"{}".to_vec())),
                    ..Default::default()
                };
                let submitted = link.until_answered(|attempt| {
                    let (mut client, request) = (link.run_control(number + attempt), request.clone());
                    async move { client.submit_run(request).await }
                });
                if let (Err(status), _) = submitted.await {
                    refused.fetch_add(1, Relaxed);
                    eprintln!("loadtest: a run was refused: {status}");
                }
            }
        });
    }
    while hands.join_next().await.is_some() {}
    refused.load(Relaxed)
}

async fn count(target: &Target, link: &Link) -> (Option<u64>, Option<u64>) {
    if !matches!(target, Target::Many(_)) {
        return (None, None);
    }
    let (status, _) = link
        .until_answered(|attempt| {
            let mut client = link.cluster(attempt);
            async move { client.get_cluster(v1::GetClusterRequest {}).await }
        })
        .await;
    let status = status.ok();
    let open = status.as_ref().map(|it| it.shards.iter().map(|shard| shard.open_runs).sum());
    (open, status.as_ref().map(|it| it.nodes.iter().map(|node| node.active_grains).sum()))
}

impl Waiting {
    pub fn is_good(&self) -> bool {
        self.refused == 0
    }

    pub fn as_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it holds only numbers")
    }

    pub fn as_text(&self) -> String {
        let mut out = String::new();
        let shown = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "waiting     {} runs started in {:.1} s, {} refused",
            self.runs, self.started_in_seconds, self.refused
        );
        let _ = writeln!(out, "open        {}, grains in memory {}", shown(self.open), shown(self.grains_in_memory));
        let _ = writeln!(out, "at rest     {:.2} % of one core over {:.0} s", self.cpu_percent, self.rest_seconds);
        let _ = writeln!(
            out,
            "memory      now {:.0} MB, before {:.0} MB, peak {:.0} MB",
            self.memory_mb, self.memory_before_mb, self.memory_peak_mb
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_run_is_not_good_and_the_figures_are_told() {
        let waiting = Waiting { runs: 9, open: Some(9), cpu_percent: 1.5, ..Waiting::default() };
        assert!(waiting.is_good());
        let text = waiting.as_text();
        assert!(
            text.contains("at rest     1.50 % of one core") && text.contains("open        9, grains in memory ?"),
            "{text}"
        );
        assert!(!Waiting { refused: 1, ..waiting }.is_good());
    }
}
