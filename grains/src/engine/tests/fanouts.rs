//! Fanouts.

use super::joins::quorum;
use super::*;

/// [R5] Static: one branch an edge; a branch has its own number, steps only of its own road, and may be empty.
#[test]
fn a_static_fanout_has_a_branch_an_edge() {
    let mut run = Run::of(
        "
workflow: static
version: '1'
steps:
  - { id: split, kind: Fanout }
  - { id: left, kind: Tool, tool: echo }
  - { id: left2, kind: Tool, tool: echo }
  - { id: right, kind: Agent, agent: clerk }
  - { id: meet, kind: Join }
edges:
  - { from: split, to: left }
  - { from: split, to: right }
  - { from: left, to: left2 }
  - { from: left2, to: meet }
  - { from: right, to: meet }
",
    );
    assert_eq!(
        run.start("{}"),
        [
            "started",
            "split Succeeded",
            "left[0] Ready",
            "do left[0]/1 tool:echo {}",
            "right[1] Ready",
            "do right[1]/1 agent:clerk {}"
        ]
    );
    run.ok("right[1]", "2");
    run.ok("left[0]", "0");
    assert_eq!(run.ok("left2[0]", "1"), ["left2[0] Succeeded", "meet Succeeded", "end Completed [1,2]"]);
}

/// [R5] Too many branches fail the step, and nothing of them is started.
#[test]
fn more_branches_than_allowed_fail_the_fanout() {
    let mut run = Run::of(&quorum("quorum: all"));
    run.options.max_fanout = 3;
    assert_eq!(run.start(r#"{"items":[1,2,3,4]}"#), ["started", "spread Failed", "end Failed spread fanout-limit"]);
    assert_eq!(run.graph().failure.expect("a failure").message, "Expected at most 3 branches, but found 4.");
}

#[test]
fn items_that_are_no_list_fail_the_fanout() {
    let mut run = Run::of(&quorum("quorum: all"));
    assert_eq!(run.start(r#"{"items":7}"#), ["started", "spread Failed", "end Failed spread mapping"]);
    assert_eq!(run.graph().failure.expect("a failure").message, "Expected items to be a list, but found a number.");
}

/// [R5] Inside a branch `item` and `index` are its own; the input is the element.
#[test]
fn a_branch_sees_its_element() {
    let mut run = Run::of(
        "
workflow: elements
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: plain, kind: Tool, tool: echo }
  - { id: mapped, kind: Tool, tool: echo, inputMapping: { at: { var: index }, n: { var: item.n }, before: { var: plain } } }
  - { id: meet, kind: Join }
edges:
  - { from: spread, to: plain }
  - { from: plain, to: mapped }
  - { from: mapped, to: meet }
",
    );
    let lines = run.start(r#"{"items":[{"n":5},{"n":6}]}"#);
    assert_eq!(lines[3], r#"do plain[0]/1 tool:echo {"n":5}"#);
    let lines = run.ok("plain[1]", "\"p\"");
    let input = lines[2].strip_prefix("do mapped[1]/1 tool:echo ").expect("an order");
    let input: serde_json::Value = serde_json::from_str(input).expect("JSON");
    assert_eq!(input, serde_json::json!({ "at": 1, "n": 6, "before": "p" }));
}

/// [FR-103] Behind two steps a Fanout opens when both have ended; the order changes nothing but times.
#[test]
fn a_fanout_opens_when_all_before_it_have_ended() {
    let document = "
workflow: two-parents
version: '1'
steps:
  - { id: x, kind: Tool, tool: echo }
  - { id: y, kind: Tool, tool: echo }
  - { id: spread, kind: Fanout, items: { var: x } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
edges:
  - { from: x, to: spread }
  - { from: y, to: spread }
  - { from: spread, to: body }
  - { from: body, to: meet }
";
    let mut ids = Vec::new();
    for order in [["x", "y"], ["y", "x"]] {
        let mut run = Run::of(document);
        run.start("{}");
        assert_eq!(run.ok(order[0], "[1,2]").len(), 1);
        run.ok(order[1], "[1,2]");
        ids.push(["body[0]", "body[1]"].map(|name| run.order(name)));
    }
    assert_eq!(ids[0], ids[1], "the same step runs by the same ids");
}

/// [R9] [FR-140] Nested too deep: the run fails and names the place. Not retried, since depth does not change.
#[test]
fn sub_workflows_end_at_the_stated_depth() {
    let document = "
workflow: parent
version: '1'
steps: [ { id: child, kind: SubWorkflow, workflow: other@1, failurePolicy: Retry } ]
";
    let mut run = Run::of(document);
    run.options.max_depth = 2;
    let deep = Accepted { depth: 2, ..accepted("{}", "") };
    let lines = run.fact(|sequence| Input::RunAccepted { sequence, accepted: deep });
    assert_eq!(lines, ["started", "child Failed", "end Failed child policy-denied"]);
    let message = run.graph().failure.expect("a failure").message;
    assert!(message.contains("at most 2 deep") && message.contains("parent") && message.contains("other"), "{message}");
}

/// [R9] The child's end is the step's outcome; a second attempt is another child, and the first one's late end is nothing.
#[test]
fn a_child_run_is_a_step() {
    let mut run = Run::of(
        "
workflow: parent
version: '1'
steps:
  - { id: child, kind: SubWorkflow, workflow: other, failurePolicy: Retry, maxAttempts: 2, retry: { initial: 1s } }
  - { id: b, kind: Tool, tool: echo }
edges: [ { from: child, to: b } ]
",
    );
    assert_eq!(run.start("{}"), ["started", "child Running", "child child other depth 1"]);
    let (id, _) = run.order("child");
    let first = crate::engine::ids::child_run_id(id, 1);
    let second = crate::engine::ids::child_run_id(id, 2);
    assert_ne!(first, second);
    assert_eq!(run.waits("child"), format!("child: child run {first}"));
    let end = |child, kind| Outcome { attempt_id: Some(child), output: b"7".to_vec(), ..outcome(id, 1, kind) };
    assert_eq!(run.outcome(end(first, OutcomeKind::Failed)), ["child WaitingForTimer"]);
    assert_eq!(run.at(1_000), ["timer child late 0", "child Running", "child child other depth 1"]);
    assert_eq!(run.outcome(end(first, OutcomeKind::Succeeded)), [""; 0]);
    assert!(run.superseded());
    let lines = run.outcome(end(second, OutcomeKind::Succeeded));
    assert_eq!(lines[0], "child Succeeded");
    assert_eq!(run.output("child"), "7");
}
