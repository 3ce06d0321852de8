//! Releases that cannot be had.

use crate::plans::line;
use crate::world::{World, run_id, submit};
use grain_contract::{Code, Rejection};
use grains::kinds::RunMode;
use grains::kinds::methods::{index, run};
use granary_proto::v1;

/// [FR-149] An unknown release stores nothing, and may be loaded a moment later.
#[test]
fn an_unknown_release_stores_nothing() {
    let mut world = World::new(RunMode::Bundled);
    world.reload = false;
    let run = run_id(1);
    for _ in 0..2 {
        let unknown =
            world.call::<v1::SubmitRunResponse>(&run, run::SUBMIT, &submit("line@1", "1")).expect_err("unknown");
        assert_eq!(unknown.code, Code::NotFound);
    }
    assert!(world.turns.is_empty());
    let mut world = world.knows(line("line", &["a"]));
    let reply: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("loaded meanwhile");
    assert_eq!(reply.run.expect("the run").state, "Running");
}

/// [D6] [FR-070] A run that pins a refused release fails at its acceptance, says why, and stays readable.
#[test]
fn a_refused_release_fails_the_run_at_acceptance() {
    let table = [
        (Rejection::new(Code::Denied, "Expected an allowed class, but deploy is not."), "policy-denied"),
        (Rejection::new(Code::Quarantined, "Expected a plan, but a step is null."), "infrastructure"),
    ];
    for (why, class) in table {
        let mut world = World::new(RunMode::Bundled).refuses("bad@1", why.clone());
        let run = run_id(1);
        let reply: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("bad@1", "1")).expect("accepted");
        let seen = reply.run.expect("the run");
        assert_eq!((seen.state.as_str(), seen.engine_state.as_str()), ("Failed", "Failed"));
        let failure = seen.failure.clone().expect("a reason");
        assert_eq!(failure.class, class);
        assert!(failure.message.contains(&why.message), "{}", failure.message);
        assert_eq!(world.get(&run).expect("readable"), seen);
        assert_eq!(world.graph(&run).state, "Failed");
        assert_eq!(world.told(&run), ["RunAccepted", "RunFailed"]);
        assert_eq!(world.published(&run).iter().filter(|e| e.starts_with("failed")).count(), 1);
        assert!(world.index_of(index::OPEN_RUNS).is_empty());
        let again: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("bad@1", "1")).expect("the same");
        assert!(again.repeated);
        let cancel = world.call::<v1::Run>(&run, run::CANCEL, &v1::CancelRunRequest::default()).expect_err("ended");
        assert_eq!(cancel.code, Code::WrongState);
    }
}

/// A release that was there when the run began and is refused now: the run is not lost, it waits for its plan.
#[test]
fn a_plan_that_is_gone_is_a_refusal_of_the_call_only() {
    let mut world = World::new(RunMode::Bundled).knows(line("line", &["a"]));
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    let a = world.attempt_of("a");
    let mut world = world.refuses("line@1", Rejection::new(Code::Unavailable, "Expected the release, but it is away."));
    let before = world.stored.clone();
    assert_eq!(world.report(a, "Succeeded", "1").expect_err("not now").code, Code::Unavailable);
    assert_eq!(world.stored, before);
    let mut world = world.knows(line("line", &["a"]));
    assert!(world.report(a, "Succeeded", "1").expect("now").accepted);
    assert_eq!(world.get(&run).expect("the run").state, "Completed");
}
