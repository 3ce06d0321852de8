//! The plain way of a run, turn by turn.

use crate::plans::line;
use crate::world::{START, World, run_id, submit};
use grain_contract::Effect;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use grains::kinds::RunMode;
use grains::kinds::methods::{index, run};
use granary_proto::v1;

fn world() -> World {
    World::new(RunMode::Bundled).knows(line("line", &["a", "b", "c"]))
}

/// [C1] [V1] A run of three steps: what is told, in which order, and that it ends once.
#[test]
fn a_run_goes_to_its_end() {
    for places in [1_000, 0] {
        let mut world = world().places(places);
        let run = run_id(1);
        let reply: v1::SubmitRunResponse =
            world.call(&run, run::SUBMIT, &submit("line@1", r#"{"n":1}"#)).expect("accepted");
        let seen = reply.run.expect("the run");
        assert_eq!((seen.state.as_str(), seen.engine_state.as_str(), reply.repeated), ("Running", "Running", false));
        let reason = seen.waiting[0].waiting.clone().expect("it says why it waits");
        assert_eq!((reason.on.as_str(), reason.queue.as_str(), seen.waiting.len()), ("worker", "tool:a", 1));
        assert_eq!(reason.text == "worker w1 of queue tool:a to report", places > 0, "{}", reason.text);
        for step in ["a", "b", "c"] {
            assert_eq!(world.open_steps(), [step]);
            let attempt = world.attempt_of(step);
            let result = world.report(attempt, "Succeeded", r#"{"ok":true}"#).expect("taken");
            assert!(result.accepted);
        }
        let ended = world.get(&run).expect("the run");
        assert_eq!((ended.state.as_str(), ended.engine_state.as_str()), ("Completed", "Completed"));
        assert_eq!(ended.output.map(|o| o.text), Some(br#"{"ok":true}"#.to_vec()));
        assert_eq!(ended.ended_at.map(|at| at.millis()), Some(START));
        let facts = world.journal(&run).into_iter().filter(|e| e.sequence > 0).count();
        assert_eq!(facts, 4, "one acceptance, three outcomes");
        assert_eq!(world.told(&run).last().map(String::as_str), Some("RunCompleted"));
        let published = world.published(&run);
        assert_eq!(
            published.iter().filter(|e| e.starts_with("ready ")).collect::<Vec<_>>(),
            ["ready a 1", "ready b 1", "ready c 1"]
        );
        assert_eq!(
            (published.first().map(String::as_str), published.last().map(String::as_str)),
            (Some("started"), Some("completed"))
        );
        assert_eq!(world.index_of(index::RUNS), [run.key.to_string()]);
        assert!(world.index_of(index::OPEN_RUNS).is_empty());
        assert!(world.stored[&run].reminders.is_empty(), "no reminder outlives the run");
    }
}

/// The cost of a step: a turn writes few rows, and no reminder.
#[test]
fn a_step_turn_is_small() {
    let mut world = world();
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    let first = world.turns.last().cloned().expect("a turn");
    assert_eq!(first.reminders.len(), 1, "stuck is set once: {:?}", first.reminders);
    let attempt = world.attempt_of("a");
    world.report(attempt, "Succeeded", "1").expect("taken");
    let turn = world.turns.last().expect("a turn");
    assert_eq!(turn.reminders, []);
    assert_eq!(turn.index, []);
    assert_eq!(turn.outbox.len(), 1, "all events of a turn are one row");
    let tables: Vec<u8> = turn.puts.iter().map(|r| r.key.table.0).collect();
    assert_eq!(tables, [1, 2, 2, 10, 11, 11, 128], "header, two step runs, counters, two asks, journal");
    let bytes: usize = turn.puts.iter().map(|r| r.value.len()).sum();
    assert!(bytes < 1_600, "a small step costs {bytes} bytes");
    let effects = &turn.effects[..];
    assert!(
        matches!(effects, [Effect::Withdraw { interrupt: false, .. }, Effect::Offer(_), Effect::Changed]),
        "{effects:?}"
    );
}

/// Nothing is in memory that is not in rows: the same messages give the same turns with and without a reload between.
#[test]
fn a_reload_between_messages_changes_nothing() {
    let turns = [true, false].map(|reload| {
        let mut world = world();
        world.reload = reload;
        let run = run_id(1);
        let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
        for step in ["a", "b", "c"] {
            let attempt = world.attempt_of(step);
            world.report(attempt, "Succeeded", "1").expect("taken");
        }
        (world.turns, world.events, world.stored)
    });
    assert_eq!(turns[0], turns[1]);
}

/// [FR-125] An input of exactly the limit goes through every step.
#[test]
fn an_input_at_the_limit_runs_to_the_end() {
    let mut world = world();
    let run = run_id(1);
    let input = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", &input)).expect("accepted");
    for step in ["a", "b", "c"] {
        let attempt = world.attempt_of(step);
        let given = world.work[&attempt].assignment.input.clone().expect("an input");
        assert_eq!(given.text.len(), PAYLOAD_BYTES_MAX, "step {step} gets the whole input");
        world.report(attempt, "Succeeded", &input).expect("an output at the limit");
    }
    assert_eq!(world.get(&run).expect("the run").state, "Completed");
    let largest = world.turns.iter().map(|t| t.puts.iter().map(|r| r.value.len()).sum::<usize>()).max();
    assert!(largest < Some(grain_contract::limits::ENTRY_BYTES_MAX / 2), "{largest:?}");
}

/// [FR-172] [FR-174] A run id is used once, has one spelling, and an unknown one is not found.
#[test]
fn an_id_is_one_run() {
    use grain_contract::{Code, GrainId, GrainKind, TenantId};
    let mut world = world();
    let run = run_id(1);
    assert_eq!(world.get(&run).expect_err("unknown").code, Code::NotFound);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    let again: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("the same");
    assert!(again.repeated);
    let other =
        world.call::<v1::SubmitRunResponse>(&run, run::SUBMIT, &submit("line@1", "2")).expect_err("other content");
    assert_eq!(other.code, Code::Conflict);
    assert_eq!(world.turns.len(), 1, "neither was a turn");
    let long = "x".repeat(300);
    for key in [
        "",
        " ",
        "..",
        "a/b",
        "R1",
        "0190A5B2-0000-7000-8000-000000000001",
        "{01900000-0000-7000-8000-000000000001}",
        &long,
    ] {
        let id = GrainId::new(&TenantId::new("acme"), &GrainKind::new(run::KIND), key);
        let rejection =
            world.call::<v1::SubmitRunResponse>(&id, run::SUBMIT, &submit("line@1", "1")).expect_err("no id");
        assert_eq!((rejection.code, rejection.field.as_str()), (Code::Invalid, "runId"), "{key}");
    }
    assert_eq!(world.stored.len(), 1, "no orphan rows");
}

/// The list's reading of the rows is the grain's own.
#[test]
fn the_summary_of_the_rows_is_the_run() {
    let plan = line("line", &["a", "b"]);
    let mut world = World::new(RunMode::Bundled).knows(plan.clone());
    let run = run_id(1);
    let nothing = grains::kinds::run::summary(&run, &world.loaded_rows(&run), Some(&plan)).expect("no rows");
    assert_eq!(nothing, None);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    for step in ["a", "b"] {
        let summary = grains::kinds::run::summary(&run, &world.loaded_rows(&run), Some(&plan)).expect("readable");
        assert_eq!(summary, Some(world.get(&run).expect("the run")));
        let attempt = world.attempt_of(step);
        world.report(attempt, "Succeeded", "1").expect("taken");
    }
    let summary = grains::kinds::run::summary(&run, &world.loaded_rows(&run), None).expect("readable");
    assert_eq!(summary, Some(world.get(&run).expect("the run")));
}
