//! Requirement: condition kinds are pluggable via a registry.

use super::{begun, environment, plan, plan_in};
use grains::condition::kinds::{Condition, ConditionKind, ConditionKinds, Facts, Fault, Parameters, Verdict};
use grains::kinds::methods::run;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use std::sync::Arc;

const TWO_WAYS: &str = "
  - {id: look, kind: PlannedGoal, agent: phone, goal: Look}
  - {id: ask, kind: Branch, condition: CONDITION, onTrue: yes, onFalse: no}
  - {id: no, kind: PlannedGoal, agent: phone, goal: No}
  - {id: yes, kind: PlannedGoal, agent: phone, goal: Yes}
";

fn two_ways(condition: &str) -> String {
    TWO_WAYS
        .replace("CONDITION", condition)
        .replace("yes", "\"yes\"")
        .replace("no,", "\"no\",")
        .replace("no}", "\"no\"}")
}

/// [O4] Scenario: Built-in condition kind evaluates against current state
#[test]
fn built_in_condition_kind_evaluates_against_current_state() {
    for (last, next) in [("Inbox", "yes"), ("Home", "no")] {
        let (mut world, run) = begun(plan(&two_ways("{kind: scene_contains_text, text: Inbox}")));
        world.observes(&run, "look", "scene", r#""Inbox and more""#);
        world.observes(&run, "look", "scene", &format!("{last:?}"));
        world.ends("look", "Succeeded", "");
        assert_eq!(world.open_steps(), [next], "the newest scene counts");
    }
}

/// [O4] Scenario: Unregistered condition kind fails the step
#[test]
fn unregistered_condition_kind_fails_the_step() {
    let (mut world, run) = begun(plan(&two_ways("{kind: moon_is_full}")));
    world.ends("look", "Succeeded", "");
    assert_eq!(world.state(&run), "Failed");
    let (class, message) = world.failure(&run);
    assert_eq!(class, "unrecognized-condition-kind");
    assert!(message.contains("moon_is_full"), "{message}");

    let wait = "  - {id: wait, kind: WaitForCondition, condition: {kind: moon_is_full}, timeout: 5}\n";
    let (mut world, run) = begun(plan(wait));
    assert_eq!(world.failure(&run).0, "unrecognized-condition-kind");
}

/// [O4] Scenario: World-state-dependent condition degrades safely when world state is absent
#[test]
fn world_state_dependent_condition_degrades_safely_when_world_state_is_absent() {
    let wait = "
  - {id: wait, kind: WaitForCondition, condition: {kind: world_variable_equals, variable: ready, value: true}, timeout: 5}
";
    let (mut world, run) = begun(plan(wait));
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer", "not satisfied, and no error");
    world.passes(5_000);
    assert_eq!(world.failure(&run).0, "timeout");
}

/// A kind of somebody else's: nothing of the engine knows it.
#[derive(Debug)]
struct UnreadAbove;

#[derive(Debug)]
struct Above(u64);

impl ConditionKind for UnreadAbove {
    fn name(&self) -> &str {
        "unread_above"
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        match parameters.get("count").and_then(serde_json::Value::as_u64) {
            Some(count) => Ok(Arc::new(Above(count))),
            None => Err(vec![Fault::new("count", "Expected a whole number in `count`")]),
        }
    }
}

impl Condition for Above {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        let unread = facts.world().and_then(|world| world.get("unread")?.as_u64());
        Ok(Verdict::of(unread.is_some_and(|unread| unread > self.0)))
    }
}

/// [O3] A new kind needs no change of the engine: this one lives in a test.
#[test]
fn a_kind_is_added_from_outside() {
    let env = environment(ConditionKinds::default().with(Arc::new(UnreadAbove)));
    for (unread, next) in [(4, "yes"), (3, "no")] {
        let (mut world, run) = begun(plan_in(&env, &two_ways("{kind: unread_above, count: 3}")));
        world.observes(&run, "look", "world", &format!(r#"{{"unread":{unread}}}"#));
        world.ends("look", "Succeeded", "");
        assert_eq!(world.open_steps(), [next]);
    }
}

/// [O3] A kind that a worker answers: each look is an attempt, and what it gets are the recorded facts.
#[test]
fn a_worker_serves_a_kind() {
    let env = environment(ConditionKinds::default().serve("ocr_matches"));
    let wait = "
  - {id: look, kind: PlannedGoal, agent: phone, goal: Look}
  - {id: wait, kind: WaitForCondition, condition: {kind: ocr_matches, text: Inbox}, timeout: 30, pollInterval: 2}
  - {id: ask, kind: Branch, condition: {kind: ocr_matches, text: Mail}, onTrue: end, onFalse: end}
  - {id: end, kind: PlannedGoal, agent: phone, goal: End}
";
    let (mut world, run) = begun(plan_in(&env, wait));
    world.observes(&run, "look", "scene", r#"{"image":"a"}"#);
    world.ends("look", "Succeeded", "");
    let attempt = world.attempt_of("wait");
    let assignment = world.work[&attempt].assignment.clone();
    assert_eq!((assignment.kind.as_str(), assignment.name.as_str()), ("Condition", "ocr_matches"));
    let input: serde_json::Value = serde_json::from_slice(&assignment.input.expect("an input").text).expect("JSON");
    assert_eq!(
        input,
        serde_json::json!({
            "kind": "ocr_matches", "parameters": {"text": "Inbox"}, "scene": {"image": "a"}, "world": null
        })
    );
    world.ends("wait", "Succeeded", "false");
    assert!(world.open_steps().is_empty(), "between two looks nobody is asked");
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer");
    world.passes(2_000);
    assert_eq!(world.open_steps(), ["wait"]);
    world.ends("wait", "Succeeded", "true");
    assert_eq!(world.open_steps(), ["ask"], "the branch asks the worker too");
    world.ends("ask", "Succeeded", r#"{"found":true}"#);
    assert_eq!(world.open_steps(), ["end"]);

    // It times out however often a worker said no, counted from the first look.
    let (mut world, run) = begun(plan_in(&env, wait));
    world.ends("look", "Succeeded", "");
    for _ in 0..14 {
        world.ends("wait", "Succeeded", "0");
        world.passes(2_000);
    }
    assert_eq!(world.state(&run), "Running");
    world.passes(2_000);
    assert_eq!((world.state(&run), world.failure(&run).0), ("Failed".to_owned(), "timeout".to_owned()));
    assert!(world.open_steps().is_empty(), "the attempt in progress is called off");
}

/// [O3] What a worker saw during an attempt comes with its report, in one commit, and before the outcome: so the next step
/// looks at it. One that does not fit is left out.
#[test]
fn observations_come_with_the_report() {
    let (mut world, run) = begun(plan(&two_ways("{kind: world_variable_equals, variable: unread, value: 3}")));
    let attempt = world.attempt_of("look");
    let work = world.work[&attempt].clone();
    let seen = |kind: &str, value: &str| v1::Observation { kind: kind.into(), value: Some(Json::new(value)) };
    let report = v1::Report {
        attempt_id: attempt.to_string(),
        run_id: run.key.to_string(),
        lease_token: work.lease.expect("a lease").token.to_vec(),
        outcome: "Succeeded".into(),
        observations: vec![
            seen("scene", r#""Inbox""#),
            seen("world", "[1]"),
            seen("moon", "1"),
            seen("world", r#"{"unread":3}"#),
        ],
        ..Default::default()
    };
    let turns = world.turns.len();
    let call = calls::ReportCall { report: Some(report) };
    for _ in 0..2 {
        let result: v1::ReportResult = world.call(&run, run::REPORT, &call).expect("taken");
        assert!(result.accepted);
    }
    assert_eq!(world.turns.len(), turns + 1, "one commit, and none for the repeat");
    assert_eq!(world.told(&run).iter().filter(|line| line.starts_with("Observed")).count(), 2);
    world.work.remove(&attempt);
    assert_eq!(world.open_steps(), ["yes"]);
}

/// [O3] Somebody who holds no attempt may tell what is seen, as long as the run goes on.
#[test]
fn an_observer_needs_no_attempt() {
    let wait =
        "  - {id: wait, kind: WaitForCondition, condition: {kind: scene_contains_text, text: Inbox}, timeout: 5}\n";
    let (mut world, run) = begun(plan(wait));
    let seen = v1::Observe {
        run_id: run.key.to_string(),
        kind: "scene".into(),
        value: Some(Json::new(r#""Inbox""#)),
        by: "camera".into(),
        ..Default::default()
    };
    let _: () = world.call(&run, run::OBSERVE, &seen).expect("recorded");
    assert_eq!(world.state(&run), "Completed");
    let entry = world.journal(&run).into_iter().find(|entry| entry.r#type == "Observed").expect("an entry");
    assert_eq!((entry.by.as_str(), entry.text.as_str()), ("camera", "scene"));
    assert!(world.call::<()>(&run, run::OBSERVE, &seen).is_err(), "the run is over");
}
