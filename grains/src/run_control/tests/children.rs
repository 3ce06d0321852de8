//! Child runs, seen from both sides.

use super::*;
use crate::engine::{Input, OutcomeKind, RunEnd, StartChild};
use crate::kinds::methods::run;
use grain_contract::OutboxMessage;
use granary_proto::calls;
use prost::Message as _;

const CHILD: Uuid = Uuid::from_u128(0x33);

fn start() -> StartChild {
    StartChild {
        child_run_id: CHILD,
        step_run_id: STEP,
        definition_id: "inner".into(),
        version: None,
        input: b"1".to_vec(),
        project_id: "p".into(),
        depth: 1,
    }
}

fn with_child() -> Authority {
    let mut authority = submitted();
    let mut record = at(2_000);
    authority.record_start_child(&mut record, "sub".into(), start());
    let [OutboxMessage::Call { target, method, body, on_rejected }] = &record.calls[..] else { panic!("one call") };
    assert_eq!(
        (target.key.to_string(), *method, *on_rejected),
        (CHILD.to_string(), run::SUBMIT, Some(run::CALL_REJECTED))
    );
    let submit = calls::Submit::decode(body.as_slice()).expect("decodes");
    assert_eq!((submit.parent_run_id, submit.parent_step_run_id, submit.depth), (RUN.to_string(), STEP.to_string(), 1));
    assert_eq!(submit.release_id, "", "the child finds its release itself");
    reload(authority, record)
}

/// [R9] The child's end is the step's outcome, once.
#[test]
fn a_childs_end_is_an_outcome() {
    let table = [
        ("Completed", OutcomeKind::Succeeded, None),
        ("Failed", OutcomeKind::Failed, Some("infrastructure")),
        ("Cancelled", OutcomeKind::Cancelled, Some("cancelled")),
    ];
    for (state, kind, class) in table {
        let mut authority = with_child();
        let end = authority.check_child_ended(CHILD, state, b"2".to_vec(), None).expect("an end");
        let Input::AttemptOutcomeRecorded { sequence: 2, outcome } = end.fact(authority.next_sequence()) else {
            panic!("an outcome")
        };
        assert_eq!((outcome.kind, outcome.attempt, outcome.attempt_id), (kind, 1, Some(CHILD)));
        assert_eq!(outcome.failure.map(|f| f.class), class.map(str::to_owned));
        let mut record = at(3_000);
        authority.record_end(&mut record, end);
        assert_eq!(told(&record), ["3 ChildRunEnded fact 2"]);
        let authority = reload(authority, record);
        assert_eq!(authority.check_child_ended(CHILD, state, Vec::new(), None), None, "told again");
    }
    assert_eq!(with_child().check_child_ended(Uuid::from_u128(9), "Failed", Vec::new(), None), None, "unknown");
}

/// [FR-144] A child that ends after the parent's cancel changes nothing.
#[test]
fn a_child_that_ends_after_its_cancel_is_no_news() {
    let mut authority = with_child();
    let mut record = at(3_000);
    authority.record_cancel_child(&mut record, CHILD, "enough");
    let [OutboxMessage::Call { method, .. }] = &record.calls[..] else { panic!("one call") };
    assert_eq!(*method, run::CANCEL_CHILD);
    let authority = reload(authority, record);
    assert!(authority.open_step_runs().is_empty());
    assert_eq!(authority.check_child_ended(CHILD, "Completed", Vec::new(), None), None);
}

#[test]
fn a_child_is_started_once() {
    let mut authority = with_child();
    let mut record = at(3_000);
    authority.record_start_child(&mut record, "sub".into(), start());
    assert!(record.calls.is_empty() && record.entries.is_empty());
}

/// [FR-052] A cancel before the start is remembered, over a restart too.
#[test]
fn a_cancel_before_the_start_is_remembered() {
    let mut authority = Authority::new("acme", RUN);
    assert!(authority.remember_cancel("enough"));
    assert!(!authority.remember_cancel("again"));
    let authority = reload(authority, at(1_000));
    assert_eq!(authority.tombstone(), Some("enough"));
    assert!(authority.run().is_none(), "there is no such run yet");
}

/// [R9] A run with a parent tells it how it ended, in the commit of the end.
#[test]
fn a_child_tells_its_parent() {
    let mut authority = Authority::new("acme", RUN);
    let mut record = at(1_000);
    let submit =
        Submit { parent_run_id: CHILD.to_string(), parent_step_run_id: STEP.to_string(), depth: 1, ..submission() };
    let Ok(Verdict::New(checked)) = authority.check_submit(submit) else { panic!("a new submission") };
    authority.record_submit(&mut record, checked, pinned());
    authority.record_run_ended(&mut record, RunEnd::Completed { output: b"5".to_vec() });
    let [OutboxMessage::Call { target, method, body, .. }] = &record.calls[..] else { panic!("one call") };
    assert_eq!((target.key.to_string(), *method), (CHILD.to_string(), run::CHILD_ENDED));
    let ended = calls::ChildEnded::decode(body.as_slice()).expect("decodes");
    assert_eq!(
        (ended.child_run_id, ended.step_run_id, ended.state),
        (RUN.to_string(), STEP.to_string(), "Completed".into())
    );
}
