//! Many runs that wait cost next to nothing: nobody looks between two facts.
#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, start_with, step};
use futures::StreamExt as _;
use granary_proto::v1;
use granary_proto::wire::Json;
use serde_json::json;

const RUNS: usize = 1_000;
/// Submissions under way at once.
const AT_ONCE: usize = 32;

/// Asks for the shortest interval there is.
const WAIT: &str = "
workflow: wait
version: 1
input: builtin:any
output: builtin:any
steps:
  - { id: seen, kind: WaitForCondition, condition: { kind: scene_contains_text, text: Inbox }, timeout: 10d, pollInterval: 100ms }
";

/// Twenty times that interval.
const NAP: &str = "
workflow: nap
version: 1
input: builtin:any
output: builtin:any
steps:
  - { id: nap, kind: Timer, delay: 2s }
";

/// [O3] [K4] A thousand runs wait with a poll interval of 100 ms, and two seconds pass: no turn is taken and nothing is committed
/// for any of them. An observation then ends the wait of its run, and no other run is touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiting_runs_take_no_turn_and_an_observation_wakes_its_run_only() {
    let node = start_with(|config| {
        // The look for lost work comes by every five minutes, and a slow machine may take so long for all of this.
        config.workflows.engine.stuck_run_seconds = 86_400;
    })
    .await;
    let (wait, nap) = (node.publish(WAIT).await, node.publish(NAP).await);
    let submit = async |_| {
        let request = v1::SubmitRunRequest { definition_release_id: wait.clone(), ..Default::default() };
        let run = node.runs().await.submit_run(request).await.unwrap().into_inner().run.unwrap();
        assert_eq!(run.engine_state, "WaitingForTimer");
        run.run_id
    };
    let runs: Vec<String> = futures::stream::iter(0..RUNS).map(submit).buffer_unordered(AT_ONCE).collect().await;

    let figures = || {
        let metrics = node.node.silo().metrics();
        (metrics.turns, metrics.commits, metrics.reminders_fired)
    };
    let before = figures();
    let napping = node.submit(&nap, json!(null)).await.run_id;
    node.until_state(&napping, "Completed").await;
    let after = figures();
    // Those of the run that napped: its submission, its reminder, and what those who watch it read.
    let (turns, commits, fired) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    assert!(turns <= 20 && commits <= 10 && fired <= 5, "{turns} turns, {commits} commits, {fired} reminders");

    let before = figures();
    let observe =
        v1::ObserveRequest { run_id: runs[0].clone(), kind: "scene".into(), value: Some(Json::of(&json!("Inbox"))) };
    node.runs().await.observe(observe).await.unwrap();
    let graph = node.until_state(&runs[0], "Completed").await;
    assert_eq!(step(&graph, "seen").state, "Succeeded");
    let after = figures();
    let (turns, commits) = (after.0 - before.0, after.1 - before.1);
    assert!(turns <= 10 && commits <= 4, "{turns} turns, {commits} commits");
    let waiting = async {
        let (mut count, mut page_token) = (0, String::new());
        loop {
            let request = v1::ListRunsRequest {
                states: vec!["WaitingForTimer".into()],
                page_size: 500,
                page_token,
                ..Default::default()
            };
            let page = node.runs().await.list_runs(request).await.unwrap().into_inner();
            count += page.runs.len();
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return count;
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, waiting).await.unwrap(), RUNS - 1);
}
