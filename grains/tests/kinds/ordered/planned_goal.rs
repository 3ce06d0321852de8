//! Requirement: planned-goal step delegates to the existing single-goal loop.

use super::{begun, plan};

const GOAL_THEN_BRANCH: &str = "
  - {id: find, kind: PlannedGoal, agent: phone, goal: Find the newest mail}
  - {id: ask, kind: Branch, condition: {kind: step_result_success, step: find}, onTrue: read, onFalse: recover}
  - {id: recover, kind: PlannedGoal, agent: phone, goal: Go home}
  - {id: read, kind: PlannedGoal, agent: phone, goal: Read it}
";

/// [O4] Scenario: Planned-goal step succeeds
#[test]
fn planned_goal_step_succeeds() {
    let (mut world, run) = begun(plan(GOAL_THEN_BRANCH));
    let attempt = world.attempt_of("find");
    let assignment = world.work[&attempt].assignment.clone();
    assert_eq!((assignment.kind.as_str(), assignment.name.as_str()), ("Agent", "phone"));
    let input: serde_json::Value = serde_json::from_slice(&assignment.input.expect("an input").text).expect("JSON");
    assert_eq!(input["goal"], "Find the newest mail");
    world.ends("find", "Succeeded", "");
    assert_eq!(world.state_of(&run, "find"), "Succeeded");
    assert_eq!(world.open_steps(), ["read"], "the branch went on to its true target");
}

/// [O4] Scenario: Planned-goal step fails
#[test]
fn planned_goal_step_fails() {
    let alone = "  - {id: find, kind: PlannedGoal, agent: phone, goal: Find}\n  - {id: rest, kind: PlannedGoal, agent: phone, goal: Rest}\n";
    let (mut world, run) = begun(plan(alone));
    world.ends("find", "Failed", "");
    assert_eq!(world.state_of(&run, "find"), "Failed");
    assert_eq!(world.state(&run), "Failed");
    assert_eq!(world.failure(&run).0, "agent");

    // A branch that asks for its result defines another road.
    let (mut world, run) = begun(plan(GOAL_THEN_BRANCH));
    world.ends("find", "Failed", "");
    assert_eq!(world.state_of(&run, "find"), "Failed");
    assert_eq!(world.open_steps(), ["recover"]);
    world.ends("recover", "Succeeded", "");
    world.ends("read", "Succeeded", "");
    assert_eq!(world.state(&run), "Completed");
}

/// [O1] [R10] Attempts that a policy allows come before the branch decides.
#[test]
fn a_goal_is_tried_again_before_the_branch_is_asked() {
    let retried = GOAL_THEN_BRANCH.replacen(
        "goal: Find the newest mail",
        "goal: Find the newest mail, failurePolicy: Retry, maxAttempts: 2, retry: {initial: 0}",
        1,
    );
    let (mut world, run) = begun(plan(&retried));
    world.ends("find", "Failed", "");
    assert_eq!(world.open_steps(), ["find"], "the second attempt");
    world.ends("find", "Failed", "");
    assert_eq!(world.open_steps(), ["recover"]);
    assert_eq!(world.state(&run), "Running");
}
