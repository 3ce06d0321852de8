//! Requirement: branch step selects the next step from a condition.

use super::{begun, plan};

const BRANCH: &str = "
  - {id: look, kind: PlannedGoal, agent: phone, goal: Look}
  - {id: ask, kind: Branch, condition: {kind: world_variable_equals, variable: unread, value: 0}, onTrue: rest, onFalse: read}
  - {id: read, kind: PlannedGoal, agent: phone, goal: Read}
  - {id: rest, kind: PlannedGoal, agent: phone, goal: Rest}
";

/// [O4] Scenario: Branch condition true selects the true-target step
#[test]
fn branch_condition_true_selects_the_true_target_step() {
    let (mut world, run) = begun(plan(BRANCH));
    world.observes(&run, "look", "world", r#"{"unread":0}"#);
    world.ends("look", "Succeeded", "");
    assert_eq!(world.open_steps(), ["rest"]);
    assert_eq!(world.state_of(&run, "read"), "Skipped");
    world.ends("rest", "Succeeded", "");
    assert_eq!(world.state(&run), "Completed");
}

/// [O4] Scenario: Branch condition false selects the false-target step
#[test]
fn branch_condition_false_selects_the_false_target_step() {
    let (mut world, run) = begun(plan(BRANCH));
    world.observes(&run, "look", "world", r#"{"unread":3}"#);
    world.ends("look", "Succeeded", "");
    assert_eq!(world.open_steps(), ["read"]);
    world.ends("read", "Succeeded", "");
    assert_eq!(world.open_steps(), ["rest"], "behind the target the list goes on");
    world.ends("rest", "Succeeded", "");
    assert_eq!(world.state(&run), "Completed");
}

/// [O1] [R6] A target that stands before the branch is a loop, and bounded like any other.
#[test]
fn a_branch_back_is_a_bounded_loop() {
    let back = "
  - {id: poke, kind: PlannedGoal, agent: phone, goal: Poke}
  - {id: ask, kind: Branch, condition: {kind: world_variable_equals, variable: awake, value: true}, onTrue: rest, onFalse: poke}
  - {id: rest, kind: PlannedGoal, agent: phone, goal: Rest}
maxLoopIterations: 3
";
    let (mut world, run) = begun(plan(back));
    world.ends("poke", "Succeeded", "");
    assert_eq!(world.open_steps(), ["poke"]);
    world.observes(&run, "poke", "world", r#"{"awake":true}"#);
    world.ends("poke", "Succeeded", "");
    assert_eq!(world.open_steps(), ["rest"]);

    let (mut world, run) = begun(plan(back));
    for _ in 0..3 {
        world.ends("poke", "Succeeded", "");
    }
    assert_eq!(world.state(&run), "Failed");
    assert_eq!(world.failure(&run).0, "loop-bound");
}
