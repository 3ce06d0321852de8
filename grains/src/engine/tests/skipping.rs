//! Skipped branches.

use super::*;

/// Two conditions, each with its own step behind it, into one Join.
fn two_roads(quorum: &str) -> String {
    format!(
        "
workflow: two-roads
version: '1'
steps:
  - {{ id: p, kind: Condition, expression: {{ var: input.p }} }}
  - {{ id: x, kind: Tool, tool: echo }}
  - {{ id: q, kind: Condition, expression: {{ var: x.yes }} }}
  - {{ id: fast, kind: Tool, tool: echo }}
  - {{ id: slow, kind: Tool, tool: echo }}
  - {{ id: meet, kind: Join, quorum: {quorum} }}
  - {{ id: close, kind: Tool, tool: echo }}
edges:
  - {{ from: p, to: fast, guard: 'true' }}
  - {{ from: x, to: q }}
  - {{ from: q, to: slow, guard: 'true' }}
  - {{ from: fast, to: meet }}
  - {{ from: slow, to: meet }}
  - {{ from: meet, to: close }}
"
    )
}

/// [R3] [FR-010] A Join whose one road was skipped waits for the other.
#[test]
fn a_join_waits_for_the_road_that_is_still_open() {
    let mut run = Run::of(&two_roads("all"));
    assert_eq!(
        run.start(r#"{"p":false}"#),
        ["started", "p Succeeded", "x Ready", r#"do x/1 tool:echo {"p":false}"#, "fast Skipped"]
    );
    assert_eq!(run.step("fast").skipped_by, ["p"]);
    assert_eq!(run.waits("meet"), "join: join 0 of 1");
    let lines = run.ok("x", r#"{"yes":true}"#);
    assert_eq!(lines[..3], ["x Succeeded", "q Succeeded", "slow Ready"]);
    let lines = run.ok("slow", "7");
    assert_eq!(lines[..3], ["slow Succeeded", "meet Succeeded", "close Ready"]);
    assert_eq!(run.output("meet"), "[7]");
    run.ok("close", "1");
    assert_eq!(run.state(), RunState::Completed);
}

/// [FR-112] `all` counts what can still come, so one live road is all of them; both ways.
#[test]
fn join_all_passes_after_the_single_live_road() {
    let document = "
workflow: diamond
version: '1'
steps:
  - { id: pick, kind: Condition, expression: { '==': [ { var: input.lane }, fast ] } }
  - { id: fast, kind: Tool, tool: echo }
  - { id: slow, kind: Agent, agent: clerk }
  - { id: meet, kind: Join, quorum: all }
  - { id: close, kind: Tool, tool: echo }
edges:
  - { from: pick, to: fast, guard: 'true' }
  - { from: pick, to: slow, guard: 'false' }
  - { from: fast, to: meet }
  - { from: slow, to: meet }
  - { from: meet, to: close }
";
    for (lane, skipped) in [("fast", "slow"), ("slow", "fast")] {
        let mut run = Run::of(document);
        run.start(&format!(r#"{{"lane":"{lane}"}}"#));
        assert_eq!(run.step(skipped).state, "Skipped");
        let lines = run.ok(lane, "1");
        assert_eq!(lines[..3], [&format!("{lane} Succeeded"), "meet Succeeded", "close Ready"]);
        run.ok("close", "1");
        assert_eq!(run.state(), RunState::Completed);
    }
}

/// [FR-111] Nobody came: the Join is skipped, also with `any`, and the run ends.
#[test]
fn a_join_nobody_can_reach_is_skipped() {
    for quorum in ["all", "any"] {
        let mut run = Run::of(&two_roads(quorum));
        run.start(r#"{"p":false}"#);
        let lines = run.ok("x", r#"{"yes":false}"#);
        assert_eq!(
            lines,
            ["x Succeeded", "q Succeeded", "slow Skipped", "meet Skipped", "close Skipped", "end Completed null"]
        );
        assert_eq!(run.step("meet").skipped_by, ["fast", "slow"]);
    }
}

/// [R3] [FR-088] What is behind a skipped step is skipped, without an order; a Join of it and another goes by the other.
#[test]
fn skipping_goes_on_behind_the_skipped_step() {
    let mut run = Run::of(
        "
workflow: chain
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo }
  - { id: b, kind: Condition, expression: { var: a.go } }
  - { id: c, kind: Tool, tool: echo }
  - { id: d, kind: Human }
  - { id: t, kind: Timer, delay: PT1H }
  - { id: e, kind: Join, quorum: all }
edges:
  - { from: a, to: b }
  - { from: a, to: e }
  - { from: b, to: c, guard: 'true' }
  - { from: c, to: d }
  - { from: d, to: t }
  - { from: t, to: e }
",
    );
    run.start("{}");
    assert_eq!(
        run.ok("a", r#"{"go":false}"#),
        [
            "a Succeeded",
            "b Succeeded",
            "c Skipped",
            "d Skipped",
            "t Skipped",
            "e Succeeded",
            r#"end Completed [{"go":false}]"#
        ]
    );
}

/// [FR-109] A Fanout behind a false condition is skipped, and so are its Join and what is behind that: nobody takes it for
/// a success.
#[test]
fn a_skipped_fanout_skips_its_join() {
    let mut run = Run::of(
        "
workflow: skipped-fanout
version: '1'
steps:
  - { id: c, kind: Condition, expression: { var: input.go } }
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: 1 }
  - { id: close, kind: Tool, tool: echo }
edges:
  - { from: c, to: spread, guard: 'true' }
  - { from: spread, to: body }
  - { from: body, to: meet }
  - { from: meet, to: close }
",
    );
    assert_eq!(
        run.start(r#"{"go":false,"items":[1]}"#),
        ["started", "c Succeeded", "spread Skipped", "meet Skipped", "close Skipped", "end Completed null"]
    );
}

/// [FR-143] A Fanout over the result of another one, and over a second source, waits for both; unknown is not empty.
#[test]
fn a_fanout_behind_two_sources_waits_for_both() {
    let document = "
workflow: two-sources
version: '1'
steps:
  - { id: a, kind: Fanout, items: { var: input.items } }
  - { id: one, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
  - { id: c, kind: Tool, tool: echo }
  - { id: b, kind: Fanout, items: { var: meet } }
  - { id: two, kind: Tool, tool: echo }
  - { id: last, kind: Join }
edges:
  - { from: a, to: one }
  - { from: one, to: meet }
  - { from: meet, to: b }
  - { from: c, to: b }
  - { from: b, to: two }
  - { from: two, to: last }
";
    let mut run = Run::of(document);
    run.start(r#"{"items":[1,2]}"#);
    assert_eq!(run.ok("c", "1"), ["c Succeeded"]);
    assert_eq!(run.waits("b"), "predecessors: steps before it: meet");
    run.ok("one[1]", "20");
    let lines = run.ok("one[0]", "10");
    assert_eq!(
        lines,
        [
            "one[0] Succeeded",
            "meet Succeeded",
            "b Succeeded",
            "two[0] Ready",
            "do two[0]/1 tool:echo 10",
            "two[1] Ready",
            "do two[1]/1 tool:echo 20",
        ]
    );
}
