//! What one turn may write, and what becomes of one that would write more.

use super::*;
use grain_contract::limits::{ENTRY_BYTES_MAX, TURN_BYTES_MAX};

/// Every branch gets all of the input.
fn copying(branches: &str, policy: &str) -> String {
    format!(
        "
workflow: copying
version: '1'
steps:
  - {{ id: spread, kind: Fanout, items: {branches} }}
  - {{ id: body, kind: Tool, tool: echo, inputMapping: {{ copy: {{ var: input }} }}, {policy} }}
  - {{ id: meet, kind: Join, quorum: any }}
  - {{ id: close, kind: Tool, tool: echo, inputMapping: {{}} }}
edges: [ {{ from: spread, to: body }}, {{ from: body, to: meet }}, {{ from: meet, to: close }} ]
"
    )
}

fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes))
}

fn quiet(document: &str) -> Run {
    let mut run = Run::of(document);
    run.reload = false;
    run
}

/// [R4] [FR-125] Large values mapped into many branches: those that fit go on, the others fail and say why, the turn stays
/// below an entry, and the run goes to its end.
#[test]
fn values_copied_into_too_many_branches_fail_their_branches() {
    let mut run = quiet(&copying("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "failurePolicy: Fail"));
    let lines = run.start(&text(600_000));
    assert!(run.written * 2 < ENTRY_BYTES_MAX, "{} bytes here, and once more in Run Control", run.written);
    let ordered = lines.iter().filter(|line| line.starts_with("do body")).count();
    let failed = lines.iter().filter(|line| line.ends_with(" Failed")).count();
    assert_eq!((ordered, failed), (6, 10));
    let failure = run.step("body[15]").failure.expect("it says why");
    assert_eq!(failure.class, "mapping");
    assert!(failure.message.starts_with("Expected the values that one turn makes"), "{}", failure.message);
    let lines = run.ok("body[0]", "1");
    assert!(lines.contains(&"do close/1 tool:echo {}".into()), "{lines:?}");
    run.ok("close", "1");
    assert_eq!(run.run_output(), "1");
}

/// The same document and a smaller input: nothing fails. The next turn has the whole bound again.
#[test]
fn values_that_fit_are_ordered() {
    let mut run = quiet(&copying("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "failurePolicy: Fail"));
    let lines = run.start(&text(200_000));
    assert_eq!(lines.iter().filter(|line| line.starts_with("do body")).count(), 16);
    assert!(run.p.spent_bytes() == 0, "counted anew behind the commit");
}

/// [R10] What does not fit is handled by the step's policy, which itself must fit: a human is asked, without the input.
#[test]
fn an_escalation_comes_through_without_the_input() {
    let mut run = quiet(&copying("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "failurePolicy: Escalate"));
    let lines = run.start(&text(600_000));
    let asked: Vec<&String> = lines.iter().filter(|line| line.starts_with("ask body")).collect();
    assert_eq!(asked.len(), 10);
    assert!(run.written < ENTRY_BYTES_MAX / 2);
    // In a later turn there is room.
    let lines = run.decide("body[15]", "retry");
    assert!(lines[1].starts_with("do body[15]/3 "), "{}", lines[1].get(..40).unwrap_or_default());
}

/// [R11] A compensation always has room: it is one, and it must not fail for what was asked for before it.
#[test]
fn what_does_not_fit_is_compensated() {
    let document = "
workflow: undone
version: '1'
steps:
  - { id: first, kind: Tool, tool: echo, compensation: undo }
  - { id: spread, kind: Fanout, items: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16] }
  - { id: body, kind: Tool, tool: echo, inputMapping: { copy: { var: first } }, failurePolicy: Compensate }
  - { id: meet, kind: Join }
  - { id: undo, kind: Compensation, tool: undo }
edges: [ { from: first, to: spread }, { from: spread, to: body }, { from: body, to: meet } ]
";
    let mut run = quiet(document);
    run.start("{}");
    let lines = run.ok("first", &text(600_000));
    assert!(lines.contains(&"compensate 1".into()) && lines.contains(&"undo Ready".into()));
    assert!(run.written < ENTRY_BYTES_MAX / 2);
    assert_eq!(run.ok("undo", "1"), ["undo Succeeded", "end Failed body mapping compensated"]);
}

/// [R5] Elements are values too, and so is what a condition gives.
#[test]
fn elements_and_conditions_are_counted() {
    let half = text(500_000);
    let mut run = quiet(
        "
workflow: elements
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { map: [ { var: input.all }, { var: '' } ] } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
edges: [ { from: spread, to: body }, { from: body, to: meet } ]
",
    );
    let all = [half.as_str(); 10].join(",");
    assert_eq!(run.start(&format!("{{\"all\":[{all}]}}")).last().expect("an end"), "end Failed spread mapping");

    let mut run = quiet(
        "
workflow: echoing
version: '1'
maxLoopIterations: 1000
steps:
  - { id: all, kind: Condition, expression: { var: input } }
  - { id: again, kind: Condition, expression: true }
edges: [ { from: all, to: again }, { from: again, to: all, guard: 'true', isLoopBack: true } ]
",
    );
    assert_eq!(run.start(&half).last().expect("an end"), "end Failed all condition");
    assert!(run.written < TURN_BYTES_MAX, "{}", run.written);
}

/// [R6] A hundred thousand iterations without any work between are one turn, which no entry could hold.
#[test]
fn a_loop_without_work_ends_before_its_turn_is_too_large() {
    let mut run = quiet(
        "
workflow: spinning
version: '1'
maxLoopIterations: 100000
steps:
  - { id: a, kind: Condition, expression: true }
  - { id: b, kind: Condition, expression: true }
edges: [ { from: a, to: b }, { from: b, to: a, guard: 'true', isLoopBack: true } ]
",
    );
    let lines = run.start("{}");
    assert_eq!(lines.last().expect("an end"), "end Failed b loop-bound");
    assert!(run.written < TURN_BYTES_MAX, "{}", run.written);
}

/// [R14] The bytes are counted anew at each moment, so who replays without a commit between counts what the commits counted.
#[test]
fn a_replay_counts_what_the_turns_counted() {
    let mut run = quiet(&copying("[1,2,3,4]", "failurePolicy: Retry, retry: { initial: 1s }, maxAttempts: 9"));
    run.start(&text(600_000));
    for round in 0..6 {
        for branch in 0..4 {
            run.now += 1;
            run.fail(&format!("body[{branch}]"), "tool");
        }
        run.at(20_000 * (round + 1));
        run.now += 10_000;
        run.at(run.now - T0);
    }
    let mut again = Projection::new("acme", RUN);
    for (ms, input) in &run.history {
        again.decide(Some(&run.plan), &run.options, Timestamp(*ms), input.clone()).expect("it was not refused before");
    }
    assert_eq!(again.graph(Some(&run.plan), "", 0), run.graph());
}

/// What a run holds in memory has a bound too, which is told when the next step would be made.
#[test]
fn a_run_with_too_large_values_fails() {
    let mut run = Run::of(
        "
workflow: hoarding
version: '1'
maxLoopIterations: 100
steps:
  - { id: a, kind: Tool, tool: echo, inputMapping: {} }
  - { id: again, kind: Condition, expression: true }
edges: [ { from: a, to: again }, { from: again, to: a, guard: 'true', isLoopBack: true } ]
",
    );
    run.options.run_bytes_max = 10_000;
    run.start("{}");
    for round in 1..10 {
        let name = if round == 1 { "a".to_owned() } else { format!("a#{round}") };
        run.ok(&name, &text(1_000));
    }
    assert_eq!(run.ok("a#10", &text(1_000)), ["a#10 Succeeded", "end Failed again infrastructure"]);
}
