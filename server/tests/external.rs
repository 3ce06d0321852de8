//! `runControl: external`: the engine follows the facts of another Run Control.
#![allow(clippy::unwrap_used)]

mod common;

use common::fakes::FakeJournal;
use common::{TestNode, code, start_with, step};
use granary::config::RunControlMode;
use granary_proto::v1;
use granary_proto::wire::Json;
use serde_json::json;
use tonic::Code;

/// S1's example, completed so that it publishes.
const ASSESSMENT: &str = r#"
workflow: repository-assessment
version: 2.1.0
input: builtin:any
output: builtin:any
steps:
  - { id: classify, kind: Agent, agent: triage-agent, actionClass: read, failurePolicy: Retry, maxAttempts: 2 }
  - { id: retrieve, kind: Tool, tool: knowledge-search, actionClass: read, failurePolicy: Fail }
  - { id: analyse, kind: Agent, agent: repository-assessor, actionClass: read, failurePolicy: Escalate, timeoutMinutes: 45 }
  - id: confident
    kind: Condition
    expression: "{ \">=\": [ { \"var\": \"analyse.confidence\" }, 0.8 ] }"
  - { id: review, kind: Human, actionClass: shared-write, failurePolicy: Fail }
  - { id: propose, kind: Agent, agent: change-proposer, actionClass: shared-write, failurePolicy: Compensate, compensation: retract }
  - { id: retract, kind: Compensation, tool: retract-proposal, actionClass: shared-write }
edges:
  - { from: classify, to: retrieve }
  - { from: retrieve, to: analyse }
  - { from: analyse, to: confident }
  - { from: confident, to: propose, guard: "true" }
  - { from: confident, to: review, guard: "false" }
  - { from: review, to: propose }
"#;

async fn external(journal: &str) -> TestNode {
    start_with(|config| {
        config.run_control = RunControlMode::External;
        config.run_control_journal.endpoint = journal.to_owned();
    })
    .await
}

fn accepted(run_id: &str, release: &str) -> v1::RunAcceptedMessage {
    v1::RunAcceptedMessage {
        run_id: run_id.to_owned(),
        sequence: 1,
        definition_release_id: release.to_owned(),
        input: Some(Json::of(&json!({ "repository": "x" }))),
        ..Default::default()
    }
}

fn outcome(
    run_id: &str,
    sequence: u64,
    step: &v1::StepRun,
    output: serde_json::Value,
) -> v1::AttemptOutcomeRecordedMessage {
    v1::AttemptOutcomeRecordedMessage {
        run_id: run_id.to_owned(),
        sequence,
        step_run_id: step.step_run_id.clone(),
        attempt: step.attempt,
        outcome: "Succeeded".into(),
        output: Some(Json::of(&output)),
        ..Default::default()
    }
}

async fn graph(node: &TestNode, run_id: &str) -> v1::RunGraph {
    let ask = v1::GetRunGraphRequest { run_id: run_id.to_owned(), ..Default::default() };
    node.engine().await.get_run_graph(ask).await.unwrap().into_inner()
}

/// [V3] [R2] [R3] [R13] S1's sequence diagram, event by event.
#[tokio::test]
async fn the_sequence_diagram_of_the_engine_plays_event_by_event() {
    let node = external("").await;
    let release = node.publish(ASSESSMENT).await;
    let mut engine = node.engine().await;
    let run = uuid::Uuid::now_v7().to_string();
    let mut planned = Vec::new();
    let plan = async |planned: &mut Vec<String>, last: u64| {
        let ask = v1::PlanNextStepsRequest { run_id: run.clone(), last_outcome_sequence: last };
        let next = node.engine().await.plan_next_steps(ask).await.unwrap().into_inner();
        planned.extend(next.steps.iter().map(|s| s.step_id.clone()));
        next
    };

    let advanced = engine.run_accepted(accepted(&run, &release)).await.unwrap().into_inner();
    assert_eq!((advanced.last_outcome_sequence, advanced.state.as_str(), advanced.repeated), (1, "Running", false));
    plan(&mut planned, 1).await;
    let mut sequence = 1;
    for (id, output) in [
        ("classify", json!({ "language": "rust" })),
        ("retrieve", json!({ "found": 3 })),
        ("analyse", json!({ "confidence": 0.5 })),
    ] {
        sequence += 1;
        let fact = outcome(&run, sequence, step(&graph(&node, &run).await, id), output);
        engine.attempt_outcome_recorded(fact.clone()).await.unwrap();
        // Seen before: the same answer and no effect.
        let again = engine.attempt_outcome_recorded(fact.clone()).await.unwrap().into_inner();
        assert_eq!((again.last_outcome_sequence, again.repeated), (sequence, true), "{id}");
        // The same number with other content: conflict and no effect.
        let other = v1::AttemptOutcomeRecordedMessage { output: Some(Json::new("7")), ..fact };
        assert_eq!(code(&engine.attempt_outcome_recorded(other).await.unwrap_err()), "conflict", "{id}");
        plan(&mut planned, sequence).await;
    }
    let waiting = graph(&node, &run).await;
    assert_eq!((waiting.state.as_str(), waiting.last_outcome_sequence), ("WaitingForHuman", 4));
    let review = step(&waiting, "review");
    let decided = v1::ApprovalDecidedMessage {
        run_id: run.clone(),
        sequence: 5,
        step_run_id: review.step_run_id.clone(),
        decision: "approved".into(),
        proposal_version: 1,
        decided_by: "ada".into(),
        ..Default::default()
    };
    engine.approval_decided(decided).await.unwrap();
    let next = plan(&mut planned, 5).await;
    assert_eq!(next.steps.iter().map(|s| s.action_class.as_str()).collect::<Vec<_>>(), ["shared-write"]);
    let fact = outcome(&run, 6, step(&graph(&node, &run).await, "propose"), json!({ "report": "r" }));
    let done = engine.attempt_outcome_recorded(fact).await.unwrap().into_inner();
    assert_eq!((done.state.as_str(), done.last_outcome_sequence), ("Completed", 6));
    planned.dedup();
    assert_eq!(planned, ["classify", "retrieve", "analyse", "review", "propose"]);

    let listed = node.runs().await.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner();
    assert_eq!(
        listed.runs.iter().map(|r| (r.run_id.as_str(), r.state.as_str())).collect::<Vec<_>>(),
        [(run.as_str(), "Completed")]
    );
}

/// [R2] A gap is filled from Run Control's journal; if that fails, the refusal names the number that was expected.
#[tokio::test]
async fn missing_facts_are_read_from_the_journal() {
    let journal = FakeJournal::default();
    let node = external(&journal.start().await).await;
    let release = node.publish(ASSESSMENT).await;
    let mut engine = node.engine().await;
    let run = uuid::Uuid::now_v7().to_string();
    engine.run_accepted(accepted(&run, &release)).await.unwrap();
    let classify = step(&graph(&node, &run).await, "classify").clone();
    let entry = |sequence: u64, of: &v1::StepRun, output: &str| v1::JournalEntry {
        number: sequence + 10,
        sequence,
        r#type: "AttemptOutcomeRecorded".into(),
        step_run_id: of.step_run_id.clone(),
        attempt: 1,
        outcome: "Succeeded".into(),
        data: Some(Json::new(output)),
        ..Default::default()
    };
    // What the engine will make next follows from what it made before, so a second run tells the ids.
    let shadow = external("").await;
    shadow.publish(ASSESSMENT).await;
    let mut other = shadow.engine().await;
    other.run_accepted(accepted(&run, &release)).await.unwrap();
    other.attempt_outcome_recorded(outcome(&run, 2, &classify, json!(1))).await.unwrap();
    let retrieve = step(&graph(&shadow, &run).await, "retrieve").clone();
    other.attempt_outcome_recorded(outcome(&run, 3, &retrieve, json!(2))).await.unwrap();
    let analyse = step(&graph(&shadow, &run).await, "analyse").clone();

    let late = outcome(&run, 4, &analyse, json!({ "confidence": 0.9 }));
    *journal.down.lock().unwrap() = true;
    let refused = engine.attempt_outcome_recorded(late.clone()).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused).as_str()), (Code::Aborted, "gap"));
    assert!(refused.message().contains('2') && refused.message().contains("journal"), "{refused:?}");
    assert_eq!(graph(&node, &run).await.last_outcome_sequence, 1, "nothing changed");

    *journal.down.lock().unwrap() = false;
    *journal.facts.lock().unwrap() = vec![entry(2, &classify, "1"), entry(3, &retrieve, "2")];
    let advanced = engine.attempt_outcome_recorded(late).await.unwrap().into_inner();
    assert_eq!(advanced.last_outcome_sequence, 4);
    let graph = graph(&node, &run).await;
    assert_eq!(step(&graph, "propose").state, "Ready", "{graph:#?}");
}

/// [R12] [V3] A cancelled run is closed; what the bundled authority offers is refused in this mode, and the other way round.
#[tokio::test]
async fn a_cancelled_run_is_closed_and_the_modes_do_not_mix() {
    let node = external("").await;
    let release = node.publish(ASSESSMENT).await;
    let mut engine = node.engine().await;
    let run = uuid::Uuid::now_v7().to_string();
    engine.run_accepted(accepted(&run, &release)).await.unwrap();
    let cancelled =
        v1::RunCancelledMessage { run_id: run.clone(), sequence: 2, reason: "enough".into(), ..Default::default() };
    let advanced = engine.run_cancelled(cancelled).await.unwrap().into_inner();
    assert_eq!(advanced.state, "Cancelled");
    let submit = v1::SubmitRunRequest { definition_release_id: release.clone(), ..Default::default() };
    assert_eq!(code(&node.runs().await.submit_run(submit).await.unwrap_err()), "wrong-state");

    let bundled = common::start().await;
    let refused = bundled.engine().await.run_accepted(accepted(&run, &release)).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused).as_str()), (Code::FailedPrecondition, "wrong-state"));
}

/// Bad facts are refused at the edge, by field.
#[tokio::test]
async fn malformed_facts_name_their_field() {
    let node = external("").await;
    let mut engine = node.engine().await;
    let run = uuid::Uuid::now_v7().to_string();
    let cases = [
        (v1::RunAcceptedMessage { run_id: "7".into(), ..accepted(&run, "a@1") }, "runId"),
        (v1::RunAcceptedMessage { sequence: 0, ..accepted(&run, "a@1") }, "sequence"),
        (accepted(&run, ""), "definitionReleaseId"),
        (v1::RunAcceptedMessage { input: Some(Json::new("{")), ..accepted(&run, "a@1") }, "input"),
        (v1::RunAcceptedMessage { variables: Some(Json::new("[]")), ..accepted(&run, "a@1") }, "variables"),
    ];
    for (message, wanted) in cases {
        let refused = engine.run_accepted(message).await.unwrap_err();
        assert_eq!((refused.code(), common::field(&refused).as_str()), (Code::InvalidArgument, wanted), "{refused:?}");
    }
}

const WAIT: &str = "
workflow: wait
version: 1
input: builtin:any
output: builtin:any
steps:
  - { id: seen, kind: WaitForCondition, condition: { kind: scene_contains_text, text: Inbox }, timeout: 1h }
  - { id: full, kind: WaitForCondition, condition: { kind: world_variable_equals, variable: unread, value: 3 }, timeout: 1h }
";

fn observed(run_id: &str, sequence: u64, kind: &str, value: serde_json::Value) -> v1::ObservedMessage {
    v1::ObservedMessage {
        run_id: run_id.to_owned(),
        sequence,
        kind: kind.to_owned(),
        value: Some(Json::of(&value)),
        observed_by: "camera".into(),
        ..Default::default()
    }
}

/// [O3] [V3] [R2] [R14] What was seen is a fact with a number; one that got lost is read from the journal, and from there the
/// projection is built again.
#[tokio::test]
async fn observations_come_as_facts() {
    let journal = FakeJournal::default();
    let node = external(&journal.start().await).await;
    let release = node.publish(WAIT).await;
    let mut engine = node.engine().await;
    let run = uuid::Uuid::now_v7().to_string();
    engine.run_accepted(accepted(&run, &release)).await.unwrap();
    for (message, field) in [
        (observed("7", 2, "scene", json!(1)), "runId"),
        (observed(&run, 0, "scene", json!(1)), "sequence"),
        (observed(&run, 2, "smell", json!(1)), "kind"),
        (observed(&run, 2, "world", json!(1)), "value"),
        (v1::ObservedMessage { attempt_id: "7".into(), ..observed(&run, 2, "scene", json!(1)) }, "attemptId"),
    ] {
        let refused = engine.observed(message).await.unwrap_err();
        assert_eq!((refused.code(), common::field(&refused).as_str()), (Code::InvalidArgument, field), "{refused:?}");
    }
    // The scene got lost on its way. The journal's clock is this machine's.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let at = granary_proto::wire::Timestamp::from_millis(i64::try_from(now).unwrap());
    let entry = |number: u64, kind: &str| v1::JournalEntry {
        number,
        sequence: number,
        r#type: kind.to_owned(),
        at: Some(at),
        ..Default::default()
    };
    *journal.facts.lock().unwrap() = vec![
        v1::JournalEntry {
            data: Some(Json::of(&json!({ "definitionReleaseId": release, "input": { "repository": "x" } }))),
            ..entry(1, "RunAccepted")
        },
        v1::JournalEntry {
            text: "scene".into(),
            data: Some(Json::of(&json!({ "title": "Inbox" }))),
            by: "camera".into(),
            ..entry(2, "Observed")
        },
    ];
    let advanced = engine.observed(observed(&run, 3, "world", json!({ "unread": 2 }))).await.unwrap().into_inner();
    assert_eq!((advanced.last_outcome_sequence, advanced.state.as_str()), (3, "WaitingForTimer"));
    let shown = graph(&node, &run).await;
    assert_eq!(
        (step(&shown, "seen").state.as_str(), step(&shown, "full").state.as_str()),
        ("Succeeded", "WaitingForTimer")
    );

    let again = engine.observed(observed(&run, 3, "world", json!({ "unread": 2 }))).await.unwrap().into_inner();
    assert!(again.repeated);
    let told = v1::JournalEntry {
        text: "world".into(),
        data: Some(Json::of(&json!({ "unread": 2 }))),
        by: "camera".into(),
        ..entry(3, "Observed")
    };
    journal.facts.lock().unwrap().push(told);
    let built = engine.reproject(v1::ReprojectRequest { run_id: run.clone() }).await.unwrap().into_inner();
    assert_eq!((built.last_outcome_sequence, step(&built, "full").state.as_str()), (3, "WaitingForTimer"));
    let done = engine.observed(observed(&run, 4, "world", json!({ "unread": 3 }))).await.unwrap().into_inner();
    assert_eq!((done.state.as_str(), done.last_outcome_sequence), ("Completed", 4));

    let bundled = common::start().await;
    let refused = bundled.engine().await.observed(observed(&run, 2, "scene", json!(1))).await.unwrap_err();
    assert_eq!(code(&refused), "wrong-state");
}
