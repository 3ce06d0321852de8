//! Requirement: wait-for-condition step polls until satisfied or timed out.

use super::{begun, plan};

/// A device works beside the wait, so that somebody can observe.
const WAIT: &str = "
  - {id: split, kind: Fanout}
  - {id: watch, kind: PlannedGoal, agent: phone, goal: Watch}
  - {id: wait, kind: WaitForCondition, condition: {kind: scene_contains_text, text: Inbox}, timeout: 30, pollInterval: 1}
  - {id: after, kind: PlannedGoal, agent: phone, goal: Go on}
edges:
  - {from: split, to: watch}
  - {from: split, to: wait}
  - {from: wait, to: after}
";

/// [O4] Scenario: Condition becomes true before timeout
#[test]
fn condition_becomes_true_before_timeout() {
    let (mut world, run) = begun(plan(WAIT));
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer");
    world.observes(&run, "watch", "scene", r#"{"text":"Home"}"#);
    world.passes(29_000);
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer");
    world.observes(&run, "watch", "scene", r#"{"text":"Inbox"}"#);
    assert_eq!(world.state_of(&run, "wait"), "Succeeded");
    assert!(world.open_steps().contains(&"after".to_owned()), "the run went on at once");
    // The timeout is off: nothing fires later.
    world.passes(60_000);
    assert_eq!(world.state_of(&run, "wait"), "Succeeded");
}

/// [O4] Scenario: Condition never becomes true before timeout
#[test]
fn condition_never_becomes_true_before_timeout() {
    let (mut world, run) = begun(plan(WAIT));
    world.passes(29_999);
    assert_eq!(world.state(&run), "Running");
    world.passes(1);
    assert_eq!(world.state(&run), "Failed");
    let (class, message) = world.failure(&run);
    assert_eq!(class, "timeout");
    assert!(message.contains("scene_contains_text"), "{message}");

    let alternate = "
  - {id: wait, kind: WaitForCondition, condition: {kind: world_variable_equals, variable: ready, value: true}, timeout: 5}
  - {id: ask, kind: Branch, condition: {kind: step_result_success, step: wait}, onTrue: good, onFalse: bad}
  - {id: good, kind: PlannedGoal, agent: phone, goal: Good}
  - {id: bad, kind: PlannedGoal, agent: phone, goal: Bad}
";
    let (mut world, run) = begun(plan(alternate));
    assert_eq!(world.state(&run), "WaitingForTimer");
    world.passes(5_000);
    assert_eq!(world.open_steps(), ["bad"]);
    assert_eq!(world.state_of(&run, "good"), "Skipped");
}

/// [O1] What holds already is not waited for, and a timeout of 0 looks once.
#[test]
fn what_holds_already_is_not_waited_for() {
    let at_once = "
  - {id: look, kind: PlannedGoal, agent: phone, goal: Look}
  - {id: wait, kind: WaitForCondition, condition: {kind: scene_contains_text, text: Inbox}, timeout: 0}
  - {id: after, kind: PlannedGoal, agent: phone, goal: Go on}
";
    let (mut world, run) = begun(plan(at_once));
    world.observes(&run, "look", "scene", r#""Inbox""#);
    world.ends("look", "Succeeded", "");
    assert_eq!(world.open_steps(), ["after"]);

    let (mut world, run) = begun(plan(at_once));
    world.ends("look", "Succeeded", "");
    assert_eq!(world.state(&run), "Failed");
    assert_eq!(world.failure(&run).0, "timeout");
}

/// [O3] Timeout and observation in the same instant take exactly one road, whichever is delivered first.
#[test]
fn timeout_and_observation_in_the_same_instant_take_one_road() {
    for timer_first in [true, false] {
        let (mut world, run) = begun(plan(WAIT));
        world.now = world.now.plus_ms(30_000);
        if timer_first {
            assert!(world.next_reminder());
        }
        let attempt = world.work.iter().find(|(_, work)| work.assignment.step_id == "watch").map(|(id, _)| *id);
        if attempt.is_some() && !timer_first {
            world.observes(&run, "watch", "scene", r#"{"text":"Inbox"}"#);
        }
        while world.next_reminder() {}
        assert_eq!(world.state(&run), "Failed", "timers come before facts, so it is the timeout, always");
        let ends = world.published(&run).into_iter().filter(|told| told.starts_with("failed")).count();
        assert_eq!(ends, 1);
    }
}
