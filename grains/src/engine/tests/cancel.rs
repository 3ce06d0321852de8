//! Cancel, and who comes first.

use super::*;

const MIXED: &str = "
workflow: mixed
version: '1'
deadlineMinutes: 60
steps:
  - { id: s, kind: Condition, expression: true }
  - { id: a, kind: Tool, tool: echo }
  - { id: ask, kind: Human }
  - { id: nap, kind: Timer, delay: PT1H }
  - { id: child, kind: SubWorkflow, workflow: other }
  - { id: spread, kind: Fanout, items: [1, 2] }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
edges:
  - { from: s, to: a }
  - { from: s, to: ask }
  - { from: s, to: nap }
  - { from: s, to: child }
  - { from: s, to: spread }
  - { from: spread, to: body }
  - { from: body, to: meet }
";

/// [R12] [FR-188] Everything open is closed, children too; timers are gone; the count is what was open.
#[test]
fn cancel_closes_everything_that_is_open() {
    let mut run = Run::of(MIXED);
    run.start("{}");
    assert!(run.p.next_due().is_some());
    assert_eq!(
        run.cancel(),
        [
            "close a",
            "a Cancelled",
            "close ask",
            "ask Cancelled",
            "nap Cancelled",
            "cancel child child",
            "child Cancelled",
            "close body[0]",
            "body[0] Cancelled",
            "close body[1]",
            "body[1] Cancelled",
            "end Cancelled 6",
        ]
    );
    assert_eq!(run.p.next_due(), None);
    assert_eq!(run.graph().active_step_runs, 0);
    assert_eq!(run.p.waiting(&run.plan), []);
    assert_eq!(run.p.plan_next(&run.plan), []);
}

/// [FR-011] The last outcome and a cancel: whichever fact has the lower number decides, and there is one end.
#[test]
fn an_outcome_and_a_cancel_have_one_end() {
    let document = "
workflow: one
version: '1'
steps: [ { id: a, kind: Tool, tool: echo } ]
";
    for cancel_first in [true, false] {
        let mut run = Run::of(document);
        run.start("{}");
        let (a, _) = run.order("a");
        let ok = |sequence| Input::AttemptOutcomeRecorded { sequence, outcome: outcome(a, 1, OutcomeKind::Succeeded) };
        let cancel = |sequence| Input::RunCancelled { sequence, reason: "no".into() };
        let (first, second) = if cancel_first { (cancel(2), ok(3)) } else { (ok(2), cancel(3)) };
        run.tell(first).expect("the first fits");
        let refused = run.tell(second);
        assert!(matches!(refused, Err(Refusal::DoesNotFit { code: "already-terminal", .. })), "{refused:?}");
        assert_eq!(run.state(), if cancel_first { RunState::Cancelled } else { RunState::Completed });
    }
}

/// [FR-115] Nothing is retried behind a cancel, neither what was in flight nor what waited for its next attempt.
#[test]
fn no_retry_behind_a_cancel() {
    let document = "
workflow: retry
version: '1'
steps: [ { id: a, kind: Tool, tool: echo, failurePolicy: Retry, maxAttempts: 10, retry: { initial: 1s, factor: 1 } } ]
";
    for in_flight in [true, false] {
        let mut run = Run::of(document);
        run.start("{}");
        for ms in [1_000, 2_000, 3_000] {
            run.fail("a", "tool");
            run.at(ms);
        }
        let (a, attempt) = run.order("a");
        assert_eq!(attempt, 4);
        if !in_flight {
            run.fail("a", "tool");
        }
        run.cancel();
        assert_eq!(run.at(1_000_000), [""; 0]);
        let late = Input::AttemptOutcomeRecorded {
            sequence: run.p.last_outcome_sequence() + 1,
            outcome: outcome(a, 4, OutcomeKind::Failed),
        };
        assert!(matches!(run.tell(late), Err(Refusal::DoesNotFit { code: "already-terminal", .. })));
        assert_eq!(run.step("a").attempt, 4);
    }
}

/// [R9] [FR-052] [FR-144] The parent's cancel goes out to the child by its id, started or not; whatever the child then says
/// meets an ended run and is no fault.
#[test]
fn a_childs_end_behind_the_parents_cancel_is_nothing() {
    let document = "
workflow: parent
version: '1'
steps: [ { id: child, kind: SubWorkflow, workflow: other } ]
";
    for kind in [OutcomeKind::Succeeded, OutcomeKind::Failed, OutcomeKind::Cancelled] {
        let mut run = Run::of(document);
        run.start("{}");
        let (id, _) = run.order("child");
        assert_eq!(run.cancel(), ["cancel child child", "child Cancelled", "end Cancelled 1"]);
        let end = Input::AttemptOutcomeRecorded { sequence: 3, outcome: outcome(id, 1, kind) };
        assert!(matches!(run.tell(end), Err(Refusal::DoesNotFit { code: "already-terminal", .. })));
        assert_eq!(run.state(), RunState::Cancelled);
    }
}

/// [FR-188] A parent that fails by its deadline settles its children as a cancel does.
#[test]
fn a_failing_parent_cancels_its_children() {
    let mut run = Run::of(MIXED);
    run.start("{}");
    let lines = run.at(3_600_000);
    assert!(lines.contains(&"cancel child child".into()) && lines.contains(&"close body[1]".into()), "{lines:?}");
    assert_eq!(lines.last().expect("an end"), "end Failed  deadline");
}

/// [FR-160] A half filled Join can be cancelled at any moment, and nothing of it is left.
#[test]
fn a_half_filled_join_can_be_cancelled() {
    let mut run = Run::of(MIXED);
    run.start("{}");
    run.ok("body[0]", "1");
    assert_eq!(run.cancel().last().expect("an end"), "end Cancelled 5");
    assert!(run.p.half_ready.is_empty());
}

/// [R12] [FR-114] A cancel compensates nothing: S1 leads from Running to Cancelled, and Compensating to Failed only. What was
/// done stays visible as Succeeded; a second cancel finds the run ended.
#[test]
fn a_cancel_compensates_nothing() {
    let mut run = Run::of(
        "
workflow: saga
version: '1'
steps:
  - { id: hold, kind: Tool, tool: reserve, actionClass: sandbox, compensation: unhold }
  - { id: ship, kind: Tool, tool: dispatch, actionClass: sandbox }
  - { id: unhold, kind: Compensation, tool: release, actionClass: sandbox }
edges: [ { from: hold, to: ship } ]
",
    );
    run.start("{}");
    run.ok("hold", "1");
    assert_eq!(run.cancel(), ["close ship", "ship Cancelled", "end Cancelled 1"]);
    assert_eq!(run.graph().compensation_entries, []);
    assert_eq!(run.step("hold").state, "Succeeded");
    let again = Input::RunCancelled { sequence: 4, reason: "again".into() };
    assert!(matches!(run.tell(again), Err(Refusal::DoesNotFit { code: "already-terminal", .. })));
}

/// [V1] [FR-119] Two hundred orders and their closings leave in one rising order: no closing before its order.
#[test]
fn orders_and_closings_keep_their_order() {
    let mut run = Run::of(&super::joins::quorum("quorum: all"));
    run.options.max_fanout = 200;
    let items: Vec<u32> = (0..200).collect();
    let mut lines = run.start(&serde_json::json!({ "items": items }).to_string());
    lines.extend(run.cancel());
    for branch in 0..200 {
        let place = |line: String| lines.iter().position(|found| *found == line).expect("it is there");
        let ordered = place(format!("do body[{branch}]/1 agent:reviewer {branch}"));
        assert!(ordered < place(format!("close body[{branch}]")));
    }
    assert_eq!(lines.last().expect("an end"), "end Cancelled 200");
}
