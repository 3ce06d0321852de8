//! Run Control is outside: S1's sequence diagram, event by event, and its numbers.

use crate::plans::{agent, child, condition, flow, human, timer, tool};
use crate::world::{START, World, run_id};
use grain_contract::{Code, GrainId, Message, Rejection, Timestamp};
use grains::definition::{FailurePolicy, Guard};
use grains::kinds::RunMode;
use grains::kinds::methods::{index, run};
use granary_proto::calls::ExternalFact;
use granary_proto::calls::external_fact::Fact;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use serde_json::json;

/// S1's example.
fn world() -> (World, GrainId) {
    let plan = flow("repository-assessment")
        .step_with("classify", agent("triage-agent"), |s| {
            s.failure_policy = FailurePolicy::Retry;
            s.max_attempts = 2;
        })
        .step("retrieve", tool("knowledge-search"))
        .step_with("analyse", agent("repository-assessor"), |s| s.failure_policy = FailurePolicy::Escalate)
        .step("confident", condition(json!({">=": [{"var": "analyse.confidence"}, 0.8]})))
        .step("review", human())
        .step_with("propose", agent("change-proposer"), |s| s.action_class = "shared-write".into())
        .edge("classify", "retrieve")
        .edge("retrieve", "analyse")
        .edge("analyse", "confident")
        .guarded("confident", "propose", Guard::IsTrue)
        .guarded("confident", "review", Guard::IsFalse)
        .edge("review", "propose")
        .plan();
    (World::new(RunMode::External).knows(plan), run_id(1))
}

pub fn accepted(run: &GrainId, sequence: u64) -> Fact {
    Fact::Accepted(v1::RunAcceptedMessage {
        run_id: run.key.to_string(),
        sequence,
        project_id: "p".into(),
        definition_release_id: "repository-assessment@1".into(),
        input: Some(Json::new(r#"{"repository":"granary"}"#)),
        ..Default::default()
    })
}

pub fn send(world: &mut World, run: &GrainId, facts: Vec<Fact>) -> Result<v1::Advanced, Rejection> {
    let facts = facts.into_iter().map(|fact| ExternalFact { fact: Some(fact) }).collect();
    world.call(run, run::FACTS, &calls::ExternalFacts { facts })
}

/// Step run and attempt that the last StepReady of a step asks for.
fn asked(world: &World, step: &str) -> v1::StepReady {
    let ready = |e: &v1::Event| match &e.payload {
        Some(v1::event::Payload::StepReady(ready)) if ready.step_id == step => Some(ready.clone()),
        _ => None,
    };
    world.events.iter().rev().find_map(ready).unwrap_or_else(|| panic!("{step} is ready"))
}

pub fn outcome(world: &World, run: &GrainId, sequence: u64, step: &str, outcome: &str, output: &str) -> Fact {
    let ready = asked(world, step);
    Fact::Outcome(v1::AttemptOutcomeRecordedMessage {
        run_id: run.key.to_string(),
        sequence,
        step_run_id: ready.step_run_id,
        attempt: ready.attempt,
        outcome: outcome.into(),
        output: (!output.is_empty()).then(|| Json::new(output)),
        ..Default::default()
    })
}

fn decision(world: &World, run: &GrainId, sequence: u64) -> Fact {
    Fact::Decision(v1::ApprovalDecidedMessage {
        run_id: run.key.to_string(),
        sequence,
        step_run_id: asked(world, "review").step_run_id,
        decision: "approved".into(),
        proposal_version: 1,
        decided_by: "ann".into(),
        ..Default::default()
    })
}

/// [R2] [V1] S1's sequence diagram, event by event.
#[test]
fn the_sequence_of_s1() {
    let (mut world, run) = world();
    let mut seen = 0;
    let mut news = |world: &World| {
        let all = world.published(&run_id(1));
        let new = all[seen..].to_vec();
        seen = all.len();
        new
    };
    let advanced = send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    assert_eq!((advanced.last_outcome_sequence, advanced.state.as_str(), advanced.repeated), (1, "Running", false));
    assert_eq!(news(&world), ["started", "classify Ready", "ready classify 1"]);
    let fact = outcome(&world, &run, 2, "classify", "Succeeded", "{}");
    send(&mut world, &run, vec![fact]).expect("applied");
    assert_eq!(news(&world), ["classify Succeeded", "retrieve Ready", "ready retrieve 1"]);
    let fact = outcome(&world, &run, 3, "retrieve", "Succeeded", "{}");
    send(&mut world, &run, vec![fact]).expect("applied");
    assert_eq!(news(&world), ["retrieve Succeeded", "analyse Ready", "ready analyse 1"]);
    let fact = outcome(&world, &run, 4, "analyse", "Succeeded", r#"{"confidence":0.5}"#);
    let advanced = send(&mut world, &run, vec![fact]).expect("applied");
    assert_eq!(advanced.state, "WaitingForHuman");
    let told = news(&world);
    assert_eq!(told.first().map(String::as_str), Some("analyse Succeeded"));
    assert!(
        told.contains(&"confident Succeeded".to_owned()) && told.contains(&"ask review approval 1".to_owned()),
        "{told:?}"
    );
    let fact = decision(&world, &run, 5);
    send(&mut world, &run, vec![fact]).expect("applied");
    assert_eq!(news(&world), ["review Succeeded", "propose Ready", "ready propose 1"]);
    assert_eq!(asked(&world, "propose").action_class, "shared-write");
    let fact = outcome(&world, &run, 6, "propose", "Succeeded", r#"{"done":true}"#);
    let advanced = send(&mut world, &run, vec![fact]).expect("applied");
    assert_eq!(advanced.state, "Completed");
    assert_eq!(news(&world), ["propose Succeeded", "completed"]);
    assert!(world.index_of(index::OPEN_RUNS).is_empty() && world.index_of(index::RUNS).len() == 1);
    assert!(world.stored[&run].reminders.is_empty());
    let shown = world.get(&run).expect("the run");
    assert_eq!((shown.state.as_str(), shown.definition_id.as_str()), ("Completed", "repository-assessment"));
}

/// [R2] Seen before: the same answer. The same number with other content: conflict. A gap: the number that is expected.
#[test]
fn numbers_are_applied_once_in_order() {
    let (mut world, run) = world();
    let gap = send(&mut world, &run, vec![accepted(&run, 2)]).expect_err("a gap");
    assert_eq!((gap.code, gap.message.contains("fact 1")), (Code::Gap, true), "{gap}");
    assert!(world.stored.get(&run).is_none_or(|s| s.rows.is_empty()));
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let before = (world.stored.clone(), world.events.len());
    let again = send(&mut world, &run, vec![accepted(&run, 1)]).expect("the same");
    assert_eq!((again.repeated, again.last_outcome_sequence), (true, 1));
    let other = outcome(&world, &run, 1, "classify", "Succeeded", "{}");
    assert_eq!(send(&mut world, &run, vec![other]).expect_err("other content").code, Code::Conflict);
    let ahead = outcome(&world, &run, 3, "classify", "Succeeded", "{}");
    let gap = send(&mut world, &run, vec![ahead]).expect_err("a gap");
    assert_eq!((gap.code, gap.message.contains("fact 2")), (Code::Gap, true), "{gap}");
    assert_eq!((world.stored.clone(), world.events.len()), before);
}

/// [R2] A gap is filled by sending the missing facts with the one at hand; what was applied before is passed over.
#[test]
fn a_gap_is_filled_in_one_turn() {
    let (mut world, run) = world();
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let classify = outcome(&world, &run, 2, "classify", "Succeeded", "{}");
    let turns = world.turns.len();
    let facts = vec![accepted(&run, 1), classify.clone()];
    let advanced = send(&mut world, &run, facts).expect("filled");
    assert_eq!((advanced.last_outcome_sequence, advanced.repeated), (2, false));
    assert_eq!(world.turns.len(), turns + 1);
    // One that does not fit in the middle: what came before it stays, and the reply says how far it went.
    let retrieve = outcome(&world, &run, 3, "retrieve", "Succeeded", "{}");
    let far = outcome(&world, &run, 9, "retrieve", "Succeeded", "{}");
    let advanced = send(&mut world, &run, vec![classify, retrieve, far]).expect("as far as it goes");
    assert_eq!(advanced.last_outcome_sequence, 3);
}

#[test]
fn facts_that_cannot_be_right_are_refused() {
    let (mut world, run) = world();
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let good = match outcome(&world, &run, 2, "classify", "Succeeded", "{}") {
        Fact::Outcome(m) => m,
        other => panic!("{other:?}"),
    };
    let with = |change: &dyn Fn(&mut v1::AttemptOutcomeRecordedMessage)| {
        let mut m = good.clone();
        change(&mut m);
        vec![Fact::Outcome(m)]
    };
    let table = [
        (Vec::new(), Code::Invalid, "facts"),
        (with(&|m| m.run_id = run_id(2).key.to_string()), Code::Invalid, "runId"),
        (with(&|m| m.run_id = "r".into()), Code::Invalid, "runId"),
        (with(&|m| m.step_run_id = "s".into()), Code::Invalid, "stepRunId"),
        (with(&|m| m.attempt_id = "a".into()), Code::Invalid, "attemptId"),
        (with(&|m| m.outcome = "Great".into()), Code::Invalid, "outcome"),
        (with(&|m| m.step_run_id = uuid::Uuid::nil().to_string()), Code::WrongState, ""),
    ];
    let before = world.stored.clone();
    for (facts, code, field) in table {
        let rejection = send(&mut world, &run, facts.clone()).expect_err("refused");
        assert_eq!((rejection.code, rejection.field.as_str()), (code, field), "{facts:?}");
        assert_eq!(world.stored, before);
    }
    let nothing = calls::ExternalFacts { facts: vec![ExternalFact { fact: None }] };
    assert_eq!(world.call::<v1::Advanced>(&run, run::FACTS, &nothing).expect_err("no fact").code, Code::Invalid);
    let bundled = world.call::<v1::Run>(&run, run::CANCEL, &v1::CancelRunRequest::default()).expect_err("not here");
    assert_eq!(bundled.code, Code::WrongState);
}

/// [D6] A refused release: the run was accepted outside, so it fails, and the same acceptance again is the same answer.
#[test]
fn a_refused_release_fails_the_run() {
    let (world, run) = world();
    let mut world =
        world.refuses("repository-assessment@1", Rejection::new(Code::Denied, "Expected less, but it is too much."));
    let advanced = send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    assert_eq!(advanced.state, "Failed");
    assert_eq!(world.published(&run), ["failed  policy-denied false"]);
    assert!(world.index_of(index::OPEN_RUNS).is_empty());
    let again = send(&mut world, &run, vec![accepted(&run, 1)]).expect("the same");
    assert!(again.repeated);
    assert_eq!(world.get(&run).expect("readable").state, "Failed");
}

/// [R12] Cancel from outside.
#[test]
fn a_cancel_from_outside_closes_the_projection() {
    let (mut world, run) = world();
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let cancel = |sequence| {
        Fact::Cancelled(v1::RunCancelledMessage {
            run_id: run.key.to_string(),
            sequence,
            reason: "enough".into(),
            ..Default::default()
        })
    };
    let advanced = send(&mut world, &run, vec![cancel(2)]).expect("cancelled");
    assert_eq!(advanced.state, "Cancelled");
    assert_eq!(world.published(&run).last().map(String::as_str), Some("cancelled 1"));
    assert!(send(&mut world, &run, vec![cancel(2)]).expect("the same").repeated);
    let late = outcome(&world, &run, 3, "classify", "Succeeded", "{}");
    let late = send(&mut world, &run, vec![late]).expect_err("over");
    assert_eq!(late.code, Code::WrongState);
    assert!(late.message.contains("already terminal"), "{late}");
    assert!(world.stored[&run].reminders.is_empty());
}

/// [R7] [R15] Timers are the engine's own here too; a lost StepReady is told again.
#[test]
fn time_passes_without_run_control() {
    let plan = flow("repository-assessment").step("nap", timer(5_000)).step("b", tool("b")).edge("nap", "b").plan();
    let (_, run) = world();
    let mut world = World::new(RunMode::External).knows(plan);
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    assert!(world.next_reminder());
    assert_eq!(world.now, Timestamp(START + 5_000));
    assert_eq!(world.published(&run).last().map(String::as_str), Some("ready b 1"));
    let ready = |world: &World| world.published(&run).iter().filter(|e| *e == "ready b 1").count();
    world.now = Timestamp(START + 400_000);
    for _ in 0..3 {
        let _: () = world.call(&run, run::SWEEP, &()).expect("swept");
    }
    assert_eq!(ready(&world), 2, "once more, and not again for the same outcome sequence");
    assert!(world.send(&run, &Message::Wake).is_ok());
    assert!(world.send(&run, &Message::Reminder { name: "of another build", due: world.now }).is_ok());
}

/// [R14] From the journal of the external Run Control.
#[test]
fn an_external_projection_is_built_again() {
    let (mut world, run) = world();
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let classify = outcome(&world, &run, 2, "classify", "Succeeded", r#"{"x":1}"#);
    let Fact::Outcome(m) = classify.clone() else { panic!("an outcome") };
    send(&mut world, &run, vec![classify]).expect("applied");
    let at = Some(granary_proto::wire::Timestamp::from_millis(START));
    let entries = vec![
        v1::JournalEntry {
            number: 1,
            at,
            r#type: "RunAccepted".into(),
            sequence: 1,
            data: Some(Json::of(&json!({
                "projectId": "p",
                "definitionReleaseId": "repository-assessment@1",
                "input": {"repository": "granary"},
            }))),
            ..Default::default()
        },
        v1::JournalEntry {
            number: 2,
            at,
            r#type: "AttemptOutcomeRecorded".into(),
            sequence: 2,
            step_run_id: m.step_run_id,
            attempt: 1,
            outcome: "Succeeded".into(),
            data: m.output,
            ..Default::default()
        },
    ];
    let graph = world.graph(&run);
    let events = world.events.len();
    let again: v1::RunGraph =
        world.call(&run, run::REPROJECT, &v1::ReadJournalResponse { entries, next_after: 0 }).expect("projected again");
    assert_eq!(again, graph);
    assert_eq!(world.events.len(), events);
}

/// [R13] What is ready to dispatch, as of the last outcome; asked for more than is known: a gap, which may be filled later.
#[test]
fn plan_next_is_as_of_the_last_outcome() {
    let (mut world, run) = world();
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    let ask = |last| v1::PlanNextStepsRequest { run_id: String::new(), last_outcome_sequence: last };
    let ready: v1::PlanNextStepsResponse = world.call(&run, run::PLAN_NEXT, &ask(1)).expect("a plan");
    assert_eq!(ready.steps.iter().map(|s| s.step_id.as_str()).collect::<Vec<_>>(), ["classify"]);
    let again: v1::PlanNextStepsResponse = world.call(&run, run::PLAN_NEXT, &ask(0)).expect("a plan");
    assert_eq!(again, ready);
    let gap = world.call::<v1::PlanNextStepsResponse>(&run, run::PLAN_NEXT, &ask(7)).expect_err("ahead of us");
    assert_eq!((gap.code, gap.field.as_str()), (Code::Gap, "lastOutcomeSequence"));
}

/// [R9] A child run is asked for like an attempt, by StepReady, since events are all that an external Run Control hears. It
/// gives the child an id of its own, and tells its end as the outcome.
#[test]
fn a_child_run_is_started_by_run_control() {
    let plan = flow("repository-assessment")
        .step_with("part", child("other"), |s| {
            s.failure_policy = FailurePolicy::Retry;
            s.max_attempts = 2;
        })
        .step("b", tool("b"))
        .edge("part", "b")
        .plan();
    let (_, run) = world();
    let mut world = World::new(RunMode::External).knows(plan);
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    assert_eq!(world.published(&run), ["started", "part Ready", "ready part 1"]);
    let ready = asked(&world, "part");
    assert_eq!((ready.kind.as_str(), ready.queue.as_str()), ("SubWorkflow", "workflow:other"));
    let ask = v1::PlanNextStepsRequest::default();
    let planned: v1::PlanNextStepsResponse = world.call(&run, run::PLAN_NEXT, &ask).expect("a plan");
    let [step] = &planned.steps[..] else { panic!("one step: {planned:?}") };
    assert_eq!((step.queue.as_str(), step.attempt), ("workflow:other", 1));
    assert_eq!(step.input.as_ref().map(|input| input.text.as_slice()), Some(&br#"{"repository":"granary"}"#[..]));
    let waiting = world.get(&run).expect("the run").waiting[0].waiting.clone().expect("why");
    assert_eq!((waiting.on.as_str(), waiting.text.as_str()), ("child", "child run of other"));
    assert!(world.calls.is_empty(), "the engine starts nothing by itself");

    world.now = world.now.plus_ms(400_000);
    let _: () = world.call(&run, run::SWEEP, &()).expect("swept");
    assert_eq!(world.published(&run).last().map(String::as_str), Some("ready part 1"), "told again");

    let end = |world: &mut World, sequence, word| {
        let Fact::Outcome(mut told) = outcome(world, &run, sequence, "part", word, r#"{"done":1}"#) else {
            panic!("an outcome")
        };
        told.attempt_id = run_id(77).key.to_string();
        send(world, &run, vec![Fact::Outcome(told)]).expect("applied");
    };
    end(&mut world, 2, "Failed");
    world.now = world.now.plus_ms(1_000);
    let _: () = world.call(&run, run::SWEEP, &()).expect("swept");
    end(&mut world, 3, "Succeeded");
    let published = world.published(&run);
    let steps: Vec<&str> = published[4..].iter().map(String::as_str).filter(|e| !e.starts_with("timer")).collect();
    assert_eq!(steps, ["part WaitingForTimer", "part Ready", "ready part 2", "part Succeeded", "b Ready", "ready b 1"]);
}
