//! Ready and Running: whether a worker is at it.

use super::*;

const LINE: &str = "
workflow: line
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, failurePolicy: Retry, maxAttempts: 3, retry: { initial: 1s } }
  - { id: b, kind: Tool, tool: echo, failurePolicy: Compensate, compensation: undo }
  - { id: undo, kind: Compensation, tool: undo }
edges: [ { from: a, to: b } ]
";

fn started(run: &Run, name: &str) -> Option<i64> {
    run.step(name).started_at.map(|at| at.millis() - T0)
}

/// [R1] A claim moves the step run to Running and is when it started; before it, nothing has started. Told once.
#[test]
fn a_claimed_step_runs() {
    let mut run = Run::of(LINE);
    assert_eq!(run.start("{}"), ["started", "a Ready", "do a/1 tool:echo {}"]);
    assert_eq!(started(&run, "a"), None);
    run.now = T0 + 500;
    assert_eq!(run.claim("a"), ["a Running"]);
    assert_eq!(run.claim("a"), [""; 0], "it runs already");
    assert_eq!((run.state(), started(&run, "a")), (RunState::Running, Some(500)));
    assert_eq!(run.waits("a"), "worker: worker for queue tool:echo");
    assert_eq!(run.ok("a", "1"), ["a Succeeded", "b Ready", "do b/1 tool:echo {}"]);
}

/// [R1] An attempt that its worker never started is Ready again; when the step first ran stays known.
#[test]
fn a_step_that_never_started_is_ready_again() {
    let mut run = Run::of(LINE);
    run.start("{}");
    assert_eq!(run.requeue("a"), [""; 0], "nobody had it");
    run.claim("a");
    assert_eq!(run.requeue("a"), ["a Ready"]);
    assert_eq!(run.claim("a"), ["a Running"]);
    assert_eq!(run.state(), RunState::Running);
}

/// [R1] [R10] Every attempt goes the same way: Ready, then Running.
#[test]
fn each_attempt_runs_anew() {
    let mut run = Run::of(LINE);
    run.start("{}");
    run.claim("a");
    let (step_run_id, _) = run.order("a");
    assert_eq!(run.fail("a", "tool"), ["a WaitingForTimer"]);
    assert_eq!(run.at(1_000), ["timer a late 0", "a Ready", "do a/2 tool:echo {}"]);
    let late = Input::AttemptClaimed { step_run_id, attempt: 1 };
    assert_eq!(run.tell(late).expect("not refused"), [""; 0], "an older attempt moves nothing");
    assert_eq!(run.claim("a"), ["a Running"]);
    assert_eq!(run.ok("a", "1"), ["a Succeeded", "b Ready", "do b/1 tool:echo {}"]);
    run.claim("b");
    assert_eq!(run.ok("b", "2"), ["b Succeeded", "end Completed 2"]);
    assert_eq!(started(&run, "b"), Some(1_000));
}

/// [R1] [R11] A compensation runs like any other work.
#[test]
fn a_compensation_runs() {
    let mut run = Run::of(
        "
workflow: undone
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, compensation: undo }
  - { id: b, kind: Tool, tool: echo, failurePolicy: Compensate }
  - { id: undo, kind: Compensation, tool: undo }
edges: [ { from: a, to: b } ]
",
    );
    run.start("{}");
    run.ok("a", "1");
    run.claim("b");
    assert_eq!(run.fail("b", "tool"), ["b Failed", "compensate 1", "undo Ready", "do undo/1 tool:undo 1"]);
    assert_eq!(run.claim("undo"), ["undo Running"]);
    assert_eq!(run.state(), RunState::Compensating);
    assert!(run.waits("undo").starts_with("compensation: "), "{}", run.waits("undo"));
    assert_eq!(run.ok("undo", "1"), ["undo Succeeded", "end Failed b tool compensated"]);
}

/// [R1] What runs is cancelled, timed out and escalated as what is ready is.
#[test]
fn a_running_step_ends_in_every_way() {
    let cancelled = |run: &mut Run| run.cancel();
    let timed_out = |run: &mut Run| run.at(3_600_000);
    let uncertain = |run: &mut Run| run.end("a", OutcomeKind::Uncertain, "", None);
    type Way = fn(&mut Run) -> Vec<String>;
    let table: [(Way, &[&str]); 3] = [
        (cancelled, &["close a", "a Cancelled", "end Cancelled 1"]),
        (timed_out, &["timer a late 0", "time out a", "a WaitingForTimer"]),
        (uncertain, &["a WaitingForTimer"]),
    ];
    for (way, wanted) in table {
        let mut run = Run::of(LINE);
        run.start("{}");
        run.claim("a");
        assert_eq!(way(&mut run), wanted);
    }
}

/// [R15] Whom nobody is at any more is Ready, and asked for again.
#[test]
fn a_running_step_that_nobody_has_is_asked_for_again() {
    let mut run = Run::of(LINE);
    run.start("{}");
    run.claim("a");
    run.now = T0 + 300_000;
    assert_eq!(run.check_stuck(&["a"]), [""; 0]);
    assert_eq!(run.check_stuck(&[]), ["a Ready", "do a/1 tool:echo {}"]);
}

/// [R1] Where nobody tells of claims, a step has been at work since it was ordered, for all that is known; one that was
/// cancelled in its queue never started.
#[test]
fn without_claims_a_step_starts_with_its_order() {
    let mut run = Run::of(LINE);
    run.now = T0 + 100;
    run.start("{}");
    run.now = T0 + 900;
    run.ok("a", "1");
    assert_eq!(started(&run, "a"), Some(100));
    run.cancel();
    assert_eq!(started(&run, "b"), None);
}

/// [R1] A claim that is told within the turn that closed its step run, or ended the run, comes too late.
#[test]
fn a_claim_moves_nothing_that_has_ended() {
    let mut run = Run::of(LINE);
    run.start("{}");
    let (step_run_id, attempt) = run.order("a");
    run.ok("a", "1");
    assert_eq!(run.tell(Input::AttemptClaimed { step_run_id, attempt }).expect("not refused"), [""; 0]);
    run.cancel();
    assert_eq!(run.tell(Input::AttemptClaimed { step_run_id, attempt }).expect("not refused"), [""; 0]);
}
