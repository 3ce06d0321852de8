//! Submission, cancel, and the end of a run.

use super::*;
use crate::engine::{Input, RunEnd};
use crate::kinds::methods::index::{OPEN_RUNS, RUNS};
use crate::run_control::{Cancellable, Cancelling, RunState, accepted_of};
use grain_contract::{Code, Effect, IndexChange};
use granary_proto::v1::Failure;

/// [C2] [FR-172] The same submission again is the same run; the same id with other content is a conflict. Run ids are never
/// used again, so a late duplicate can only meet its own run.
#[test]
fn a_submission_is_recognised_by_its_content() {
    let authority = submitted();
    assert!(matches!(authority.check_submit(submission()), Ok(Verdict::Repeated)));
    let resolved_elsewhere = Submit { release_id: "line@2".into(), by: "bob".into(), ..submission() };
    assert!(
        matches!(authority.check_submit(resolved_elsewhere), Ok(Verdict::Repeated)),
        "the release is not the request"
    );
    type Change = fn(&mut SubmitRunRequest);
    let changes: [Change; 5] = [
        |r| r.input = Some(Json::new("{}")),
        |r| r.variables = Some(Json::new("{}")),
        |r| r.definition_id = "other".into(),
        |r| r.version = "2".into(),
        |r| r.project_id = "p".into(),
    ];
    for change in changes {
        let mut submit = submission();
        submit.request.as_mut().map(change);
        let rejection = authority.check_submit(submit).expect_err("a conflict");
        assert_eq!((rejection.code, rejection.field.as_str()), (Code::Conflict, "clientKey"));
    }
}

/// [C1] The acceptance is entry 1 and fact 1, and the journal has all that makes the fact again.
#[test]
fn the_journal_keeps_the_whole_acceptance() {
    let mut authority = Authority::new("acme", RUN);
    let mut record = at(1_000);
    let mut submit = submission();
    (submit.parent_run_id, submit.parent_step_run_id, submit.depth) = (STEP.to_string(), RUN.to_string(), 3);
    if let Some(request) = &mut submit.request {
        request.input = Some(Json::new("{\"b\" : 1.0,\"a\":9007199254740993}"));
        request.variables = Some(Json::new("{\"v\":null}"));
    }
    let Ok(Verdict::New(checked)) = authority.check_submit(submit) else { panic!("a new submission") };
    let fact = authority.submit_fact(&checked, &pinned());
    authority.record_submit(&mut record, checked, pinned());
    let Input::RunAccepted { sequence: 1, accepted } = fact else { panic!("an acceptance") };
    assert_eq!(told(&record), ["1 RunAccepted fact 1"]);
    assert_eq!(accepted_of(&record.entries[0]), Ok(accepted));
    let indexes: Vec<_> =
        record.index.iter().map(|i| matches!(i, IndexChange::Put { index: RUNS | OPEN_RUNS, .. })).collect();
    assert_eq!(indexes, [true, true]);
}

/// [R12] [FR-115] [FR-188] Cancel withdraws everything that is open, the fact comes last, and nothing fits afterwards.
#[test]
fn a_cancel_closes_what_is_open() {
    let mut authority = with_attempt(true);
    let mut record = at(3_000);
    let waiting = Uuid::from_u128(0x23);
    authority.record_step_ready(
        &mut record,
        StepReadyOrder { step_run_id: waiting, ..human(1, "approval") },
        &mut NoOffers,
        b"",
    );
    let mut authority = reload(authority, record);
    assert_eq!(authority.check_cancel("enough"), Ok(Cancellable::Yes));
    let long = "x".repeat(grain_contract::limits::TEXT_BYTES_MAX + 1);
    assert_eq!(authority.check_cancel(&long).expect_err("too long").code, Code::TooLarge);
    let mut record = at(4_000);
    let cancelling = Cancelling { reason: "enough".into(), by: "ann".into() };
    assert_eq!(
        authority.cancel_fact(authority.next_sequence(), &cancelling),
        Input::RunCancelled { sequence: 2, reason: "enough".into() }
    );
    authority.record_cancel(&mut record, cancelling);
    authority.record_run_ended(&mut record, RunEnd::Cancelled { open_step_runs: 2 });
    authority.settle();
    assert_eq!(
        told(&record),
        ["7 RunCancelRequested", "8 AttemptOutcomeRecorded", "9 ApprovalWithdrawn", "10 RunCancelled fact 2"]
    );
    assert!(matches!(&record.effects[..], [Effect::Withdraw { interrupt: true, .. }]));
    let authority = reload(authority, record);
    assert_eq!(authority.run().expect("a run").state, RunState::Cancelled);
    assert_eq!(authority.check_cancel("enough"), Ok(Cancellable::Already));
    assert!(authority.open_step_runs().is_empty());
    let late = authority.check_report(report(crate::engine::ids::attempt_id(STEP, 1), &TOKEN, "Succeeded", ""));
    let late = late.expect_err("already terminal");
    assert_eq!(late.code, Code::WrongState);
    assert!(late.message.contains("already terminal"), "{}", late.message);
    let mut authority = authority;
    let mut record = at(5_000);
    authority.record_step_ready(&mut record, order(2), &mut OnePlace, b"");
    authority.record_run_ended(&mut record, RunEnd::Cancelled { open_step_runs: 0 });
    assert!(record.entries.is_empty(), "nothing follows the end");
}

/// [FR-011] Of a completion and a cancel at the same time one wins, and the other is told so.
#[test]
fn a_finished_run_is_not_cancelled() {
    let failure = Failure { class: "tool".into(), message: "no".into() };
    let ends = [
        (RunEnd::Completed { output: b"1".to_vec() }, RunState::Completed),
        (
            RunEnd::Failed { failed_step_id: "a".into(), failure, compensated: false, output: Vec::new() },
            RunState::Failed,
        ),
    ];
    for (end, state) in ends {
        let mut authority = submitted();
        let mut record = at(2_000);
        authority.record_run_ended(&mut record, end);
        assert_eq!(told(&record), [format!("2 Run{}", state.as_str())]);
        assert!(matches!(&record.index[..], [IndexChange::Delete { index: OPEN_RUNS, .. }]));
        let authority = reload(authority, record);
        assert_eq!(authority.run().expect("a run").state, state);
        assert_eq!(authority.check_cancel("enough").expect_err("ended").code, Code::WrongState);
    }
}

/// [D6] A run whose release is refused is accepted and fails.
#[test]
fn a_refused_run_goes_from_accepted_to_failed() {
    let mut authority = Authority::new("acme", RUN);
    let mut record = at(1_000);
    let refusal = Failure { class: "policy-denied".into(), message: "no".into() };
    let Ok(Verdict::New(checked)) = authority.check_submit(submission()) else { panic!("a new submission") };
    authority.record_submit(&mut record, checked, Pinned { refusal: Some(refusal.clone()), ..pinned() });
    let end =
        RunEnd::Failed { failed_step_id: String::new(), failure: refusal.clone(), compensated: false, output: vec![] };
    authority.record_run_ended(&mut record, end);
    authority.settle();
    let authority = reload(authority, record);
    let run = authority.run().expect("a run");
    assert_eq!((run.state, run.refusal.clone()), (RunState::Failed, Some(refusal)));
}
