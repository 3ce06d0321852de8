//! Joins and quorums.

use super::*;

pub(super) fn quorum(join: &str) -> String {
    format!(
        "
workflow: quorum
version: '1'
steps:
  - {{ id: spread, kind: Fanout, items: {{ var: input.items }} }}
  - {{ id: body, kind: Agent, agent: reviewer }}
  - {{ id: meet, kind: Join, {join} }}
  - {{ id: close, kind: Tool, tool: echo, inputMapping: {{ got: {{ var: meet }} }} }}
edges:
  - {{ from: spread, to: body }}
  - {{ from: body, to: meet }}
  - {{ from: meet, to: close }}
"
    )
}

const FIVE: &str = r#"{"items":[0,1,2,3,4]}"#;

/// [R5] [FR-009] The Join passes once; the branches it does not need are closed, and what still comes from them changes
/// nothing.
#[test]
fn a_quorum_passes_once_and_closes_the_losers() {
    let mut run = Run::of(&quorum("quorum: 2, losers: cancel"));
    run.start(FIVE);
    assert_eq!(run.step("spread").output.expect("an output").text, b"5");
    let losers: Vec<(Uuid, u32)> = ["body[2]", "body[3]", "body[4]"].iter().map(|name| run.order(name)).collect();
    assert_eq!(run.ok("body[1]", "11"), ["body[1] Succeeded"]);
    assert_eq!(run.waits("meet"), "join: join 1 of 2");
    assert_eq!(
        run.ok("body[0]", "10"),
        [
            "body[0] Succeeded",
            "close body[2]",
            "body[2] Cancelled",
            "close body[3]",
            "body[3] Cancelled",
            "close body[4]",
            "body[4] Cancelled",
            "meet Succeeded",
            "close Ready",
            r#"do close/1 tool:echo {"got":[10,11]}"#,
        ]
    );
    for ((id, attempt), kind) in
        losers.into_iter().zip([OutcomeKind::Cancelled, OutcomeKind::Cancelled, OutcomeKind::Succeeded])
    {
        assert_eq!(run.outcome(outcome(id, attempt, kind)), [""; 0]);
        assert!(run.superseded());
    }
    assert_eq!(run.output("meet"), "[10,11]");
    run.ok("close", "1");
    assert_eq!(run.state(), RunState::Completed);
}

/// [R5] Kept losers run to their end; the Join does not pass again, and the run waits for them.
#[test]
fn kept_losers_run_on() {
    let mut run = Run::of(&quorum("quorum: any, losers: keep"));
    run.start(r#"{"items":[0,1,2]}"#);
    let lines = run.ok("body[2]", "12");
    assert_eq!(lines[..2], ["body[2] Succeeded", "meet Succeeded"]);
    run.ok("close", "\"done\"");
    assert_eq!(run.state(), RunState::Running);
    assert_eq!(run.fail("body[0]", "agent"), ["body[0] Failed"], "it is not needed any more");
    assert_eq!(run.ok("body[1]", "11"), ["body[1] Succeeded", "end Completed \"done\""]);
    assert_eq!(run.output("meet"), "[12]", "what came later is not in it");
}

/// [R5] [FR-086] The Join fails with the branch that makes the quorum unreachable, and does not wait for the others.
#[test]
fn an_unreachable_quorum_fails_at_once() {
    let mut run = Run::of(&quorum("quorum: 3"));
    run.start(FIVE);
    assert_eq!(run.fail("body[0]", "agent"), ["body[0] Failed"]);
    assert_eq!(run.fail("body[1]", "agent"), ["body[1] Failed"]);
    assert_eq!(run.waits("meet"), "join: join 0 of 3");
    assert_eq!(
        run.fail("body[2]", "agent"),
        [
            "body[2] Failed",
            "close body[3]",
            "body[3] Cancelled",
            "close body[4]",
            "body[4] Cancelled",
            "meet Failed",
            "end Failed meet quorum",
        ]
    );
    assert_eq!(run.graph().failure.expect("a failure").message, "quorum unreachable 2 of 3");
}

/// [R5] More asked for than there are branches; none asked of none.
#[test]
fn a_quorum_larger_than_the_branches_fails_and_an_empty_fanout_passes() {
    let mut run = Run::of(&quorum("quorum: 2"));
    run.start(r#"{"items":[1]}"#);
    let lines = run.ok("body[0]", "1");
    assert_eq!(lines, ["body[0] Succeeded", "meet Failed", "end Failed meet quorum"]);
    for join in ["quorum: all", "quorum: any", "quorum: 2"] {
        let mut run = Run::of(&quorum(join));
        assert_eq!(
            run.start(r#"{"items":[]}"#),
            ["started", "spread Succeeded", "meet Succeeded", "close Ready", r#"do close/1 tool:echo {"got":[]}"#]
        );
        assert_eq!(run.output("meet"), "[]");
    }
}

/// [R5] With `all`, one failed branch is enough.
#[test]
fn a_failed_branch_fails_join_all() {
    let mut run = Run::of(&quorum("quorum: all"));
    run.start(r#"{"items":[0,1]}"#);
    assert_eq!(
        run.fail("body[1]", "agent"),
        ["body[1] Failed", "close body[0]", "body[0] Cancelled", "meet Failed", "end Failed meet quorum"]
    );
}

/// [FR-043] In a loop each iteration has its own Fanout, branches and Join.
#[test]
fn a_join_in_a_loop_passes_each_time() {
    let mut run = Run::of(
        "
workflow: looped-quorum
version: '1'
maxLoopIterations: 3
steps:
  - { id: spread, kind: Fanout, items: [1, 2] }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: 1 }
  - { id: close, kind: Tool, tool: echo }
  - { id: again, kind: Condition, expression: { '!': [ { var: close.done } ] } }
edges:
  - { from: spread, to: body }
  - { from: body, to: meet }
  - { from: meet, to: close }
  - { from: close, to: again }
  - { from: again, to: spread, guard: 'true', isLoopBack: true }
",
    );
    run.start("{}");
    for round in 1..=3 {
        let tail = if round == 1 { String::new() } else { format!("#{round}") };
        let lines = run.ok(&format!("body[1]{tail}"), &round.to_string());
        assert_eq!(
            lines[..5],
            [
                format!("body[1]{tail} Succeeded"),
                format!("close body[0]{tail}"),
                format!("body[0]{tail} Cancelled"),
                format!("meet{tail} Succeeded"),
                format!("close{tail} Ready"),
            ]
        );
        assert_eq!(run.output(&format!("meet{tail}")), format!("[{round}]"));
        run.ok(&format!("close{tail}"), &format!(r#"{{"done":{}}}"#, round == 3));
    }
    assert_eq!(run.state(), RunState::Completed);
    assert_eq!(run.output("meet"), "[1]", "the first round's list is still the first round's");
}

/// [FR-138] Three edges into a Join, two of them from one condition: each step before it counts once.
#[test]
fn edges_of_one_step_count_once() {
    let document = "
workflow: three-edges
version: '1'
steps:
  - { id: c, kind: Condition, expression: { var: input.go } }
  - { id: b, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: all }
edges:
  - { from: c, to: meet, guard: 'true' }
  - { from: c, to: meet, guard: 'succeeded' }
  - { from: b, to: meet }
";
    for go in ["true", "false"] {
        let mut run = Run::of(document);
        run.start(&format!(r#"{{"go":{go}}}"#));
        assert_eq!(run.waits("meet"), "join: join 1 of 2");
        assert_eq!(
            run.ok("b", "5"),
            vec!["b Succeeded".to_owned(), "meet Succeeded".into(), format!("end Completed [{go},5]")]
        );
    }
}

/// [FR-159] A step with an edge for failure and one for any end counts once in both cases.
#[test]
fn a_routed_failure_counts_once() {
    let document = "
workflow: routed
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, failurePolicy: Route }
  - { id: b, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: all }
edges:
  - { from: a, to: meet, guard: 'failed' }
  - { from: a, to: meet, guard: { '==': [1, 1] } }
  - { from: b, to: meet }
";
    let mut run = Run::of(document);
    run.start("{}");
    assert_eq!(run.fail("a", "tool"), ["a Failed"]);
    let lines = run.ok("b", "5");
    assert_eq!(lines[1], "meet Succeeded");
    assert_eq!(run.output("meet"), r#"[{"failure":{"class":"tool","message":"it did not work"}},5]"#);

    let mut run = Run::of(document);
    run.start("{}");
    run.ok("b", "5");
    assert_eq!(run.ok("a", "4"), ["a Succeeded", "meet Succeeded", "end Completed [4,5]"]);
}

/// [FR-158] Nested Fanouts 3 x 2: each inner Join counts its own two, the outer one its three.
#[test]
fn nested_joins_count_their_own() {
    let document = "
workflow: nested
version: '1'
steps:
  - { id: outer, kind: Fanout, items: [1, 2, 3] }
  - { id: inner, kind: Fanout, items: [10, 20] }
  - { id: body, kind: Tool, tool: echo }
  - { id: inner-meet, kind: Join }
  - { id: outer-meet, kind: Join }
  - { id: last, kind: Tool, tool: echo }
edges:
  - { from: outer, to: inner }
  - { from: inner, to: body }
  - { from: body, to: inner-meet }
  - { from: inner-meet, to: outer-meet }
  - { from: outer-meet, to: last }
";
    let mut run = Run::of(document);
    run.start("{}");
    let order = ["2.1", "0.0", "1.1", "2.0", "1.0", "0.1"];
    for (at, branch) in order.iter().enumerate() {
        let lines = run.ok(&format!("body[{branch}]"), &format!("\"{branch}\""));
        let passed = matches!(at, 3..=5);
        assert_eq!(lines.get(1).is_some_and(|line| line.starts_with("inner-meet[")), passed, "{branch}: {lines:?}");
        assert_eq!(lines.iter().any(|line| line == "outer-meet Succeeded"), at == 5);
    }
    assert_eq!(run.output("outer-meet"), r#"[["0.0","0.1"],["1.0","1.1"],["2.0","2.1"]]"#);
    run.ok("last", "1");
    assert_eq!(run.state(), RunState::Completed);
}

/// [FR-085] A Join that comes before its Fanout in the text waits for the real branches.
#[test]
fn a_join_written_before_its_fanout_waits() {
    let mut run = Run::of(
        "
workflow: upside-down
version: '1'
steps:
  - { id: meet, kind: Join }
  - { id: body, kind: Tool, tool: echo }
  - { id: spread, kind: Fanout, items: [1, 2] }
edges:
  - { from: body, to: meet }
  - { from: spread, to: body }
",
    );
    let lines = run.start("{}");
    assert!(!lines.iter().any(|line| line.starts_with("meet")), "{lines:?}");
    run.ok("body[0]", "1");
    assert_eq!(run.ok("body[1]", "2"), ["body[1] Succeeded", "meet Succeeded", "end Completed [1,2]"]);
}

/// [R5] `any` over plain edges: what could only have led to the Join is cancelled, started or not.
#[test]
fn a_plain_join_cancels_what_leads_only_to_it() {
    let mut run = Run::of(
        "
workflow: race
version: '1'
steps:
  - { id: s, kind: Tool, tool: echo }
  - { id: x1, kind: Tool, tool: echo }
  - { id: x2, kind: Tool, tool: echo }
  - { id: y, kind: Tool, tool: echo }
  - { id: z, kind: Tool, tool: echo }
  - { id: aside, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: any }
edges:
  - { from: s, to: x1 }
  - { from: s, to: x2 }
  - { from: s, to: z }
  - { from: x1, to: y }
  - { from: x2, to: y }
  - { from: y, to: meet }
  - { from: z, to: meet }
  - { from: z, to: aside }
",
    );
    run.start("{}");
    run.ok("s", "1");
    run.ok("x1", "1");
    let lines = run.ok("z", "3");
    assert_eq!(
        lines,
        [
            "z Succeeded",
            "close x2",
            "x2 Cancelled",
            "y Cancelled",
            "meet Succeeded",
            "aside Ready",
            "do aside/1 tool:echo {}"
        ]
    );
    run.ok("aside", "9");
    assert_eq!(run.run_output(), r#"{"aside":9,"meet":[3]}"#);
}

/// [R5] Dry branches do not count for `all`; if all are dry the Join is skipped.
#[test]
fn branches_that_conditions_led_elsewhere_are_not_expected() {
    let document = "
workflow: dry
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: c, kind: Condition, expression: { '>': [ { var: item }, 1 ] } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: all }
edges:
  - { from: spread, to: c }
  - { from: c, to: body, guard: 'true' }
  - { from: body, to: meet }
";
    let mut run = Run::of(document);
    run.start(r#"{"items":[1,2,3]}"#);
    run.ok("body[2]", "33");
    assert_eq!(run.ok("body[1]", "22"), ["body[1] Succeeded", "meet Succeeded", "end Completed [22,33]"]);
    let mut run = Run::of(document);
    let lines = run.start(r#"{"items":[0,1]}"#);
    assert_eq!(lines[lines.len() - 2..], ["meet Skipped", "end Completed null"]);
}
