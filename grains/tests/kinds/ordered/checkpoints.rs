//! Requirement: persisted, checkpointed workflow run.

use super::{begun, plan};

const TWO: &str = "
  - {id: first, kind: PlannedGoal, agent: phone, goal: One}
  - {id: second, kind: PlannedGoal, agent: phone, goal: Two}
";

/// [O4] Scenario: Run status transitions as steps execute
#[test]
fn run_status_transitions_as_steps_execute() {
    let (mut world, run) = begun(plan(TWO));
    assert_eq!(world.state(&run), "Running");
    assert_eq!(world.open_steps(), ["first"]);
    let before = world.turns.len();
    world.ends("first", "Succeeded", r#"{"done":1}"#);
    // The turn that recorded the result is the one that made the next step ready: nothing was dispatched ahead of it.
    assert_eq!(world.turns.len(), before + 1);
    assert_eq!(world.state_of(&run, "first"), "Succeeded");
    assert_eq!(world.open_steps(), ["second"]);
    let graph = world.shown(&run);
    assert_eq!(graph.step_runs[0].output.clone().expect("recorded").text, br#"{"done":1}"#);
}

/// [O4] Scenario: Run reaches terminal status
#[test]
fn run_reaches_terminal_status() {
    let (mut world, run) = begun(plan(TWO));
    world.ends("first", "Succeeded", "");
    world.ends("second", "Succeeded", "");
    assert_eq!(world.state(&run), "Completed");

    let (mut world, run) = begun(plan(TWO));
    world.ends("first", "Failed", "");
    assert_eq!(world.state(&run), "Failed");
    let (class, message) = world.failure(&run);
    assert_eq!(class, "agent");
    assert!(!message.is_empty());
    assert_eq!(world.shown(&run).failed_step_id, "first");
}
