//! S1's example event by event, and the numbers of facts.

use super::*;

/// The document of S1 as printed there.
const ASSESSMENT: &str = r#"
workflow: repository-assessment
version: 2.1.0
input: schemas/assessment-input.json
output: schemas/assessment-report.json
steps:
  - id: classify
    kind: Agent
    agent: triage-agent
    failurePolicy: Retry
    maxAttempts: 2
  - id: retrieve
    kind: Tool
    tool: knowledge-search
    actionClass: read
  - id: analyse
    kind: Agent
    agent: repository-assessor
    failurePolicy: Escalate
    timeoutMinutes: 45
  - id: confident
    kind: Condition
    expression: "{ \">=\": [ { \"var\": \"analyse.confidence\" }, 0.8 ] }"
  - id: review
    kind: Human
    actionClass: shared-write
  - id: propose
    kind: Agent
    agent: change-proposer
    actionClass: shared-write
    compensation: retract-proposal
edges:
  - { from: classify, to: retrieve }
  - { from: retrieve, to: analyse }
  - { from: analyse, to: confident }
  - { from: confident, to: propose, guard: "true" }
  - { from: confident, to: review, guard: "false" }
  - { from: review, to: propose }
"#;

const LINE: &str = "
workflow: line
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo }
  - { id: b, kind: Tool, tool: echo }
edges: [ { from: a, to: b } ]
";

/// [R3] [V1] S1's sequence diagram: not confident, so a human decides.
#[test]
fn the_example_with_a_review() {
    let mut run = Run::of(ASSESSMENT);
    assert_eq!(
        run.start(r#"{"repo":"x"}"#),
        ["started", "classify Ready", r#"do classify/1 agent:triage-agent {"repo":"x"}"#]
    );
    assert_eq!(
        run.ok("classify", r#"{"kind":"lib"}"#),
        ["classify Succeeded", "retrieve Ready", r#"do retrieve/1 tool:knowledge-search {"repo":"x"}"#]
    );
    assert_eq!(run.waits("retrieve"), "worker: worker for queue tool:knowledge-search");
    assert_eq!(
        run.ok("retrieve", "[]"),
        ["retrieve Succeeded", "analyse Ready", r#"do analyse/1 agent:repository-assessor {"repo":"x"}"#]
    );
    assert_eq!(
        run.ok("analyse", r#"{"confidence":0.4}"#),
        [
            "analyse Succeeded",
            "confident Succeeded",
            "review Ready",
            r#"ask review/1 approval {"repo":"x"}"#,
            "review WaitingForHuman",
        ]
    );
    assert_eq!(run.state(), RunState::WaitingForHuman);
    assert_eq!(run.output("confident"), "false");
    assert_eq!(run.waits("review"), "human: human decision");
    assert_eq!(run.waits("propose"), "predecessors: steps before it: review");
    assert_eq!(
        run.decide("review", "approved"),
        ["review Succeeded", "propose Ready", r#"do propose/1 agent:change-proposer {"repo":"x"}"#]
    );
    assert_eq!(run.ok("propose", r#"{"url":"u"}"#), ["propose Succeeded", r#"end Completed {"url":"u"}"#]);
    assert_eq!(run.state(), RunState::Completed);
}

/// [R3] `propose` runs after `confident = true` with `review` skipped.
#[test]
fn the_example_without_a_review() {
    let mut run = Run::of(ASSESSMENT);
    run.start("{}");
    run.ok("classify", "{}");
    run.ok("retrieve", "[]");
    assert_eq!(
        run.ok("analyse", r#"{"confidence":0.9}"#),
        [
            "analyse Succeeded",
            "confident Succeeded",
            "review Skipped",
            "propose Ready",
            "do propose/1 agent:change-proposer {}"
        ]
    );
    assert_eq!(run.step("review").skipped_by, ["confident"]);
    run.ok("propose", "null");
    assert_eq!(run.state(), RunState::Completed);
}

/// [R2] [FR-003] A fact that was applied is not applied again; another number for an ended step changes nothing; another
/// content under a used number is a conflict.
#[test]
fn a_repeated_fact_changes_nothing() {
    let mut run = Run::of(LINE);
    run.start("{}");
    let (a, _) = run.order("a");
    let ok = outcome(a, 1, OutcomeKind::Succeeded);
    let first = Input::AttemptOutcomeRecorded { sequence: 2, outcome: ok.clone() };
    run.tell(first.clone()).expect("applied");
    let rows = run.rows.clone();
    for _ in 0..5 {
        assert_eq!(run.tell(first.clone()), Ok(vec![]));
        assert_eq!(run.p.note(), &Note::Repeated);
    }
    assert_eq!(run.rows, rows);

    let failed = outcome(a, 1, OutcomeKind::Failed);
    assert_eq!(
        run.tell(Input::AttemptOutcomeRecorded { sequence: 2, outcome: failed }),
        Err(Refusal::OtherContent { sequence: 2 })
    );
    assert_eq!(run.tell(Input::AttemptOutcomeRecorded { sequence: 3, outcome: ok }), Ok(vec![]));
    assert!(run.superseded(), "{:?}", run.p.note());
    assert_eq!(run.p.last_outcome_sequence(), 3, "its number is used up, or the next fact could never come");
    run.ok("b", "1");
    assert_eq!(run.state(), RunState::Completed);
}

/// [R2] Without digests (the bundled journal has the facts) only the last one is compared.
#[test]
fn without_digests_the_last_fact_is_still_compared() {
    let mut run = Run::of(LINE);
    run.options.keep_fact_digests = false;
    run.start("{}");
    run.ok("a", "1");
    assert!(!run.rows.keys().any(|key| key.table == crate::kinds::methods::run::table::FACTS));
    let (b, _) = run.order("b");
    let other = Input::AttemptOutcomeRecorded { sequence: 2, outcome: outcome(b, 1, OutcomeKind::Failed) };
    assert_eq!(run.tell(other), Err(Refusal::OtherContent { sequence: 2 }));
    assert_eq!(run.tell(Input::RunAccepted { sequence: 1, accepted: accepted("{}", "") }), Ok(vec![]));
}

/// [R2] A gap is named with the number that is expected.
#[test]
fn a_gap_is_refused() {
    let mut run = Run::of(LINE);
    let cancel = |sequence| Input::RunCancelled { sequence, reason: String::new() };
    assert_eq!(run.tell(cancel(2)), Err(Refusal::Gap { expected: 1, found: 2 }));
    assert!(matches!(run.tell(cancel(1)), Err(Refusal::DoesNotFit { code: "not-accepted", .. })));
    run.start("{}");
    assert_eq!(run.tell(cancel(4)), Err(Refusal::Gap { expected: 2, found: 4 }));
    assert_eq!(run.tell(cancel(0)), Err(Refusal::Gap { expected: 2, found: 0 }));
    let again = Input::RunAccepted { sequence: 2, accepted: accepted("{}", "") };
    assert!(matches!(run.tell(again), Err(Refusal::DoesNotFit { code: "already-accepted", .. })));
}

#[test]
fn a_step_run_of_another_run_is_refused() {
    let mut run = Run::of(LINE);
    run.start("{}");
    let stranger = outcome(Uuid::from_u128(7), 1, OutcomeKind::Succeeded);
    let refused = run.tell(Input::AttemptOutcomeRecorded { sequence: 2, outcome: stranger });
    assert!(matches!(refused, Err(Refusal::DoesNotFit { code: "unknown-step-run", .. })), "{refused:?}");
}

/// [R12] [FR-117] Nothing is applied behind the end, and no timer is left that could bring it back; what was applied is still known.
#[test]
fn a_fact_behind_the_end_is_refused() {
    let mut run = Run::of(LINE);
    run.start("{}");
    let (a, _) = run.order("a");
    run.ok("a", "1");
    run.ok("b", "2");
    let late = Input::AttemptOutcomeRecorded { sequence: 4, outcome: outcome(a, 1, OutcomeKind::Succeeded) };
    assert!(matches!(run.tell(late), Err(Refusal::DoesNotFit { code: "already-terminal", .. })));
    assert_eq!(run.tell(Input::RunAccepted { sequence: 1, accepted: accepted("{}", "") }), Ok(vec![]));
    assert_eq!(run.at(1_000_000_000), [""; 0]);
    assert_eq!(run.check_stuck(&[]), [""; 0]);
}

/// [D6] A run whose release is refused fails at acceptance, saying why; no plan is needed for it, then or later.
#[test]
fn a_refused_release_fails_the_run_at_once() {
    let mut p = Projection::new("acme", RUN);
    let refusal = Some(failure("policy-denied"));
    let accepted = Accepted { refusal, ..accepted("{}", "") };
    let input = Input::RunAccepted { sequence: 1, accepted };
    let effects = p.decide(None, &EngineOptions::default(), Timestamp(T0), input).expect("applied");
    assert!(matches!(&effects[..], [Effect::Publish(_), Effect::RunEnded(RunEnd::Failed { failure, .. })]
        if failure.class == "policy-denied"));
    let loaded = Projection::load("acme", RUN, p.take_changes().puts, None).expect("its rows");
    assert_eq!(loaded.graph(None, "", 0), p.graph(None, "", 0));
    assert_eq!(loaded.state(), RunState::Failed);
}

/// [R1] What S1's tables have is in the graph.
#[test]
fn the_graph_has_the_fields_of_the_documents() {
    let mut run = Run::of(LINE);
    run.start(r#"{"n":1}"#);
    let (a, _) = run.order("a");
    let attempt = Uuid::from_u128(9);
    run.tell(Input::StepTaken { step_run_id: a, attempt_id: Some(attempt), approval_id: None }).expect("known");
    let with_reference = Outcome {
        output: b"{}".to_vec(),
        output_ref: "artifact:1".into(),
        attempt_id: Some(attempt),
        ..outcome(a, 1, OutcomeKind::Succeeded)
    };
    run.now += 5;
    run.outcome(with_reference);
    let graph = run.graph();
    assert_eq!((graph.run_id.as_str(), graph.tenant_id.as_str()), (RUN.to_string().as_str(), "acme"));
    assert_eq!((graph.project_id.as_str(), graph.definition_release_id.as_str()), ("project", "release"));
    assert_eq!((graph.active_step_runs, graph.last_outcome_sequence), (1, 2));
    assert_eq!(graph.edges.len(), 1);
    let a = run.step("a");
    assert_eq!(a.attempt_ids, [attempt.to_string()]);
    assert_eq!((a.output_ref.as_str(), a.iteration, a.attempt), ("artifact:1", 1, 1));
    assert_eq!(a.started_at.expect("started").millis() + 5, a.ended_at.expect("ended").millis());
    let planned = run.p.plan_next(&run.plan);
    assert_eq!(planned.len(), 1);
    assert_eq!((planned[0].step_id.as_str(), planned[0].queue.as_str(), planned[0].attempt), ("b", "tool:echo", 1));
    assert_eq!(planned[0].input.as_ref().expect("an input").text, br#"{"n":1}"#);
}

#[test]
fn the_graph_comes_in_pages() {
    let mut run = Run::of(LINE);
    run.start("{}");
    run.ok("a", "1");
    let first = run.p.graph(Some(&run.plan), "", 1);
    assert_eq!((first.step_runs.len(), first.next_page_token.as_str()), (1, "1"));
    let second = run.p.graph(Some(&run.plan), "1", 1);
    assert_eq!((second.step_runs.len(), second.next_page_token.as_str()), (1, ""));
    assert_eq!(second.step_runs[0].step_id, "b");
}

#[test]
fn inputs_are_mapped_from_what_is_recorded() {
    let mut run = Run::of(
        "
workflow: mapped
version: '1'
variables: { region: eu, depth: 1 }
steps:
  - { id: a, kind: Tool, tool: echo }
  - id: b
    kind: Tool
    tool: echo
    inputMapping: { score: { var: a.score }, who: { var: input.who }, region: { var: vars.region }, none: { var: a.absent } }
edges: [ { from: a, to: b } ]
",
    );
    run.start_with(r#"{"who":"me"}"#, r#"{"region":"us"}"#);
    let lines = run.ok("a", r#"{"score":0.5}"#);
    let order = lines.last().expect("an order").strip_prefix("do b/1 tool:echo ").expect("of b");
    let input: serde_json::Value = serde_json::from_str(order).expect("JSON");
    assert_eq!(input, serde_json::json!({ "score": 0.5, "who": "me", "region": "us", "none": null }));
}

#[test]
fn variables_that_are_no_object_fail_the_run() {
    let mut run = Run::of(LINE);
    assert_eq!(run.start_with("{}", "[1]"), ["started", "end Failed  mapping"]);
}

/// Rows that cannot be this run's are refused, not guessed at.
#[test]
fn rows_that_do_not_belong_together_are_corrupt() {
    let mut run = Run::of(LINE);
    run.start("{}");
    let rows: Vec<Row> = run.rows.values().cloned().collect();
    let load = |rows: Vec<Row>| Projection::load("acme", RUN, rows, Some(&run.plan)).err();
    assert_eq!(load(rows.clone()), None);
    for at in 0..rows.len() {
        let mut broken = rows.clone();
        broken[at].value = vec![0xff, 0xff, 0xff];
        assert!(load(broken).is_some(), "row {at}");
    }
    let without_first: Vec<Row> = {
        run.ok("a", "1");
        let is_first =
            |key: &RowKey| key.table == crate::kinds::methods::run::table::STEP_RUNS && key.key == [0, 0, 0, 0];
        run.rows.values().filter(|row| !is_first(&row.key)).cloned().collect()
    };
    assert!(Projection::load("acme", RUN, without_first, Some(&run.plan)).is_err());
}
