//! What a turn costs must not depend on how long the run is.

use super::*;

/// [R6] [FR-162] [FR-058] A thousand iterations: a turn of the 990th writes what one of the 10th wrote.
#[test]
fn a_turn_late_in_a_long_loop_writes_as_much_as_an_early_one() {
    let mut run = Run::of(
        "
workflow: long
version: '1'
maxLoopIterations: 1000
steps:
  - { id: work, kind: Tool, tool: echo, inputMapping: { n: { var: work.n } } }
  - { id: check, kind: Tool, tool: echo }
  - { id: again, kind: Condition, expression: { var: check.again } }
edges:
  - { from: work, to: check }
  - { from: check, to: again }
  - { from: again, to: work, guard: 'true', isLoopBack: true }
",
    );
    run.reload = false;
    run.start("{}");
    let mut written = Vec::new();
    for round in 1..=1_000_u32 {
        let name = |step: &str| if round == 1 { step.to_owned() } else { format!("{step}#{round}") };
        run.ok(&name("work"), &format!(r#"{{"n":{}}}"#, 1_000 + round));
        let of_work = run.written;
        run.ok(&name("check"), &format!(r#"{{"again":{}}}"#, round < 1_000));
        written.push(of_work + run.written);
    }
    assert_eq!(run.state(), RunState::Completed);
    let (early, late) = (written[9], written[989]);
    assert!(late <= early + 32, "numbers get longer, no more: {early} bytes early, {late} late");
    run.p = Projection::load("acme", RUN, run.rows.values().cloned().collect(), Some(&run.plan)).expect("its rows");
    assert_eq!(run.graph().step_runs.len(), 500, "one page of 3,000");
}

/// [R5] [FR-045] [FR-139] Ten thousand branches of 2 KB, answered in a scattered order: the Join passes with the last, not
/// earlier; no row holds them all; a turn writes its own.
#[test]
fn ten_thousand_branches_in_any_order() {
    const BRANCHES: u64 = 10_000;
    let mut run = Run::of(
        "
workflow: wide
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join, quorum: all }
  - { id: close, kind: Tool, tool: echo }
edges:
  - { from: spread, to: body }
  - { from: body, to: meet }
  - { from: meet, to: close }
",
    );
    run.reload = false;
    run.options.max_fanout = BRANCHES as u32;
    let items: Vec<u64> = (0..BRANCHES).collect();
    run.start(&serde_json::json!({ "items": items }).to_string());
    let filler = "x".repeat(2_000);
    let mut most = 0;
    for at in 0..BRANCHES {
        // 7,919 is prime to the number of branches, so each is met once, far from its neighbours.
        let branch = at * 7_919 % BRANCHES;
        let lines = run.ok(&format!("body[{branch}]"), &format!(r#"{{"branch":{branch},"text":"{filler}"}}"#));
        assert_eq!(lines.len() > 1, at + 1 == BRANCHES, "{at}: {lines:?}");
        most = most.max(run.written);
    }
    assert!(most < 8_000, "a turn wrote {most} bytes");
    let largest = run.rows.values().map(|row| row.value.len()).max().expect("rows");
    assert!(largest < grain_contract::limits::PAYLOAD_BYTES_MAX, "{largest}");
    let meet = run.p.present(crate::engine::state::ROOT, run.plan.by_id["meet"]).expect("it passed");
    let list = run.p.output_text(&run.plan, meet, usize::MAX).expect("no bound");
    let list: Vec<serde_json::Value> = serde_json::from_slice(&list).expect("a list");
    assert_eq!(list.len() as u64, BRANCHES);
    assert!(list.iter().enumerate().all(|(at, item)| item["branch"] == at), "in the order of the items");
    run.p = Projection::load("acme", RUN, run.rows.values().cloned().collect(), Some(&run.plan)).expect("its rows");
    run.ok("close", "\"done\"");
    assert_eq!(run.run_output(), "\"done\"");
}

/// A run has a bound on its step runs: past it, it fails and says why, instead of growing for ever.
#[test]
fn a_run_with_too_many_step_runs_fails() {
    let mut run = Run::of(
        "
workflow: greedy
version: '1'
maxLoopIterations: 1000
steps:
  - { id: a, kind: Condition, expression: true }
  - { id: b, kind: Condition, expression: true }
edges: [ { from: a, to: b }, { from: b, to: a, guard: 'true', isLoopBack: true } ]
",
    );
    run.options.step_runs_max = 100;
    let lines = run.start("{}");
    assert_eq!(lines.last().expect("an end"), "end Failed a loop-bound");
    assert_eq!(run.rows.keys().filter(|key| key.table == crate::kinds::methods::run::table::STEP_RUNS).count(), 100);

    let mut run = Run::of(
        "
workflow: wide
version: '1'
steps:
  - { id: spread, kind: Fanout, items: [1, 2, 3, 4] }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
edges: [ { from: spread, to: body }, { from: body, to: meet } ]
",
    );
    run.options.step_runs_max = 3;
    let lines = run.start("{}");
    assert_eq!(
        lines[lines.len() - 5..],
        ["close body[0]", "body[0] Cancelled", "close body[1]", "body[1] Cancelled", "end Failed body fanout-limit"]
    );
}
