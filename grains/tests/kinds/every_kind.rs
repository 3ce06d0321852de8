//! A run through every kind of step.

use crate::plans::{agent, child, condition, fanout, flow, human, join, line, rule_of, timer, tool, undo};
use crate::world::{World, run_id, submit};
use grain_contract::GrainId;
use grains::definition::{FailurePolicy, Guard, Plan};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use serde_json::json;
use std::sync::Arc;

/// Agent, Condition, Fanout, Tool, Join, Timer, Human, SubWorkflow, and a Compensation for what `pay` did.
pub fn plan() -> Arc<Plan> {
    flow("all")
        .step("plan", agent("planner"))
        .step("sure", condition(json!({"<": [{"var": "plan.risk"}, 5]})))
        .step("ask", human())
        .step("split", fanout())
        .step_with("left", tool("left"), |s| s.input = Some(rule_of(json!({"var": "plan.risk"}))))
        .step("right", tool("right"))
        .step("meet", join())
        .step("nap", timer(5_000))
        .step("sub", child("inner"))
        .step("pay", tool("pay"))
        .step_with("ship", tool("ship"), |s| s.failure_policy = FailurePolicy::Compensate)
        .step("refund", undo("tool:refund"))
        .inside("left", "split")
        .inside("right", "split")
        .collects("meet", "split")
        .undone_by("pay", "refund")
        .edge("plan", "sure")
        .guarded("sure", "split", Guard::IsTrue)
        .guarded("sure", "ask", Guard::IsFalse)
        .edge("ask", "split")
        .edge("split", "left")
        .edge("split", "right")
        .edge("left", "meet")
        .edge("right", "meet")
        .edge("meet", "nap")
        .edge("nap", "sub")
        .edge("sub", "pay")
        .edge("pay", "ship")
        .plan()
}

pub fn started(reload: bool) -> (World, GrainId) {
    let mut world = World::new(RunMode::Bundled).knows(plan()).knows(line("inner", &["x", "y"]));
    world.reload = reload;
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("all@1", r#"{"n":1}"#)).expect("accepted");
    (world, run)
}

/// How the workers of these tests answer.
pub fn answers(risk: u32, ships: bool) -> impl Fn(&v1::Assignment) -> (&'static str, String) {
    move |assignment| match assignment.step_id.as_str() {
        "plan" => ("Succeeded", json!({ "risk": risk }).to_string()),
        "ship" if !ships => ("Failed", String::new()),
        other => ("Succeeded", json!({ "by": other }).to_string()),
    }
}

fn play(risk: u32, ships: bool, reload: bool) -> (World, GrainId) {
    let (mut world, run) = started(reload);
    for _ in 0..100 {
        if !world.step(&run, answers(risk, ships)) {
            return (world, run);
        }
    }
    panic!("the run does not end; open are {:?}", world.open_steps());
}

/// [D2] [R3] [R4] [R5] [R7] [R8] [R9] Every kind of step, to a good end, by both ways of the condition.
#[test]
fn every_kind_goes_to_a_good_end() {
    for (risk, asked) in [(1, false), (9, true)] {
        let (mut world, run) = play(risk, true, true);
        let seen = world.get(&run).expect("the run");
        assert_eq!(seen.state, "Completed");
        let told = world.told(&run);
        assert_eq!(told.iter().any(|e| e == "ApprovalDecided ask"), asked);
        for needed in
            ["TimerFired", "ChildRunEnded subSucceeded", "AttemptOutcomeRecorded shipSucceeded", "RunCompleted"]
        {
            assert_eq!(told.iter().filter(|e| *e == needed).count(), 1, "{needed} in {told:?}");
        }
        assert!(!told.iter().any(|e| e.contains("refund")));
        assert_eq!(world.published(&run).iter().filter(|e| *e == "timer").count(), 1);
        assert!(!world.next_reminder(), "no reminder is left");
    }
}

/// [R11] The failing last step undoes the payment, with what was paid as input.
#[test]
fn a_failed_step_undoes_what_was_done() {
    let (mut world, run) = play(1, false, true);
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failed_step_id.as_str(), seen.compensated), ("Failed", "ship", true));
    let published = world.published(&run);
    assert!(published.iter().any(|e| e == "compensating 1"), "{published:?}");
    assert_eq!(world.told(&run).iter().filter(|e| *e == "AttemptOutcomeRecorded refundSucceeded").count(), 1);
    assert_eq!(world.told(&run).last().map(|e| e.starts_with("RunFailed")), Some(true));
}

/// Nothing lives in memory only: with a reload between all messages the turns are byte for byte the same.
#[test]
fn a_reload_between_all_messages_changes_nothing() {
    for ships in [true, false] {
        let (kept, _) = play(9, ships, false);
        let (read, _) = play(9, ships, true);
        assert_eq!(kept.turns.len(), read.turns.len());
        for (a, b) in kept.turns.iter().zip(&read.turns) {
            assert_eq!(a, b);
        }
        assert_eq!(kept.stored, read.stored);
        assert_eq!(kept.events, read.events);
    }
}

/// A new owner is told of all open work from rows, in the middle of anything.
#[test]
fn a_takeover_loses_no_work() {
    let (mut world, run) = started(true);
    for _ in 0..100 {
        let before: Vec<_> = world.work.iter().map(|(id, w)| (*id, w.assignment.clone(), w.lease.clone())).collect();
        let stored = world.stored.clone();
        world.work.clear();
        let ids: Vec<GrainId> = world.stored.keys().cloned().collect();
        for id in &ids {
            world.send(id, &grain_contract::Message::Wake).expect("woken");
        }
        let after: Vec<_> = world.work.iter().map(|(id, w)| (*id, w.assignment.clone(), w.lease.clone())).collect();
        assert_eq!(after, before);
        assert_eq!(world.stored, stored, "a wake changes no row");
        if !world.step(&run, answers(9, false)) {
            return;
        }
    }
    panic!("the run does not end");
}
