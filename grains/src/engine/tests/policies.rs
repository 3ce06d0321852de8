//! Failure policies, attempts and their timeouts.

use super::*;
use crate::definition::Backoff;

fn single(fields: &str) -> String {
    format!(
        "
workflow: single
version: '1'
steps:
  - {{ id: a, kind: Tool, tool: echo, {fields} }}
"
    )
}

/// [R10] Retry: a new attempt of the same step run after a growing delay, as long as attempts are left.
#[test]
fn retry_makes_new_attempts_with_a_growing_delay() {
    let mut run = Run::of(&single("failurePolicy: Retry, maxAttempts: 3, retry: { initial: 1s, factor: 3, max: 1m }"));
    run.start("{}");
    let (id, _) = run.order("a");
    assert_eq!(run.fail("a", "tool"), ["a WaitingForTimer"]);
    assert_eq!(run.state(), RunState::WaitingForTimer);
    assert!(run.waits("a").starts_with("retry: retry 2 at "), "{}", run.waits("a"));
    assert_eq!(run.at(999), [""; 0], "never early");
    assert_eq!(run.at(1_000), ["timer a late 0", "a Ready", "do a/2 tool:echo {}"]);
    assert_eq!(run.order("a"), (id, 2));
    run.fail("a", "tool");
    assert_eq!(run.at(3_999), [""; 0]);
    assert_eq!(run.at(4_000), ["timer a late 0", "a Ready", "do a/3 tool:echo {}"]);
    assert_eq!(run.fail("a", "tool"), ["a Failed", "end Failed a tool"]);
}

/// [FR-054] No number of attempts overflows the delay.
#[test]
fn the_delay_never_overflows() {
    for (factor, max, wanted) in [(2.0, 5, 5), (1.0, 5, 1), (10.0, 5, 5), (2.0, 0, 0)] {
        let backoff = Backoff { initial_ms: 1, factor, max_ms: max };
        for attempt in [3, 64, 65, 1_024, 5_000, u32::MAX] {
            let delay = backoff.delay_ms(attempt);
            assert!(delay <= max, "{attempt} with {factor}: {delay}");
        }
        assert_eq!(backoff.delay_ms(u32::MAX), wanted);
        assert_eq!(backoff.delay_ms(1), 1.min(max));
    }
    let day = Backoff { initial_ms: u64::MAX, factor: f64::MAX, max_ms: u64::MAX };
    assert_eq!(day.delay_ms(9), grain_contract::limits::BACKOFF_MS_MAX);
    assert_eq!(Backoff { initial_ms: 0, factor: f64::INFINITY, max_ms: 9 }.delay_ms(7), 0);
}

/// [FR-054] 5,000 attempts: each delay within the bound, and the row does not grow with them.
#[test]
fn five_thousand_attempts() {
    let mut run = Run::of(&single("failurePolicy: Retry, maxAttempts: 100"));
    run.reload = false;
    run.plan.steps[0].max_attempts = 5_000;
    run.plan.steps[0].backoff = Backoff { initial_ms: 1, factor: 2.0, max_ms: 5 };
    run.start("{}");
    let mut ms = 0;
    for attempt in 1..5_000_u32 {
        let (id, number) = run.order("a");
        assert_eq!(number, attempt);
        run.outcome(Outcome {
            attempt_id: Some(Uuid::from_u128(attempt.into())),
            ..outcome(id, number, OutcomeKind::Failed)
        });
        ms += 5;
        run.at(ms);
        assert!(run.written < 4_000, "attempt {attempt} wrote {}", run.written);
    }
    assert_eq!(run.fail("a", "tool"), ["a Failed", "end Failed a tool"]);
}

/// [R7] [FR-116] Every attempt has its own timeout, and none is left at the end.
#[test]
fn every_attempt_times_out_anew() {
    let mut run = Run::of(&single(
        "failurePolicy: Retry, maxAttempts: 3, timeoutMinutes: 0.5, retry: { initial: 1s, factor: 1 }",
    ));
    run.start("{}");
    assert_eq!(run.at(29_999), [""; 0]);
    assert_eq!(run.at(30_000), ["timer a late 0", "time out a", "a WaitingForTimer"]);
    assert_eq!(run.at(31_000), ["timer a late 0", "a Ready", "do a/2 tool:echo {}"]);
    assert_eq!(run.at(61_000), ["timer a late 0", "time out a", "a WaitingForTimer"]);
    run.at(62_000);
    assert_eq!(run.at(92_500), ["timer a late 500", "time out a", "a Failed", "end Failed a timeout"]);
    assert_eq!(run.p.next_due(), None);
    assert_eq!(run.graph().timers, []);
}

/// [R2] [FR-090] The outcome of an attempt that timed out changes nothing, before and while the next one is at work.
#[test]
fn a_late_outcome_of_a_superseded_attempt_changes_nothing() {
    let mut run = Run::of(&single("failurePolicy: Retry, maxAttempts: 3, timeoutMinutes: 1, retry: { initial: 1s }"));
    run.start("{}");
    let (id, _) = run.order("a");
    run.at(60_000);
    let late = || Outcome { output: b"1".to_vec(), ..outcome(id, 1, OutcomeKind::Succeeded) };
    assert_eq!(run.outcome(late()), [""; 0]);
    assert!(run.superseded());
    run.at(61_000);
    assert_eq!(run.outcome(late()), [""; 0]);
    assert!(run.superseded());
    assert_eq!(run.ok("a", "2"), ["a Succeeded", "end Completed 2"]);
}

/// [R7] A timeout and an outcome in one turn: what was due comes first.
#[test]
fn what_is_due_comes_before_the_fact() {
    let mut run = Run::of(&single("failurePolicy: Fail, timeoutMinutes: 1"));
    run.start("{}");
    run.now = T0 + 60_000;
    assert_eq!(run.ok("a", "1"), ["timer a late 0", "time out a", "a Failed", "end Failed a timeout"]);
    assert!(run.superseded());
    assert_eq!(run.p.last_outcome_sequence(), 2);
}

/// [R10] Uncertain is done again only for `read`: at least once, whatever the policy. Everything else asks a human.
#[test]
fn uncertain_is_retried_for_read_only() {
    let mut run = Run::of(&single("actionClass: read, failurePolicy: Fail, maxAttempts: 1, retry: { initial: 1s }"));
    run.start("{}");
    assert_eq!(run.end("a", OutcomeKind::Uncertain, "", None), ["a WaitingForTimer"]);
    assert_eq!(run.at(1_000), ["timer a late 0", "a Ready", "do a/2 tool:echo {}"]);
    assert_eq!(run.end("a", OutcomeKind::Uncertain, "", None), ["a Failed", "end Failed a uncertain"]);

    for policy in ["Fail", "Retry", "Compensate", "Route", "Escalate"] {
        let mut run = Run::of(&single(&format!("actionClass: shared-write, failurePolicy: {policy}, maxAttempts: 5")));
        run.start("{}");
        assert_eq!(
            run.end("a", OutcomeKind::Uncertain, "", None),
            ["ask a/2 escalation {}", "a WaitingForHuman"],
            "{policy}"
        );
    }
}

/// [R10] Escalate: a human chooses. Skip goes on behind the step.
#[test]
fn a_human_chooses_retry_skip_or_fail() {
    let document = "
workflow: escalate
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, failurePolicy: Escalate }
  - { id: b, kind: Tool, tool: echo, inputMapping: { from: { var: a } } }
edges: [ { from: a, to: b } ]
";
    let start = || {
        let mut run = Run::of(document);
        run.start("{}");
        assert_eq!(run.fail("a", "tool"), ["ask a/2 escalation {}", "a WaitingForHuman"]);
        assert_eq!(run.waits("a"), "human: human decision: retry, skip or fail");
        run
    };
    let mut run = start();
    assert_eq!(run.decide("a", "retry"), ["a Ready", "do a/3 tool:echo {}"]);
    assert_eq!(run.fail("a", "tool"), ["ask a/4 escalation {}", "a WaitingForHuman"]);
    assert_eq!(run.decide("a", "skip"), ["a Skipped", "b Ready", r#"do b/1 tool:echo {"from":null}"#]);
    let mut run = start();
    assert_eq!(run.decide("a", "fail"), ["a Failed", "end Failed a tool"]);
    let mut run = start();
    let (id, _) = run.order("a");
    let refused = run.tell(Input::ApprovalDecided { sequence: 3, decided: decided(id, "approved") });
    assert!(matches!(refused, Err(Refusal::DoesNotFit { code: "unknown-decision", .. })), "{refused:?}");
}

/// [FR-201] A condition that fails again after a human's retry asks again, with a new number; the run never stands still.
#[test]
fn a_failed_condition_asks_each_time() {
    let mut run = Run::of(
        "
workflow: condition
version: '1'
steps:
  - { id: c, kind: Condition, expression: { '+': [ { var: input.text }, 1 ] }, failurePolicy: Escalate }
",
    );
    let lines = run.start(r#"{"text":{"not":"a number"}}"#);
    assert_eq!(lines[1..], ["c Ready", r#"ask c/2 escalation {"text":{"not":"a number"}}"#, "c WaitingForHuman"]);
    for attempt in [4, 6] {
        let lines = run.decide("c", "retry");
        assert_eq!(lines, [format!(r#"ask c/{attempt} escalation {{"text":{{"not":"a number"}}}}"#)]);
        assert_eq!(run.state(), RunState::WaitingForHuman);
        assert_eq!(run.step("c").failure.expect("a failure").class, "condition");
    }
    assert_eq!(run.decide("c", "fail"), ["c Failed", "end Failed c condition"]);
}

/// [R4] [FR-036] An evaluation error fails the step and so the run, at once; an absent field is null and no error.
#[test]
fn a_mapping_that_fails_ends_the_run() {
    let document = |mapping: &str| {
        format!(
            "
workflow: mapping
version: '1'
deadlineMinutes: 1
steps:
  - {{ id: a, kind: Tool, tool: echo }}
  - {{ id: b, kind: Tool, tool: echo, failurePolicy: Retry, inputMapping: {{ n: {mapping} }} }}
edges: [ {{ from: a, to: b }} ]
"
        )
    };
    let mut run = Run::of(&document("{ '+': [ { var: a.total }, 1 ] }"));
    run.start("{}");
    assert_eq!(run.ok("a", r#"{"total":{}}"#), ["a Succeeded", "b Failed", "end Failed b mapping"]);
    let mut run = Run::of(&document("{ var: a.total }"));
    run.start("{}");
    assert_eq!(run.ok("a", "{}")[2], r#"do b/1 tool:echo {"n":null}"#);
}

/// [R4] A guard that cannot be evaluated fails the step it stands behind.
#[test]
fn a_guard_that_fails_fails_its_step() {
    let mut run = Run::of(
        "
workflow: guard
version: '1'
steps:
  - { id: a, kind: Tool, tool: echo, failurePolicy: Retry, maxAttempts: 5 }
  - { id: b, kind: Tool, tool: echo }
edges: [ { from: a, to: b, guard: { '<': [ { '+': [ { var: a.n }, 1 ] }, 3 ] } } ]
",
    );
    run.start("{}");
    assert_eq!(run.ok("a", r#"{"n":{}}"#), ["a Failed", "end Failed a condition"]);
}

/// [R10] Route: the failure is data for the edges; if no edge takes it, it fails the run.
#[test]
fn route_makes_the_failure_data() {
    let document = |guard: &str| {
        format!(
            "
workflow: route
version: '1'
steps:
  - {{ id: a, kind: Tool, tool: echo, failurePolicy: Route }}
  - {{ id: repair, kind: Tool, tool: echo, inputMapping: {{ class: {{ var: a.failure.class }} }} }}
  - {{ id: b, kind: Tool, tool: echo }}
edges:
  - {{ from: a, to: repair, guard: {guard} }}
  - {{ from: a, to: b }}
"
        )
    };
    let mut run = Run::of(&document("failed"));
    run.start("{}");
    assert_eq!(
        run.fail("a", "tool"),
        ["a Failed", "repair Ready", r#"do repair/1 tool:echo {"class":"tool"}"#, "b Skipped"]
    );
    run.ok("repair", "1");
    assert_eq!(run.state(), RunState::Completed);
    let mut run = Run::of(&document("failed"));
    run.start("{}");
    assert_eq!(run.ok("a", "1"), ["a Succeeded", "repair Skipped", "b Ready", "do b/1 tool:echo {}"]);

    let mut run = Run::of(&document("{ '==': [ { var: a.failure.class }, quorum ] }"));
    run.start("{}");
    assert_eq!(run.fail("a", "tool"), ["a Failed", "end Failed a tool"]);
}

/// [R10] A routed failure may take a loop-back: trying again by hand, within the loop's bound.
#[test]
fn a_routed_failure_may_go_back() {
    let mut run = Run::of(
        "
workflow: again
version: '1'
maxLoopIterations: 2
steps: [ { id: a, kind: Tool, tool: echo, failurePolicy: Route } ]
edges: [ { from: a, to: a, guard: failed, isLoopBack: true } ]
",
    );
    run.start("{}");
    assert_eq!(run.fail("a", "tool"), ["a Failed", "a#2 Ready", "do a#2/1 tool:echo {}"]);
    assert_eq!(run.fail("a#2", "tool"), ["a#2 Failed", "end Failed a loop-bound"]);
}

/// [R7] The run's deadline fails the run and closes what is open.
#[test]
fn the_deadline_fails_the_run() {
    let mut run = Run::of(
        "
workflow: deadline
version: '1'
deadlineMinutes: 1
steps:
  - { id: s, kind: Condition, expression: true }
  - { id: a, kind: Tool, tool: echo }
  - { id: ask, kind: Human }
edges: [ { from: s, to: a }, { from: s, to: ask } ]
",
    );
    run.start("{}");
    assert_eq!(
        run.at(60_010),
        ["timer run late 10", "close a", "a Cancelled", "close ask", "ask Cancelled", "end Failed  deadline"]
    );
}
