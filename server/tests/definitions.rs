//! Definitions between the cluster and other services: Agent Registry, Policy Engine.
#![allow(clippy::unwrap_used)]

mod common;

use common::fakes::{FakePolicy, FakeRegistry};
use common::{ECHO, HUMAN, TestNode, code, start, start_with, worker};
use granary_proto::v1;
use serde_json::json;
use std::sync::atomic::Ordering;

async fn metric(node: &TestNode, wanted: &[&str]) -> f64 {
    let text = reqwest::get(node.url("/metrics")).await.unwrap().text().await.unwrap();
    let line = text.lines().find(|l| wanted.iter().all(|w| l.contains(w)) && !l.starts_with('#'));
    line.and_then(|l| l.rsplit(' ').next()).map_or(0.0, |n| n.parse().unwrap())
}

fn announced(release: &str) -> v1::AssetReleasePublishedMessage {
    v1::AssetReleasePublishedMessage { release_id: release.into(), ..Default::default() }
}

/// [D6] A published release is loaded from the registry, with retries, once, and runs.
#[tokio::test]
async fn a_published_release_is_loaded_through_failures_of_the_registry() {
    let registry = FakeRegistry::with("rel-1", ECHO);
    registry.failures.store(2, Ordering::SeqCst);
    let url = registry.start().await;
    let node = start_with(|config| config.agent_registry.endpoint = url).await;
    let mut engine = node.engine().await;
    let loaded = engine.asset_release_published(announced("rel-1")).await.unwrap().into_inner();
    assert!(loaded.loaded, "{loaded:?}");
    assert_eq!(registry.calls.load(Ordering::SeqCst), 3);
    assert!(engine.asset_release_published(announced("rel-1")).await.unwrap().into_inner().loaded);
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let run = node.submit("rel-1", json!(1)).await;
    node.until_state(&run.run_id, "Completed").await;
    let versions = v1::ListWorkflowDefinitionVersionsRequest { definition_id: "echo".into() };
    let versions = engine.list_workflow_definition_versions(versions).await.unwrap().into_inner().versions;
    assert_eq!(versions.len(), 1, "told twice, listed once");
}

/// [D6] A release that was never announced is fetched when a run pins it.
#[tokio::test]
async fn a_run_fetches_the_release_it_pins() {
    let url = FakeRegistry::with("rel-1", HUMAN).start().await;
    let node = start_with(|config| config.agent_registry.endpoint = url).await;
    let run = node.submit("rel-1", json!(1)).await;
    node.until_state(&run.run_id, "WaitingForHuman").await;
    let unknown = v1::SubmitRunRequest { definition_release_id: "rel-9".into(), ..Default::default() };
    assert_eq!(code(&node.runs().await.submit_run(unknown).await.unwrap_err()), "not-found");
}

/// [D5] [D6] A release whose document has another hash than announced is refused.
#[tokio::test]
async fn another_hash_than_announced_is_a_conflict() {
    let url = FakeRegistry::with("rel-1", ECHO).start().await;
    let node = start_with(|config| config.agent_registry.endpoint = url).await;
    let message = v1::AssetReleasePublishedMessage { graph_hash: "00ff".into(), ..announced("rel-1") };
    let refused = node.engine().await.asset_release_published(message).await.unwrap_err();
    assert_eq!(code(&refused), "conflict");
    assert_eq!(metric(&node, &["definition_rejections", "reason=\"hash\""]).await, 1.0);
}

/// [D6] What policy denies is not loaded, is counted, and a run that pins it fails at acceptance, saying why.
#[tokio::test]
async fn a_refused_release_fails_its_runs_at_acceptance() {
    let registry = FakeRegistry::with("rel-1", HUMAN);
    let policy = FakePolicy::default();
    "read".clone_into(&mut policy.denied.lock().unwrap());
    let (registry_url, policy_url) = (registry.start().await, policy.start().await);
    let node = start_with(|config| {
        config.agent_registry.endpoint = registry_url;
        config.policy_engine.endpoint = policy_url;
    })
    .await;
    let answer = node.engine().await.asset_release_published(announced("rel-1")).await.unwrap().into_inner();
    assert!(!answer.loaded);
    let finding = answer.findings.iter().find(|f| f.code == "policy-denied").unwrap();
    assert!(finding.message.contains("not on a Friday") && finding.message.contains("approve"), "{finding:?}");
    assert_eq!(policy.asked.lock().unwrap()[0].steps[0].action_class, "read");
    assert_eq!(metric(&node, &["definition_rejections", "reason=\"policy\"", "tenant=\"default\""]).await, 1.0);

    let run = node.submit("rel-1", json!(1)).await;
    assert_eq!(
        (run.state.as_str(), run.failure.as_ref().unwrap().class.as_str()),
        ("Failed", "policy-denied"),
        "{run:?}"
    );
    assert!(run.failure.unwrap().message.contains("not on a Friday"));
}

/// [D6] The bundled policy: the allow list of the configuration.
#[tokio::test]
async fn the_allow_list_refuses_at_load() {
    let node = start_with(|config| config.policy.action_classes = vec!["sandbox".into()]).await;
    let load = v1::LoadWorkflowDefinitionRequest { document: ECHO.into(), ..Default::default() };
    let answer = node.engine().await.load_workflow_definition(load).await.unwrap().into_inner();
    assert!(!answer.loaded);
    assert_eq!(answer.findings.last().map(|f| f.path.as_str()), Some("steps[0].actionClass"));
}

/// [D5] FR-092: the same again is the same; other content under the same release or version is a conflict; the event comes
/// once.
#[tokio::test]
async fn a_release_is_immutable() {
    let node = start().await;
    assert_eq!(node.publish(ECHO).await, node.publish(ECHO).await);
    let other = ECHO.replace("tool: echo", "tool: other");
    let load = v1::LoadWorkflowDefinitionRequest { document: other.clone(), ..Default::default() };
    let mut engine = node.engine().await;
    assert_eq!(code(&engine.load_workflow_definition(load).await.unwrap_err()), "conflict");
    let elsewhere =
        v1::LoadWorkflowDefinitionRequest { document: other, release_id: "r2".into(), ..Default::default() };
    assert_eq!(code(&engine.load_workflow_definition(elsewhere).await.unwrap_err()), "conflict");
    assert_eq!(metric(&node, &["definition_rejections", "reason=\"conflict\""]).await, 2.0);
}

/// [D4] Drafts: warnings, a release id of their own a content.
#[tokio::test]
async fn a_draft_loads_with_warnings_and_runs() {
    let node = start().await;
    let draft = |text: String| v1::LoadWorkflowDefinitionRequest { document: text, draft: true, ..Default::default() };
    let text = ECHO.replace("actionClass: read, ", "");
    let mut engine = node.engine().await;
    let first = engine.load_workflow_definition(draft(text.clone())).await.unwrap().into_inner();
    assert!(first.loaded && first.findings.iter().all(|f| f.severity == "warning"), "{first:?}");
    let second =
        engine.load_workflow_definition(draft(text.replace("tool: echo", "tool: b"))).await.unwrap().into_inner();
    let (first, second) = (first.version.unwrap().release_id, second.version.unwrap().release_id);
    assert_ne!(first, second);
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let run = node.submit(&first, json!({ "x": 1 })).await;
    node.until_state(&run.run_id, "Completed").await;
}

/// [D1] A run's input is held against the input schema, and the refusal names the place.
#[tokio::test]
async fn an_input_that_does_not_fit_the_schema_is_refused() {
    let node = start().await;
    let schema = r#"{"type":"object","required":["repo"],"properties":{"depth":{"type":"integer"}}}"#;
    let load = v1::LoadWorkflowDefinitionRequest {
        document: ECHO.replace("input: builtin:any", "input: schemas/in.json"),
        schemas: [("schemas/in.json".to_owned(), schema.to_owned())].into(),
        ..Default::default()
    };
    let loaded = node.engine().await.load_workflow_definition(load).await.unwrap().into_inner();
    assert!(loaded.loaded, "{loaded:?}");
    let submit = |input: serde_json::Value| v1::SubmitRunRequest {
        definition_id: "echo".into(),
        input: Some(granary_proto::wire::Json::of(&input)),
        ..Default::default()
    };
    let mut runs = node.runs().await;
    let refused = runs.submit_run(submit(json!({ "repo": "x", "depth": "deep" }))).await.unwrap_err();
    assert_eq!((code(&refused).as_str(), common::field(&refused).as_str()), ("invalid", "input.depth"), "{refused:?}");
    runs.submit_run(submit(json!({ "repo": "x", "depth": 2 }))).await.unwrap();
}
