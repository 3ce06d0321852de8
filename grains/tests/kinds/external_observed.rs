//! Run Control is outside: what was seen in the world of a run, and the engine's own timers between its facts.

use crate::external::{accepted, outcome, send};
use crate::ordered;
use crate::world::{START, World, run_id};
use grain_contract::{Code, GrainId};
use grains::definition::Plan;
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::calls::external_fact::Fact;
use granary_proto::v1;
use granary_proto::wire::Json;
use serde_json::json;
use std::sync::Arc;

/// An ordered list that waits for the inbox.
fn waiting() -> (World, GrainId) {
    let plan = ordered::plan(
        "
  - {id: wait, kind: WaitForCondition, condition: {kind: scene_contains_text, text: Inbox}, timeout: 30}
  - {id: ask, kind: Branch, condition: {kind: step_result_success, step: wait}, onTrue: read, onFalse: home}
  - {id: home, kind: PlannedGoal, agent: phone, goal: Go home}
  - {id: read, kind: PlannedGoal, agent: phone, goal: Read it}
",
    );
    let plan = Arc::new(Plan {
        release_id: "repository-assessment@1".into(),
        ..Arc::try_unwrap(plan).expect("nobody else has it")
    });
    let run = run_id(1);
    let mut world = World::new(RunMode::External).knows(plan);
    send(&mut world, &run, vec![accepted(&run, 1)]).expect("accepted");
    (world, run)
}

fn observed(run: &GrainId, sequence: u64, kind: &str, value: &str) -> v1::ObservedMessage {
    v1::ObservedMessage {
        run_id: run.key.to_string(),
        sequence,
        kind: kind.into(),
        value: Some(Json::new(value)),
        observed_by: "camera".into(),
        ..Default::default()
    }
}

/// [O3] [R2] What was seen comes as a fact with a number, and what waits for it looks at once.
#[test]
fn an_observation_from_outside_wakes_what_waits_for_it() {
    let (mut world, run) = waiting();
    let wrong = [
        (observed(&run, 2, "smell", "1"), "kind"),
        (observed(&run, 2, "world", "[]"), "value"),
        (observed(&run, 2, "scene", "{"), "value"),
        (v1::ObservedMessage { step_run_id: "s".into(), ..observed(&run, 2, "scene", "1") }, "stepRunId"),
        (v1::ObservedMessage { run_id: run_id(2).key.to_string(), ..observed(&run, 2, "scene", "1") }, "runId"),
    ];
    let before = world.stored.clone();
    for (message, field) in wrong {
        let refused = send(&mut world, &run, vec![Fact::Observed(message)]).expect_err("refused");
        assert_eq!((refused.code, refused.field.as_str()), (Code::Invalid, field), "{refused}");
    }
    assert_eq!(world.stored, before);
    let menu = Fact::Observed(observed(&run, 2, "scene", r#""Menu""#));
    send(&mut world, &run, vec![menu.clone()]).expect("applied");
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer");
    assert!(send(&mut world, &run, vec![menu]).expect("the same").repeated);
    let other = Fact::Observed(observed(&run, 2, "scene", r#""Inbox""#));
    assert_eq!(send(&mut world, &run, vec![other]).expect_err("other content").code, Code::Conflict);
    send(&mut world, &run, vec![Fact::Observed(observed(&run, 3, "scene", r#""Inbox (3)""#))]).expect("applied");
    assert_eq!(world.state_of(&run, "wait"), "Succeeded");
    assert_eq!(world.published(&run).last().map(String::as_str), Some("ready read 1"));
    let last = outcome(&world, &run, 4, "read", "Succeeded", "1");
    assert_eq!(send(&mut world, &run, vec![last]).expect("applied").state, "Completed");
    let late = Fact::Observed(observed(&run, 5, "scene", "1"));
    assert_eq!(send(&mut world, &run, vec![late]).expect_err("over").code, Code::WrongState);
}

/// [R14] [O3] The journal outside knows nothing of the engine's timers; they fire where they must have, even if the two clocks
/// do not agree.
#[test]
fn timers_between_facts_of_an_external_journal_fire_again() {
    for behind_ms in [0, 2_000] {
        let (mut world, run) = waiting();
        let seen = observed(&run, 2, "scene", r#""Menu""#);
        send(&mut world, &run, vec![Fact::Observed(seen.clone())]).expect("applied");
        assert!(world.next_reminder());
        assert_eq!(world.state_of(&run, "wait"), "Failed", "its time is over");
        let home = outcome(&world, &run, 3, "home", "Succeeded", "1");
        let Fact::Outcome(m) = home.clone() else { panic!("an outcome") };
        send(&mut world, &run, vec![home]).expect("applied");
        let at = |ms: i64| Some(granary_proto::wire::Timestamp::from_millis(ms));
        let entry = |number: u64, kind: &str| v1::JournalEntry {
            number,
            sequence: number,
            r#type: kind.into(),
            at: at(START),
            ..Default::default()
        };
        let entries = vec![
            v1::JournalEntry {
                data: Some(Json::of(&json!({
                    "projectId": "p",
                    "definitionReleaseId": "repository-assessment@1",
                    "input": {"repository": "granary"},
                }))),
                ..entry(1, "RunAccepted")
            },
            v1::JournalEntry { text: seen.kind, data: seen.value, by: seen.observed_by, ..entry(2, "Observed") },
            v1::JournalEntry {
                at: at(world.now.0 - behind_ms),
                step_run_id: m.step_run_id,
                attempt: 1,
                outcome: "Succeeded".into(),
                data: m.output,
                ..entry(3, "AttemptOutcomeRecorded")
            },
        ];
        let before = world.states(&run);
        let again: v1::RunGraph = world
            .call(&run, run::REPROJECT, &v1::ReadJournalResponse { entries, next_after: 0 })
            .expect("projected again");
        assert_eq!((again.state.as_str(), again.last_outcome_sequence), ("Running", 3), "{behind_ms}");
        assert_eq!(world.states(&run), before, "{behind_ms}");
    }
}
