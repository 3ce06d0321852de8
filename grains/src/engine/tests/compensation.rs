//! Compensation.

use super::*;

fn saga(pay: &str, undo: &str) -> String {
    format!(
        "
workflow: saga
version: '1'
steps:
  - {{ id: hold, kind: Tool, tool: reserve, actionClass: sandbox, compensation: unhold }}
  - {{ id: pay, kind: Tool, tool: charge, actionClass: sandbox, compensation: refund, {pay} }}
  - {{ id: ship, kind: Tool, tool: dispatch, actionClass: sandbox, compensation: recall }}
  - {{ id: seal, kind: Tool, tool: stamp, actionClass: sandbox, failurePolicy: Compensate }}
  - {{ id: unhold, kind: Compensation, tool: release, actionClass: sandbox }}
  - {{ id: refund, kind: Compensation, tool: pay-back, actionClass: sandbox, {undo} }}
  - {{ id: recall, kind: Compensation, tool: call-back, actionClass: sandbox }}
edges:
  - {{ from: hold, to: pay }}
  - {{ from: pay, to: ship }}
  - {{ from: ship, to: seal }}
"
    )
}

fn up_to_seal(run: &mut Run) {
    run.start("{}");
    run.ok("hold", "1");
    run.ok("pay", "2");
    run.ok("ship", "3");
}

/// [R11] [FR-089] In reverse order of completion, one at a time, with the forward output as input.
#[test]
fn what_succeeded_is_undone_in_reverse_order() {
    let mut run = Run::of(&saga("failurePolicy: Fail", "failurePolicy: Fail"));
    up_to_seal(&mut run);
    assert_eq!(
        run.fail("seal", "tool"),
        ["seal Failed", "compensate 3", "recall Ready", "do recall/1 tool:call-back 3"]
    );
    assert_eq!(run.state(), RunState::Compensating);
    assert_eq!(run.waits("recall"), "compensation: worker for queue tool:call-back");
    assert_eq!(run.ok("recall", "1"), ["recall Succeeded", "refund Ready", "do refund/1 tool:pay-back 2"]);
    assert_eq!(run.ok("refund", "1"), ["refund Succeeded", "unhold Ready", "do unhold/1 tool:release 1"]);
    assert_eq!(run.ok("unhold", "1"), ["unhold Succeeded", "end Failed seal tool compensated"]);
    let graph = run.graph();
    assert!(graph.compensated);
    let entries: Vec<(&str, u32, &str)> = graph
        .compensation_entries
        .iter()
        .map(|entry| (entry.compensation_step_id.as_str(), entry.order, entry.state.as_str()))
        .collect();
    assert_eq!(entries, [("recall", 1, "Succeeded"), ("refund", 2, "Succeeded"), ("unhold", 3, "Succeeded")]);
}

/// [FR-048] A step that needed two attempts is undone once, with the output of the one that succeeded.
#[test]
fn a_retried_step_is_undone_once() {
    let mut run = Run::of(&saga("failurePolicy: Retry, maxAttempts: 3, retry: { initial: 1s }", "failurePolicy: Fail"));
    run.start("{}");
    run.ok("hold", "1");
    run.fail("pay", "tool");
    run.at(1_000);
    run.ok("pay", "\"second\"");
    run.ok("ship", "3");
    run.fail("seal", "tool");
    assert_eq!(run.ok("recall", "1")[2], "do refund/1 tool:pay-back \"second\"");
    run.ok("refund", "1");
    run.ok("unhold", "1");
    assert_eq!(run.graph().step_runs.iter().filter(|step| step.step_id == "refund").count(), 1);
}

/// [R11] A failed compensation ends the run at once; the follow-up says what was undone and what was not.
#[test]
fn a_failed_compensation_ends_the_run_with_a_follow_up() {
    let mut run = Run::of(&saga("failurePolicy: Fail", "failurePolicy: Retry, maxAttempts: 2, retry: { initial: 1s }"));
    up_to_seal(&mut run);
    run.fail("seal", "tool");
    run.ok("recall", "1");
    assert_eq!(run.fail("refund", "tool"), ["refund WaitingForTimer"], "its own policy is Retry");
    assert_eq!(run.state(), RunState::Compensating);
    run.at(1_000);
    assert_eq!(run.fail("refund", "tool"), ["refund Failed", "end Failed refund compensation"]);
    let graph = run.graph();
    assert!(!graph.compensated);
    let follow_up = graph.follow_up.expect("a follow-up");
    assert_eq!(follow_up.undone_step_ids, ["ship"]);
    assert_eq!(follow_up.not_undone_step_ids, ["pay", "hold"]);
    assert!(follow_up.reason.contains("seal"), "{}", follow_up.reason);
}

/// [R11] What may or may not have been undone counts as not undone.
#[test]
fn an_uncertain_compensation_is_a_failed_one() {
    let mut run = Run::of(&saga("failurePolicy: Fail", "failurePolicy: Fail"));
    up_to_seal(&mut run);
    run.fail("seal", "tool");
    assert_eq!(
        run.end("recall", OutcomeKind::Uncertain, "", None),
        ["recall Failed", "end Failed recall compensation"]
    );
    assert!(!run.graph().compensated);
}

/// [R11] `compensated` is not true where there was nothing to undo.
#[test]
fn nothing_to_undo_is_not_compensated() {
    let mut run = Run::of(
        "
workflow: nothing
version: '1'
steps: [ { id: a, kind: Tool, tool: echo, failurePolicy: Compensate } ]
",
    );
    run.start("{}");
    assert_eq!(run.fail("a", "tool"), ["a Failed", "compensate 0", "end Failed a tool"]);
    assert!(!run.graph().compensated);
}

fn branches(losers: &str) -> String {
    format!(
        "
workflow: branches
version: '1'
steps:
  - {{ id: spread, kind: Fanout, items: [0, 1, 2] }}
  - {{ id: body, kind: Tool, tool: echo, actionClass: sandbox, compensation: undo }}
  - {{ id: meet, kind: Join, quorum: 2, losers: {losers} }}
  - {{ id: close, kind: Tool, tool: echo, actionClass: sandbox, failurePolicy: Compensate }}
  - {{ id: undo, kind: Compensation, tool: undo, actionClass: sandbox, inputMapping: {{ at: {{ var: index }}, did: {{ var: body }} }} }}
edges:
  - {{ from: spread, to: body }}
  - {{ from: body, to: meet }}
  - {{ from: meet, to: close }}
"
    )
}

/// [R11] [FR-113] Parallel branches, kept losers too, are undone in reverse order of completion, each with its own.
#[test]
fn branches_are_undone_in_reverse_order_of_completion() {
    let mut run = Run::of(&branches("keep"));
    run.start("{}");
    run.ok("body[1]", "11");
    run.ok("body[0]", "10");
    run.ok("body[2]", "12");
    assert_eq!(run.fail("close", "tool")[1..3], ["compensate 3", "undo[2] Ready"]);
    let mut order = Vec::new();
    for branch in [2, 0, 1] {
        let name = format!("undo[{branch}]");
        let graph = run.graph();
        let open = graph.step_runs.iter().find(|step| step.state == "Ready").expect("one is open");
        assert_eq!(open.branch, [branch]);
        let planned = run.p.plan_next(&run.plan);
        order.push(String::from_utf8(planned[0].input.clone().expect("an input").text).expect("JSON"));
        run.ok(&name, "1");
    }
    assert_eq!(order, [r#"{"at":2,"did":12}"#, r#"{"at":0,"did":10}"#, r#"{"at":1,"did":11}"#]);
    assert!(run.graph().compensated);
}

/// [R11] [FR-113] What is in flight when compensation begins is closed; its late success is refused as superseded.
#[test]
fn in_flight_when_compensation_begins_is_closed() {
    let mut run = Run::of(&branches("keep"));
    run.start("{}");
    run.ok("body[1]", "11");
    run.ok("body[0]", "10");
    let (late, attempt) = run.order("body[2]");
    assert_eq!(
        run.fail("close", "tool"),
        [
            "close Failed",
            "close body[2]",
            "body[2] Cancelled",
            "compensate 2",
            "undo[0] Ready",
            r#"do undo[0]/1 tool:undo {"at":0,"did":10}"#
        ]
    );
    assert_eq!(run.outcome(outcome(late, attempt, OutcomeKind::Succeeded)), [""; 0]);
    assert!(run.superseded());
}

/// [R12] A cancel that comes while the run compensates changes nothing: undoing is not itself cut short.
#[test]
fn a_cancel_does_not_cut_compensation_short() {
    let mut run = Run::of(&saga("failurePolicy: Fail", "failurePolicy: Fail"));
    up_to_seal(&mut run);
    run.fail("seal", "tool");
    assert_eq!(run.cancel(), [""; 0]);
    assert!(run.superseded());
    run.ok("recall", "1");
    run.ok("refund", "1");
    assert_eq!(run.ok("unhold", "1"), ["unhold Succeeded", "end Failed seal tool compensated"]);
}

/// [R11] A step whose work was done and whose guard then failed has done its work: it is undone too.
#[test]
fn a_step_that_failed_behind_its_work_is_undone() {
    let mut run = Run::of(
        "
workflow: behind
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, actionClass: sandbox, failurePolicy: Compensate, compensation: undo }
  - { id: b, kind: Tool, tool: echo, actionClass: sandbox }
  - { id: undo, kind: Compensation, tool: undo, actionClass: sandbox }
edges: [ { from: a, to: b, guard: { '<': [ { '+': [ { var: a.n }, 1 ] }, 3 ] } } ]
",
    );
    run.start("{}");
    assert_eq!(
        run.ok("a", r#"{"n":{}}"#),
        ["a Failed", "compensate 1", "undo Ready", r#"do undo/1 tool:undo {"n":{}}"#]
    );
}

/// [FR-167] Inside a saga what is done is done: a retried payment does not hold or ask again.
#[test]
fn a_retry_does_not_repeat_what_is_done() {
    let mut run = Run::of(
        "
workflow: with-human
version: '1'
steps:
  - { id: hold, kind: Tool, tool: reserve, actionClass: sandbox, compensation: unhold }
  - { id: ask, kind: Human, actionClass: sandbox }
  - { id: pay, kind: Tool, tool: charge, actionClass: sandbox, failurePolicy: Retry, maxAttempts: 3, retry: { initial: 1s, factor: 1 } }
  - { id: unhold, kind: Compensation, tool: release, actionClass: sandbox }
edges: [ { from: hold, to: ask }, { from: ask, to: pay } ]
",
    );
    run.start("{}");
    run.ok("hold", "1");
    run.decide("ask", "approved");
    for ms in [1_000, 2_000] {
        run.fail("pay", "tool");
        run.at(ms);
    }
    run.ok("pay", "1");
    assert_eq!(run.state(), RunState::Completed);
    let graph = run.graph();
    let tries: Vec<(&str, u32)> = graph.step_runs.iter().map(|step| (step.step_id.as_str(), step.attempt)).collect();
    assert_eq!(tries, [("hold", 1), ("ask", 1), ("pay", 3)]);
}

/// [R11] Several branches that fail within one turn are one compensation, and nothing is started behind it.
#[test]
fn failures_of_one_turn_compensate_once() {
    let mut run = Run::of(
        "
workflow: together
version: '1'
steps:
  - { id: first, kind: Tool, tool: echo, compensation: undo }
  - { id: spread, kind: Fanout, items: [1, 2, 3] }
  - { id: body, kind: Tool, tool: echo, inputMapping: { n: { '+': [ { var: input.n }, { var: item } ] } }, failurePolicy: Compensate }
  - { id: meet, kind: Join }
  - { id: undo, kind: Compensation, tool: undo }
edges: [ { from: first, to: spread }, { from: spread, to: body }, { from: body, to: meet } ]
",
    );
    run.start(r#"{"n":{}}"#);
    assert_eq!(
        run.ok("first", "1"),
        [
            "first Succeeded",
            "spread Succeeded",
            "body[0] Failed",
            "compensate 1",
            "undo Ready",
            "do undo/1 tool:undo 1"
        ]
    );
    assert_eq!(run.ok("undo", "1"), ["undo Succeeded", "end Failed body mapping compensated"]);
}
