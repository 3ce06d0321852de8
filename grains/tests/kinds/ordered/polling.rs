//! Waiting costs next to nothing: no turn between two facts, one reminder, nothing that grows.

use super::{begun, plan};
use crate::world::START;

const WAIT: &str = "
  - {id: wait, kind: WaitForCondition, condition: {kind: world_variable_equals, variable: ready, value: true}, timeout: P10D, pollInterval: 1}
";

/// [O3] [R15] However short the poll interval: a look between two facts would see what the last one saw.
#[test]
fn a_waiting_run_takes_no_turns() {
    let (mut world, run) = begun(plan(WAIT));
    let turns = world.turns.len();
    world.passes(9 * 24 * 3_600_000);
    // Only the check for stuck runs comes by, and ever more rarely.
    let looked = world.turns.len() - turns;
    assert!(looked <= 20, "{looked} turns");
    let timers = world.shown(&run).timers;
    assert_eq!(timers.len(), 1, "only the timeout: {timers:?}");
}

/// [O3] A condition on time is looked at when its time comes, not before and not every interval.
#[test]
fn a_condition_on_time_has_one_timer() {
    let wait = "
  - {id: wait, kind: WaitForCondition, condition: {kind: elapsed_seconds, seconds: 20}, timeout: 60, pollInterval: 1}
  - {id: after, kind: PlannedGoal, agent: phone, goal: Go on}
";
    let (mut world, run) = begun(plan(wait));
    let due: Vec<_> =
        world.shown(&run).timers.iter().map(|t| (t.purpose.clone(), t.due_at.map(|at| at.millis()))).collect();
    assert_eq!(due, [("timeout".to_owned(), Some(START + 60_000)), ("look".to_owned(), Some(START + 20_000))]);
    world.passes(19_999);
    assert_eq!(world.state_of(&run, "wait"), "WaitingForTimer");
    world.passes(1);
    assert_eq!(world.open_steps(), ["after"]);

    // At the timeout itself the last look still counts.
    let wait = wait.replace("timeout: 60", "timeout: 20");
    let (mut world, _) = begun(plan(&wait));
    world.passes(20_000);
    assert_eq!(world.open_steps(), ["after"]);
}

/// [O3] Observations are kept as the newest only: a thousand of them take the room of one.
#[test]
fn a_thousand_observations_take_the_room_of_one() {
    let (mut world, run) = begun(plan("  - {id: look, kind: PlannedGoal, agent: phone, goal: Look}\n"));
    let loaded = |world: &crate::world::World| world.loaded_rows(&run).iter().map(|row| row.value.len()).sum::<usize>();
    world.observes(&run, "look", "scene", r#""scene 0000""#);
    world.observes(&run, "look", "world", r#"{"n":1000,"gone":1}"#);
    let before = loaded(&world);
    for n in 0..1_000 {
        world.observes(&run, "look", "scene", &format!(r#""scene {n:04}""#));
        world.observes(&run, "look", "world", &format!(r#"{{"n":{},"gone":null}}"#, 1_000 + n));
    }
    assert!(loaded(&world) <= before + 64, "{before} and then {}", loaded(&world));
}
