//! Cancel, and what races with it.

use crate::plans::{fanout, flow, human, join, line, tool, undo};
use crate::world::{World, run_id, submit};
use grain_contract::Code;
use grains::definition::FailurePolicy;
use grains::kinds::RunMode;
use grains::kinds::methods::{index, run};
use granary_proto::v1;

fn cancel(world: &mut World, run: &grain_contract::GrainId) -> Result<v1::Run, grain_contract::Rejection> {
    world.call(
        run,
        run::CANCEL,
        &v1::CancelRunRequest { reason: "enough".into(), by: "ada".into(), ..Default::default() },
    )
}

/// [R12] Everything open is closed in the turn of the cancel; a second cancel changes nothing.
#[test]
fn a_cancel_closes_everything_in_one_turn() {
    let plan = flow("wide")
        .step("f", fanout())
        .step("a", tool("a"))
        .step("b", tool("b"))
        .step("h", human())
        .step("j", join())
        .inside("a", "f")
        .inside("b", "f")
        .inside("h", "f")
        .collects("j", "f")
        .edge("f", "a")
        .edge("f", "b")
        .edge("f", "h")
        .edge("a", "j")
        .edge("b", "j")
        .edge("h", "j")
        .plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("wide@1", "1")).expect("accepted");
    assert_eq!(world.open_steps(), ["a", "b"]);
    assert_eq!(world.index_of(index::PENDING_APPROVALS).len(), 1);
    let turns = world.turns.len();
    let seen = cancel(&mut world, &run).expect("cancelled");
    assert_eq!(
        (seen.state.as_str(), seen.engine_state.as_str(), seen.cancel_reason.as_str()),
        ("Cancelled", "Cancelled", "enough")
    );
    assert_eq!(world.turns.len(), turns + 1);
    assert!(world.open_steps().is_empty());
    assert_eq!(world.withdrawn.len(), 2, "both workers are told");
    assert!(world.index_of(index::PENDING_APPROVALS).is_empty() && world.index_of(index::OPEN_RUNS).is_empty());
    assert!(world.stored[&run].reminders.is_empty());
    let told = world.told(&run);
    assert_eq!(told.last().map(String::as_str), Some("RunCancelled"));
    let last = world.published(&run).pop().expect("an event");
    assert!(last.starts_with("cancelled "), "{last}");
    assert_ne!(last, "cancelled 0", "it says how many were open");
    assert_eq!(cancel(&mut world, &run).expect("the same answer"), seen);
    assert_eq!(world.turns.len(), turns + 1, "no second turn");
}

/// [FR-115] After a cancel no attempt follows, and the late report is told that the run is over.
#[test]
fn retries_stop_with_the_run() {
    let plan = flow("again")
        .step_with("a", tool("a"), |s| {
            s.failure_policy = FailurePolicy::Retry;
            s.max_attempts = 10;
        })
        .plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("again@1", "1")).expect("accepted");
    for _ in 0..3 {
        let attempt = world.attempt_of("a");
        world.report(attempt, "Failed", "").expect("taken");
        assert!(world.open_steps().is_empty(), "the retry waits");
        assert!(world.next_reminder());
    }
    let fourth = world.attempt_of("a");
    let held = world.work[&fourth].clone();
    cancel(&mut world, &run).expect("cancelled");
    world.work.insert(fourth, held);
    let late = world.report(fourth, "Failed", "").expect_err("over");
    assert_eq!(late.code, Code::WrongState);
    assert!(late.message.contains("already terminal"), "{}", late.message);
    while world.next_reminder() {}
    assert_eq!(world.journal(&run).iter().filter(|e| e.r#type == "AttemptCreated").count(), 4);
    assert_eq!(world.get(&run).expect("the run").state, "Cancelled");
}

/// [FR-117] [FR-037] What comes after the end is answered for good: nothing makes the sender repeat for ever.
#[test]
fn what_comes_after_the_end_is_answered_for_good() {
    let mut world = World::new(RunMode::Bundled).knows(line("line", &["a"]));
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    let a = world.attempt_of("a");
    cancel(&mut world, &run).expect("cancelled");
    let before = world.stored.clone();
    let expired =
        granary_proto::calls::LeaseExpired { attempt_id: a.to_string(), worker: "w1".into(), ..Default::default() };
    let _: () = world.call(&run, run::LEASE_EXPIRED, &expired).expect("no fault");
    let ended = granary_proto::calls::ChildEnded {
        child_run_id: a.to_string(),
        state: "Completed".into(),
        ..Default::default()
    };
    let _: () = world.call(&run, run::CHILD_ENDED, &ended).expect("no fault");
    let claim =
        granary_proto::calls::Claim { attempt_id: a.to_string(), worker: "w2".into(), token: vec![1; 16], held: false };
    let reply: granary_proto::calls::ClaimReply = world.call(&run, run::CLAIM, &claim).expect("no fault");
    assert!(!reply.claimed);
    let _: () = world.call(&run, run::SWEEP, &()).expect("no fault");
    assert_eq!(world.stored, before);
    for name in ["wake", "stuck", "of another build"] {
        let fired = grain_contract::Message::Reminder { name, due: world.now };
        world.send(&run, &fired).expect("no fault");
    }
    assert!(world.stored[&run].reminders.is_empty());
}

/// [FR-011] A completion and a cancel, in both orders: one state, one terminal event.
#[test]
fn of_completion_and_cancel_one_wins() {
    for cancel_first in [true, false] {
        let mut world = World::new(RunMode::Bundled).knows(line("line", &["a"]));
        let run = run_id(1);
        let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
        let a = world.attempt_of("a");
        let held = world.work[&a].clone();
        let state = if cancel_first {
            cancel(&mut world, &run).expect("cancelled");
            world.work.insert(a, held);
            assert_eq!(world.report(a, "Succeeded", "1").expect_err("too late").code, Code::WrongState);
            "Cancelled"
        } else {
            world.report(a, "Succeeded", "1").expect("taken");
            assert_eq!(cancel(&mut world, &run).expect_err("too late").code, Code::WrongState);
            "Completed"
        };
        let seen = world.get(&run).expect("the run");
        assert_eq!((seen.state.as_str(), seen.engine_state.as_str()), (state, state));
    }
}

/// [R11] [R12] A run that is being compensated cannot be cancelled any more: it ends Failed, by both accounts.
#[test]
fn a_compensation_in_progress_is_not_cancelled() {
    let plan = flow("shop")
        .step("pay", tool("pay"))
        .step("refund", undo("tool:refund"))
        .step_with("ship", tool("ship"), |step| step.failure_policy = FailurePolicy::Compensate)
        .undone_by("pay", "refund")
        .edge("pay", "ship")
        .plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("shop@1", "1")).expect("accepted");
    world.report(world.attempt_of("pay"), "Succeeded", "1").expect("taken");
    world.report(world.attempt_of("ship"), "Failed", "").expect("taken");
    let before = world.stored.clone();
    assert_eq!(cancel(&mut world, &run).expect_err("too late").code, Code::WrongState);
    assert_eq!(world.stored, before);
    world.report(world.attempt_of("refund"), "Succeeded", "1").expect("taken");
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.engine_state.as_str(), seen.compensated), ("Failed", "Failed", true));
}

/// [FR-173] A start and a cancel in one batch, for a new run and for one that has ended: the cancel is judged against what
/// stands when its turn comes, takes no start with it, and nothing is left pending.
#[test]
fn a_cancel_right_behind_a_start_leaves_nothing_pending() {
    let wanted = submit("line@1", "1");
    for reload in [true, false] {
        let mut world = World::new(RunMode::Bundled).knows(line("line", &["a"])).places(0);
        world.reload = reload;
        // A cancel before any start is for nobody and leaves nothing that a start would meet.
        let (new, ended) = (run_id(1), run_id(2));
        assert_eq!(cancel(&mut world, &new).expect_err("no run").code, Code::NotFound);
        let _: v1::SubmitRunResponse = world.call(&new, run::SUBMIT, &wanted).expect("accepted");
        assert_eq!(cancel(&mut world, &new).expect("cancelled").state, "Cancelled");

        let _: v1::SubmitRunResponse = world.call(&ended, run::SUBMIT, &wanted).expect("accepted");
        let a = world.attempt_of("a");
        world.report(a, "Succeeded", "1").expect("taken");
        let again: v1::SubmitRunResponse = world.call(&ended, run::SUBMIT, &wanted).expect("the same run");
        assert!(again.repeated);
        assert_eq!(cancel(&mut world, &ended).expect_err("it has ended").code, Code::WrongState);

        for (run, state) in [(&new, "Cancelled"), (&ended, "Completed")] {
            let seen = world.get(run).expect("the run");
            assert_eq!((seen.state.as_str(), seen.engine_state.as_str()), (state, state));
            assert!(seen.ended_at.is_some() && world.stored[run].reminders.is_empty());
        }
        assert!(world.index_of(index::OPEN_RUNS).is_empty() && world.open_steps().is_empty());
    }
}

/// [FR-188] A run that fails by its deadline settles what is open with it.
#[test]
fn a_deadline_settles_what_is_open() {
    let mut wide = flow("wide").step("f", fanout()).step("j", join()).collects("j", "f").deadline_ms(5_000);
    for n in 0..16 {
        let id = format!("s{n:02}");
        wide = wide.step(&id, tool("t")).inside(&id, "f").edge("f", &id).edge(&id, "j");
    }
    let mut world = World::new(RunMode::Bundled).knows(wide.plan());
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("wide@1", "1")).expect("accepted");
    assert_eq!(world.open_steps().len(), 16);
    assert!(world.next_reminder());
    assert!(world.open_steps().is_empty());
    assert_eq!(world.withdrawn.len(), 16, "each worker is told");
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failure.map(|f| f.class)), ("Failed", Some("deadline".into())));
    assert!(!world.next_reminder(), "no reminder is left");
}
