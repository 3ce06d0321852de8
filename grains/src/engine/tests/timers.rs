//! Timers.

use super::*;

fn nap(fields: &str) -> String {
    format!(
        "
workflow: nap
version: '1'
steps:
  - {{ id: a, kind: Tool, tool: echo }}
  - {{ id: nap, kind: Timer, {fields} }}
  - {{ id: b, kind: Tool, tool: echo }}
edges: [ {{ from: a, to: nap }}, {{ from: nap, to: b }} ]
"
    )
}

/// [R7] [FR-198] Never early: a wake-up before the due time does nothing, and the same due time is still wanted.
#[test]
fn a_timer_never_fires_early() {
    let mut run = Run::of(&nap("delay: P10D"));
    run.start("{}");
    assert_eq!(run.ok("a", "1"), ["a Succeeded", "nap WaitingForTimer"]);
    assert_eq!(run.state(), RunState::WaitingForTimer);
    let due = run.p.next_due();
    assert_eq!(due, Some(Timestamp(T0 + 864_000_000)));
    assert_eq!(run.at(863_999_999), [""; 0]);
    assert_eq!(run.p.next_due(), due);
    assert_eq!(run.at(864_000_000), ["timer nap late 0", "nap Succeeded", "b Ready", "do b/1 tool:echo {}"]);
}

/// [R7] Late is fired at once and says how late; and it is fired once.
#[test]
fn a_late_timer_fires_once_and_says_so() {
    let mut run = Run::of(&nap("delay: PT60S"));
    run.start("{}");
    run.ok("a", "1");
    assert_eq!(run.at(95_000)[..2], ["timer nap late 35000", "nap Succeeded"]);
    assert_eq!(run.at(95_001), [""; 0]);
    let timers = run.graph().timers;
    let nap: Vec<_> = timers.iter().filter(|timer| timer.purpose == "step").collect();
    assert_eq!((nap.len(), nap[0].fired, nap[0].late_ms), (1, true, 35_000));
}

/// [FR-185] [FR-199] A polling loop that was stopped for several periods catches up with one firing, not with a burst: the next
/// wait counts from then.
#[test]
fn an_overdue_loop_catches_up_once() {
    let mut run = Run::of(
        "
workflow: poll
version: '1'
maxLoopIterations: 100
steps:
  - { id: nap, kind: Timer, delay: PT10S }
  - { id: again, kind: Condition, expression: true }
edges: [ { from: nap, to: again }, { from: again, to: nap, guard: 'true', isLoopBack: true } ]
",
    );
    run.start("{}");
    for tick in 1..=60 {
        let lines = run.at(tick * 10_000);
        assert_eq!(lines[0], format!("timer {} late 0", if tick == 1 { "nap".into() } else { format!("nap#{tick}") }));
        assert_eq!(lines.iter().filter(|line| line.starts_with("timer")).count(), 1);
    }
    let lines = run.at(635_000);
    assert_eq!(lines.iter().filter(|line| line.starts_with("timer")).count(), 1, "{lines:?}");
    assert_eq!(run.p.next_due(), Some(Timestamp(T0 + 645_000)));
}

#[test]
fn a_moment_that_is_past_fires_in_the_same_turn() {
    let mut run = Run::of(&nap("until: '1970-01-01T00:16:00Z'"));
    run.start("{}");
    let lines = run.ok("a", "1");
    assert_eq!(lines[..4], ["a Succeeded", "nap WaitingForTimer", "timer nap late 40000", "nap Succeeded"]);
}

#[test]
fn a_wait_may_be_computed() {
    for (given, due) in [
        ("1.5", T0 + 1_500),
        ("\"PT2M\"", T0 + 120_000),
        ("\"P1D\"", T0 + 86_400_000),
        ("\"1970-01-01T01:00:00Z\"", 3_600_000),
    ] {
        let mut run = Run::of(&nap("delay: { var: a.wait }"));
        run.start("{}");
        run.ok("a", &format!(r#"{{"wait":{given}}}"#));
        assert_eq!(run.p.next_due(), Some(Timestamp(due)), "{given}");
    }
    for given in ["-1", "null", "\"soon\"", "\"-PT1S\"", "[]"] {
        let mut run = Run::of(&nap("delay: { var: a.wait }"));
        run.start("{}");
        assert_eq!(
            run.ok("a", &format!(r#"{{"wait":{given}}}"#)),
            ["a Succeeded", "nap Failed", "end Failed nap mapping"],
            "{given}"
        );
    }
}

/// [R7] [FR-037] A wake-up finds no timer of a step that has moved on, in whatever state the run is.
#[test]
fn a_wake_up_for_what_moved_on_is_nothing() {
    let mut run = Run::of(&nap("delay: PT60S"));
    assert_eq!(run.at(0), [""; 0], "nothing accepted yet");
    run.start("{}");
    let timeout_of_a = run.p.next_due().expect("a times out").0 - T0;
    run.ok("a", "1");
    run.at(60_000);
    run.ok("b", "1");
    assert_eq!(run.at(timeout_of_a), [""; 0]);
    assert_eq!(run.state(), RunState::Completed);
}

/// [FR-169] A timeout holds over any number of changes of owner (each turn here loads the rows anew).
#[test]
fn a_timeout_survives_reloads() {
    let mut run = Run::of(
        "
workflow: slow
version: '1'
steps: [ { id: a, kind: Tool, tool: echo, timeoutMinutes: 10 } ]
",
    );
    run.start("{}");
    for minute in 1..10 {
        assert_eq!(run.at(minute * 60_000), [""; 0]);
    }
    assert_eq!(run.at(600_000), ["timer a late 0", "time out a", "a Failed", "end Failed a timeout"]);
}
