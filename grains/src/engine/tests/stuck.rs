//! The sweep.

use super::*;

const TWO: &str = "
workflow: two
version: '1'
steps:
  - { id: s, kind: Condition, expression: true }
  - { id: a, kind: Tool, tool: echo }
  - { id: ask, kind: Human }
  - { id: child, kind: SubWorkflow, workflow: other }
  - { id: nap, kind: Timer, delay: PT6M }
edges: [ { from: s, to: a }, { from: s, to: ask }, { from: s, to: child }, { from: s, to: nap } ]
";

/// [R15] What is active and not open is asked for again, under the same ids; once for each outcome sequence.
#[test]
fn what_is_not_open_is_asked_for_again() {
    let mut run = Run::of(TWO);
    run.start("{}");
    let before = ["a", "ask", "child"].map(|name| run.order(name));
    run.now = T0 + 299_999;
    assert_eq!(run.check_stuck(&[]), [""; 0], "not yet");
    run.now = T0 + 300_000;
    assert_eq!(run.check_stuck(&[]), ["do a/1 tool:echo {}", "ask ask/1 approval {}", "child child other depth 1"]);
    assert_eq!(["a", "ask", "child"].map(|name| run.order(name)), before);
    run.now = T0 + 340_000;
    assert_eq!(run.check_stuck(&[]), [""; 0], "the same pair of step run and sequence");
    run.ok("a", "1");
    run.now = T0 + 700_000;
    let lines = run.check_stuck(&["child"]);
    assert_eq!(lines[..1], ["timer nap late 340000"], "a timer that did not fire is fired");
    assert_eq!(lines[2..], ["ask ask/1 approval {}"]);
}

/// [R15] What Run Control has open is left alone.
#[test]
fn what_is_open_is_left_alone() {
    let mut run = Run::of(TWO);
    run.start("{}");
    run.now = T0 + 301_000;
    assert_eq!(run.check_stuck(&["a", "ask", "child"]), [""; 0]);
}
