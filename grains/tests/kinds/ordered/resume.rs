//! Requirement: resume from last checkpoint without re-executing completed steps.

use super::{begun, plan};
use crate::world::submit;
use grains::kinds::methods::run;
use granary_proto::v1;

const THREE: &str = "
  - {id: one, kind: PlannedGoal, agent: phone, goal: One}
  - {id: two, kind: PlannedGoal, agent: phone, goal: Two}
  - {id: three, kind: PlannedGoal, agent: phone, goal: Three}
";

/// [O4] Scenario: Resume after simulated process restart
#[test]
fn resume_after_simulated_process_restart() {
    let (mut world, run) = begun(plan(THREE));
    world.ends("one", "Succeeded", "");
    world.ends("two", "Succeeded", "");
    let ready = |world: &crate::world::World| {
        let ready = world.published(&run).into_iter().filter(|told| told.starts_with("ready "));
        ready.collect::<Vec<_>>()
    };
    let told = ready(&world);
    assert_eq!(told, ["ready one 1", "ready two 1", "ready three 1"]);
    // The owner is gone: what workers held is known from rows only, and the new owner offers what is open.
    world.work.clear();
    world.send(&run, &grain_contract::Message::Wake).expect("woken");
    assert_eq!(world.open_steps(), ["three"], "neither one nor two is asked for again");
    world.ends("three", "Succeeded", "");
    assert_eq!(world.state(&run), "Completed");
    assert_eq!(ready(&world), told);
}

/// [O4] Scenario: Resume on an already-completed run is a no-op
#[test]
fn resume_on_an_already_completed_run_is_a_no_op() {
    let (mut world, run) = begun(plan(THREE));
    for step in ["one", "two", "three"] {
        world.ends(step, "Succeeded", r#"{"end":true}"#);
    }
    let (rows, events) = (world.stored[&run].clone(), world.events.len());
    // Resuming is submitting the same run again.
    let again: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("list@1", "")).expect("answered");
    let seen = again.run.expect("its final state");
    assert!(again.repeated);
    assert_eq!(seen.state, "Completed");
    assert_eq!(seen.output.expect("its output").text, br#"{"end":true}"#);
    world.send(&run, &grain_contract::Message::Wake).expect("woken");
    assert_eq!((&world.stored[&run], world.events.len()), (&rows, events));
    assert!(world.open_steps().is_empty());
}
