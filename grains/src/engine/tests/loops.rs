//! Loops.

use super::*;

fn redo(max: u32) -> String {
    format!(
        "
workflow: redo
version: '1'
maxLoopIterations: {max}
steps:
  - {{ id: work, kind: Tool, tool: echo, inputMapping: {{ before: {{ var: check.n }} }} }}
  - {{ id: check, kind: Tool, tool: lint }}
  - {{ id: again, kind: Condition, expression: {{ '!': [ {{ var: check.done }} ] }} }}
  - {{ id: close, kind: Tool, tool: echo }}
edges:
  - {{ from: work, to: check }}
  - {{ from: check, to: again }}
  - {{ from: again, to: work, guard: 'true', isLoopBack: true }}
  - {{ from: again, to: close, guard: 'false' }}
"
    )
}

fn nth(step: &str, round: u32) -> String {
    if round == 1 { step.into() } else { format!("{step}#{round}") }
}

/// [R6] [FR-161] Each iteration has step runs of its own, and reads what the one before it gave.
#[test]
fn a_loop_makes_new_step_runs_until_it_is_left() {
    let mut run = Run::of(&redo(120));
    let big = "x".repeat(2_000);
    run.start("{}");
    for round in 1..=120 {
        let lines = run.ok(&nth("work", round), "1");
        assert_eq!(lines[0], format!("{} Succeeded", nth("work", round)));
        let lines = run.ok(&nth("check", round), &format!(r#"{{"n":{round},"done":{},"big":"{big}"}}"#, round == 120));
        if round < 120 {
            let next = nth("work", round + 1);
            assert_eq!(
                lines[1..],
                [
                    format!("{} Succeeded", nth("again", round)),
                    format!("{next} Ready"),
                    format!(r#"do {next}/1 tool:echo {{"before":{round}}}"#)
                ]
            );
            assert_eq!(run.waits("close"), "loop: loop around again to end");
        } else {
            assert_eq!(lines[2..], ["close Ready", "do close/1 tool:echo {}"]);
        }
    }
    run.ok("close", "1");
    assert_eq!(run.state(), RunState::Completed);
}

/// [R6] Past the bound the step that would go back fails; the message says which iteration.
#[test]
fn past_its_bound_a_loop_fails() {
    let mut run = Run::of(&redo(2));
    run.start("{}");
    for round in 1..=2 {
        run.ok(&nth("work", round), "1");
        let lines = run.ok(&nth("check", round), "{}");
        if round == 2 {
            assert_eq!(lines, ["check#2 Succeeded", "again#2 Failed", "end Failed again loop-bound"]);
        }
    }
    let message = run.graph().failure.expect("a failure").message;
    assert_eq!(message, "Expected at most 2 iterations, but iteration 3 was asked for.");
}

/// [R6] An edge out of the body that one iteration does not take is still open, and the next may take it.
#[test]
fn an_edge_out_of_a_loop_stays_open_until_the_loop_has_settled() {
    let document = "
workflow: exits
version: '1'
steps:
  - { id: work, kind: Tool, tool: echo }
  - { id: found, kind: Condition, expression: { var: work.found } }
  - { id: again, kind: Condition, expression: { var: work.again } }
  - { id: report, kind: Tool, tool: echo }
  - { id: close, kind: Tool, tool: echo }
edges:
  - { from: work, to: found }
  - { from: work, to: again }
  - { from: found, to: again }
  - { from: found, to: report, guard: 'true' }
  - { from: again, to: work, guard: 'true', isLoopBack: true }
  - { from: again, to: close, guard: 'false' }
";
    // Taken in the second iteration, not in the third: it was taken.
    let mut run = Run::of(document);
    run.start("{}");
    let lines = run.ok("work", r#"{"found":false,"again":true}"#);
    assert!(!lines.iter().any(|line| line.starts_with("report")), "{lines:?}");
    assert_eq!(run.waits("report"), "loop: loop around found to end");
    let lines = run.ok("work#2", r#"{"found":true,"again":true}"#);
    assert!(lines.contains(&"report Ready".into()), "{lines:?}");
    let lines = run.ok("work#3", r#"{"found":true,"again":false}"#);
    assert!(lines.contains(&"close Ready".into()), "{lines:?}");
    assert_eq!(run.graph().step_runs.iter().filter(|step| step.step_id == "report").count(), 1);
    run.ok("report", "1");
    run.ok("close", "2");
    assert_eq!(run.run_output(), r#"{"report":1,"close":2}"#);

    // Never taken: skipped when the loop has settled.
    let mut run = Run::of(document);
    run.start("{}");
    run.ok("work", r#"{"found":false,"again":true}"#);
    let lines = run.ok("work#2", r#"{"found":false,"again":false}"#);
    assert!(lines.contains(&"report Skipped".into()), "{lines:?}");
}

/// [R6] An inner loop's bound counts anew in each outer iteration.
#[test]
fn inner_loops_count_anew() {
    let document = "
workflow: nested-loops
version: '1'
maxLoopIterations: 3
steps:
  - { id: outer, kind: Tool, tool: echo }
  - { id: inner, kind: Tool, tool: echo }
  - { id: more, kind: Condition, expression: { var: inner.more } }
  - { id: again, kind: Condition, expression: { var: inner.again } }
edges:
  - { from: outer, to: inner }
  - { from: inner, to: more }
  - { from: more, to: inner, guard: 'true', isLoopBack: true }
  - { from: more, to: again, guard: 'false' }
  - { from: again, to: outer, guard: 'true', isLoopBack: true }
";
    let mut run = Run::of(document);
    run.start("{}");
    let mut inner = 0;
    for outer in 1..=3 {
        run.ok(&nth("outer", outer), "1");
        for at in 1..=3 {
            inner += 1;
            run.ok(&nth("inner", inner), &format!(r#"{{"more":{},"again":{}}}"#, at < 3, outer < 3));
        }
    }
    assert_eq!(run.state(), RunState::Completed);
    assert_eq!(inner, 9);
}

/// [R6] The step that goes back does not also go on by an edge without a guard.
#[test]
fn a_step_that_goes_back_does_not_go_on() {
    let mut run = Run::of(
        "
workflow: back
version: '1'
steps:
  - { id: work, kind: Tool, tool: echo }
  - { id: close, kind: Tool, tool: echo }
edges:
  - { from: work, to: work, guard: { var: work.again }, isLoopBack: true }
  - { from: work, to: close }
",
    );
    run.start("{}");
    assert_eq!(run.ok("work", r#"{"again":true}"#), ["work Succeeded", "work#2 Ready", "do work#2/1 tool:echo {}"]);
    assert_eq!(run.ok("work#2", "{}"), ["work#2 Succeeded", "close Ready", "do close/1 tool:echo {}"]);
}

/// [R6] Conditions alone may loop within one turn: no stack is used, and the bound holds.
#[test]
fn a_loop_of_conditions_ends_in_one_turn() {
    let mut run = Run::of(
        "
workflow: spin
version: '1'
maxLoopIterations: 1000
steps:
  - { id: a, kind: Condition, expression: true }
  - { id: b, kind: Condition, expression: true }
edges:
  - { from: a, to: b }
  - { from: b, to: a, guard: 'true', isLoopBack: true }
",
    );
    let lines = run.start("{}");
    assert_eq!(lines.len(), 2_002);
    assert_eq!(lines[lines.len() - 2..], ["b#1000 Failed", "end Failed b loop-bound"]);
}

/// [R6] Loops inside one another with one head: each goes back for its own reason, and the inner bound counts anew.
#[test]
fn nested_loops_may_share_their_head() {
    let mut run = Run::of(
        "
workflow: heads
version: '1'
maxLoopIterations: 3
steps:
  - { id: a, kind: Tool, tool: echo, inputMapping: {} }
  - { id: b, kind: Condition, expression: { var: a.b } }
  - { id: c, kind: Condition, expression: { var: a.c } }
  - { id: close, kind: Tool, tool: echo, inputMapping: {} }
edges:
  - { from: a, to: b }
  - { from: b, to: a, guard: 'false', isLoopBack: true }
  - { from: b, to: c, guard: 'true' }
  - { from: c, to: a, guard: 'false', isLoopBack: true }
  - { from: c, to: close, guard: 'true' }
",
    );
    run.start("{}");
    let answers = ["{}", "{}", r#"{"b":1}"#, "{}", "{}", r#"{"b":1}"#, r#"{"b":1,"c":1}"#];
    for (answer, round) in answers.into_iter().zip(1..) {
        let name = if round == 1 { "a".to_owned() } else { format!("a#{round}") };
        run.ok(&name, answer);
        assert_eq!(run.open.len(), 1, "one step at a time, round {round}: {:?}", run.open.keys());
    }
    assert_eq!(run.ok("close", "1"), ["close Succeeded", "end Completed 1"]);
}

/// [R6] Loops inside one another with one source: the first guard that holds says how far it goes back.
#[test]
fn nested_loops_may_share_their_source() {
    let mut run = Run::of(
        "
workflow: sources
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, inputMapping: {} }
  - { id: b, kind: Tool, tool: echo, inputMapping: {} }
  - { id: c, kind: Tool, tool: echo, inputMapping: {} }
  - { id: close, kind: Tool, tool: echo, inputMapping: {} }
edges:
  - { from: a, to: b }
  - { from: b, to: c }
  - { from: c, to: b, guard: { var: c.inner }, isLoopBack: true }
  - { from: c, to: a, guard: { var: c.outer }, isLoopBack: true }
  - { from: c, to: close }
",
    );
    run.start("{}");
    run.ok("a", "1");
    run.ok("b", "1");
    assert_eq!(run.ok("c", r#"{"inner":1}"#)[1], "b#2 Ready");
    run.ok("b#2", "1");
    assert_eq!(run.ok("c#2", r#"{"outer":1}"#)[1], "a#2 Ready");
    run.ok("a#2", "1");
    run.ok("b#3", "1");
    assert_eq!(run.ok("c#3", "{}")[1], "close Ready");
    assert_eq!(run.ok("close", "1"), ["close Succeeded", "end Completed 1"]);
}
