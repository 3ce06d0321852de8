//! Human steps.

use super::*;

fn ask(fields: &str) -> String {
    format!(
        "
workflow: human
version: '1'
steps:
  - {{ id: ask, kind: Human, {fields} }}
  - {{ id: close, kind: Tool, tool: echo, inputMapping: {{ got: {{ var: ask }} }} }}
edges: [ {{ from: ask, to: close }} ]
"
    )
}

/// [R8] An approval gives who decided what; an input gives the answer.
#[test]
fn what_a_human_said_is_the_output() {
    let mut run = Run::of(&ask("actionClass: read"));
    assert_eq!(run.start("{}"), ["started", "ask Ready", "ask ask/1 approval {}", "ask WaitingForHuman"]);
    assert_eq!(
        run.decide("ask", "approved")[2],
        r#"do close/1 tool:echo {"got":{"by":"someone","comment":"","decision":"approved"}}"#
    );

    let mut run = Run::of(&ask("ask: input"));
    assert_eq!(run.start("{}")[2], "ask ask/1 input {}");
    let (id, _) = run.order("ask");
    let answered = Decided { answer: br#"{"n":5}"#.to_vec(), ..decided(id, "answered") };
    let lines = run.fact(|sequence| Input::ApprovalDecided { sequence, decided: answered });
    assert_eq!(lines[2], r#"do close/1 tool:echo {"got":{"n":5}}"#);
}

/// [R8] A rejection follows the step's failure policy.
#[test]
fn a_rejection_follows_the_policy() {
    for (policy, wanted) in [
        ("Fail", vec!["ask Failed", "end Failed ask rejected"]),
        ("Escalate", vec!["ask ask/2 escalation {}"]),
        ("Compensate", vec!["ask Failed", "compensate 0", "end Failed ask rejected"]),
        ("Route", vec!["ask Failed", "end Failed ask rejected"]),
    ] {
        let mut run = Run::of(&ask(&format!("failurePolicy: {policy}")));
        run.start("{}");
        assert_eq!(run.decide("ask", "rejected"), wanted, "{policy}");
    }
    let mut run = Run::of(&ask("failurePolicy: Retry, maxAttempts: 2, retry: { initial: 1s }"));
    run.start("{}");
    assert_eq!(run.decide("ask", "rejected"), ["ask WaitingForTimer"]);
    run.at(1_000);
    assert_eq!(run.order("ask").1, 2, "asked anew, under a new number");
    assert_eq!(run.decide("ask", "rejected"), ["ask Failed", "end Failed ask rejected"]);
}

/// [R8] A decision that comes twice, or for an approval that is not asked for any more, changes nothing.
#[test]
fn a_decision_on_what_is_not_asked_changes_nothing() {
    let mut run = Run::of(&ask("actionClass: read"));
    run.start("{}");
    let (id, _) = run.order("ask");
    let approval = Uuid::from_u128(5);
    run.tell(Input::StepTaken { step_run_id: id, attempt_id: None, approval_id: Some(approval) }).expect("known");
    assert_eq!(run.step("ask").approval_id, approval.to_string());
    let other = Decided { approval_id: Some(Uuid::from_u128(6)), ..decided(id, "approved") };
    assert_eq!(run.fact(|sequence| Input::ApprovalDecided { sequence, decided: other }), [""; 0]);
    assert!(run.superseded());
    run.decide("ask", "approved");
    let again = decided(id, "rejected");
    assert_eq!(run.fact(|sequence| Input::ApprovalDecided { sequence, decided: again }), [""; 0]);
    assert!(run.superseded());
}

/// [R7] A human's silence times out.
#[test]
fn silence_times_out() {
    let mut run = Run::of(&ask("timeoutMinutes: 0.5, failurePolicy: Fail"));
    run.start("{}");
    assert_eq!(run.state(), RunState::WaitingForHuman);
    assert_eq!(run.at(30_000), ["timer ask late 0", "time out ask", "ask Failed", "end Failed ask timeout"]);
}

/// [R1] Waiting for a human is a state of the run only while nothing else is at work.
#[test]
fn a_run_waits_only_if_nothing_else_moves() {
    let mut run = Run::of(
        "
workflow: both
version: '1'
steps:
  - { id: s, kind: Condition, expression: true }
  - { id: a, kind: Tool, tool: echo }
  - { id: ask, kind: Human }
  - { id: nap, kind: Timer, delay: PT1M }
edges: [ { from: s, to: a }, { from: s, to: ask }, { from: s, to: nap } ]
",
    );
    run.start("{}");
    assert_eq!(run.state(), RunState::Running);
    run.ok("a", "1");
    assert_eq!(run.state(), RunState::WaitingForHuman);
    run.decide("ask", "approved");
    assert_eq!(run.state(), RunState::WaitingForTimer);
    run.at(60_000);
    assert_eq!(run.state(), RunState::Completed);
}
