//! Runs that start runs.

use crate::plans::{child, flow, line, tool};
use crate::world::{World, run_id, submit};
use grain_contract::{Code, GrainId, GrainKind, Rejection, TenantId};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use std::sync::Arc;

fn outer() -> Arc<grains::definition::Plan> {
    flow("outer").step("sub", child("inner")).step("after", tool("after")).edge("sub", "after").plan()
}

fn started() -> (World, GrainId, GrainId) {
    let mut world = World::new(RunMode::Bundled).knows(outer()).knows(line("inner", &["x"]));
    let run = run_id(1);
    let mut submit = submit("outer@1", r#"{"n":1}"#);
    if let Some(request) = &mut submit.request {
        request.project_id = "p".into();
    }
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit).expect("accepted");
    let child = world.calls.front().expect("a start").target.clone();
    (world, run, child)
}

fn cancel(world: &mut World, run: &GrainId) {
    let _: v1::Run = world
        .call(run, run::CANCEL, &v1::CancelRunRequest { reason: "enough".into(), ..Default::default() })
        .expect("cancelled");
}

/// [R9] The child runs by itself, inherits what it should, and its end is the step's; delivered twice or once.
#[test]
fn a_child_runs_and_its_end_is_the_steps_end() {
    for times in [1, 2] {
        let (mut world, run, child) = started();
        world.deliver(times);
        let seen = world.get(&child).expect("the child");
        assert_eq!(
            (seen.state.as_str(), seen.project_id.as_str(), seen.parent_run_id.as_str()),
            ("Running", "p", &*run.key)
        );
        assert_eq!(seen.definition_release_id, "inner@1", "pinned to the release that it found");
        let waiting = world.get(&run).expect("the run").waiting.pop().and_then(|w| w.waiting).expect("a reason");
        assert_eq!((waiting.on.as_str(), waiting.child_run_id.as_str()), ("child", &*child.key));
        let x = world.attempt_of("x");
        world.report(x, "Succeeded", "42").expect("taken");
        world.deliver(times);
        let after = world.attempt_of("after");
        world.report(after, "Succeeded", "1").expect("taken");
        assert_eq!(world.get(&run).expect("the run").state, "Completed");
        let ends = world.told(&run).iter().filter(|e| e.starts_with("ChildRunEnded")).count();
        assert_eq!(ends, 1);
    }
}

/// [FR-052] Cancel of the parent before the child was started: the child is accepted and ends at once, whichever comes first.
#[test]
fn a_cancel_reaches_a_child_that_has_not_started() {
    for cancel_first in [true, false] {
        let (mut world, run, child) = started();
        cancel(&mut world, &run);
        if cancel_first {
            let start = world.calls.pop_front().expect("the start");
            world.deliver(2);
            assert_eq!(world.get(&child).expect_err("not submitted").code, Code::NotFound);
            world.calls.push_back(start);
        }
        world.deliver(2);
        assert!(world.open_steps().is_empty(), "no worker sees it");
        assert_eq!(world.get(&child).expect("the child").state, "Cancelled");
        assert_eq!(world.get(&run).expect("the run").state, "Cancelled");
        assert_eq!(world.published(&child).last().map(|e| e.starts_with("cancelled")), Some(true));
    }
}

/// [R9] Cancel of the parent reaches the running child.
#[test]
fn a_cancel_reaches_a_running_child() {
    let (mut world, run, child) = started();
    world.deliver(1);
    assert_eq!(world.open_steps(), ["x"]);
    cancel(&mut world, &run);
    world.deliver(1);
    assert!(world.open_steps().is_empty());
    assert_eq!(world.get(&child).expect("the child").state, "Cancelled");
}

/// [FR-144] [FR-171] The child completes although the parent was cancelled: its end finds a parent that is over.
#[test]
fn a_childs_late_end_is_no_fault() {
    let (mut world, run, child) = started();
    world.deliver(1);
    let x = world.attempt_of("x");
    world.report(x, "Succeeded", "42").expect("taken");
    cancel(&mut world, &run);
    let before = world.stored[&run].clone();
    world.deliver(2);
    assert_eq!(world.stored[&run], before);
    assert_eq!(world.get(&child).expect("the child").state, "Completed");
}

/// A child that cannot be started is the end of its step, and says why.
#[test]
fn a_child_that_cannot_start_fails_its_step() {
    let mut world = World::new(RunMode::Bundled).knows(outer());
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("outer@1", "1")).expect("accepted");
    world.deliver(2);
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failed_step_id.as_str()), ("Failed", "sub"));
    let failure = seen.failure.expect("a reason");
    assert_eq!(failure.class, "infrastructure");
    assert!(failure.message.contains("not-found"), "{}", failure.message);
}

/// [D6] A child whose release is refused is accepted and fails, and so does the step.
#[test]
fn a_childs_refused_release_fails_its_step() {
    use grain_contract::Need;
    let mut world = World::new(RunMode::Bundled).knows(outer()).knows(line("inner", &["x"]));
    world = world.refuses_definition(
        Need { kind: "release-of", key: "inner".into() },
        Rejection::new(Code::Denied, "Expected less, but it is too much."),
    );
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("outer@1", "1")).expect("accepted");
    world.deliver(1);
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failure.map(|f| f.class)), ("Failed", Some("policy-denied".into())));
}

/// Only the parent cancels a child by the parent's call.
#[test]
fn only_the_parent_cancels_its_child() {
    let (mut world, _, child) = started();
    world.deliver(1);
    let stranger = granary_proto::calls::CancelChild {
        child_run_id: child.key.to_string(),
        parent_run_id: run_id(7).key.to_string(),
        reason: String::new(),
    };
    assert_eq!(world.call::<()>(&child, run::CANCEL_CHILD, &stranger).expect_err("refused").code, Code::Invalid);
    let tenant = GrainId::new(&TenantId::new("other"), &GrainKind::new(run::KIND), &child.key);
    assert_eq!(world.get(&tenant).expect_err("another tenant's").code, Code::NotFound);
}
