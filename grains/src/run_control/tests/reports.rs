//! A worker's report, against every state of the attempt.

use super::*;
use crate::engine::ids::attempt_id;
use crate::engine::{Closing, Input, OutcomeKind};
use grain_contract::Code;
use granary_proto::v1::Failure;

fn refused(authority: &Authority, report: Report) -> Code {
    let before = shape(authority);
    let code = authority.check_report(report).expect_err("a refusal").code;
    assert_eq!(shape(authority), before, "a refusal changes nothing");
    code
}

/// Reports, records, and gives the fact.
fn done(authority: &mut Authority, what: Report) -> (Input, Record) {
    let Ok(Verdict::New(end)) = authority.check_report(what) else { panic!("a new outcome") };
    let fact = end.fact(authority.next_sequence());
    let mut record = at(3_000);
    authority.record_end(&mut record, end);
    (fact, record)
}

/// [C3] The first report is the fact, the same again the same answer, another content a conflict.
#[test]
fn an_outcome_is_recorded_once() {
    let mut authority = with_attempt(true);
    let id = attempt_id(STEP, 1);
    let (fact, record) = done(&mut authority, report(id, &TOKEN, "Succeeded", "{}"));
    let Input::AttemptOutcomeRecorded { sequence, outcome } = fact else { panic!("an outcome") };
    assert_eq!((sequence, outcome.attempt, outcome.kind), (2, 1, OutcomeKind::Succeeded));
    assert_eq!(told(&record), ["5 AttemptOutcomeRecorded fact 2"]);
    let authority = reload(authority, record);
    assert_eq!(authority.check_report(report(id, &TOKEN, "Succeeded", "{}")), Ok(Verdict::Repeated));
    assert_eq!(refused(&authority, report(id, &TOKEN, "Succeeded", "[]")), Code::Conflict);
    assert_eq!(refused(&authority, report(id, &TOKEN, "Failed", "{}")), Code::Conflict);
    assert!(authority.open_step_runs().is_empty());
}

#[test]
fn what_cannot_be_right_is_refused_with_its_field() {
    let authority = with_attempt(true);
    let id = attempt_id(STEP, 1);
    let big = format!("\"{}\"", "x".repeat(grain_contract::limits::PAYLOAD_BYTES_MAX - 1));
    let unknown = Uuid::from_u128(9);
    let hashed = Report { outcome_hash: "00".into(), ..report(id, &TOKEN, "Succeeded", "1") };
    let failure = |class: String, message: String| Report {
        failure: Some(Failure { class, message }),
        ..report(id, &TOKEN, "Failed", "")
    };
    let table = [
        (failure("c".repeat(129), String::new()), Code::TooLarge, "report.failure.class"),
        (failure("tool".into(), "m".repeat(16 * 1024 + 1)), Code::TooLarge, "report.failure.message"),
        (Report { attempt_id: "x".into(), ..report(id, &TOKEN, "Succeeded", "") }, Code::Invalid, "report.attemptId"),
        (report(unknown, &TOKEN, "Succeeded", ""), Code::NotFound, "report.attemptId"),
        (report(id, &TOKEN, "Done", ""), Code::Invalid, "report.outcome"),
        (report(id, &TOKEN, "Succeeded", "{"), Code::Invalid, "report.output"),
        (report(id, &TOKEN, "Succeeded", &"[".repeat(10_000)), Code::Invalid, "report.output"),
        (report(id, &TOKEN, "Succeeded", &big), Code::TooLarge, "report.output"),
        (hashed, Code::Invalid, "report.outcomeHash"),
        (report(id, &[8; 16], "Succeeded", ""), Code::StaleToken, "report.leaseToken"),
        (report(id, &[], "Succeeded", ""), Code::StaleToken, "report.leaseToken"),
    ];
    for (what, code, field) in table {
        let rejection = authority.check_report(what.clone()).expect_err("a refusal");
        assert_eq!((rejection.code, rejection.field.as_str()), (code, field), "{what:?}");
        assert!(rejection.message.starts_with("Expected "), "{}", rejection.message);
    }
    let hash = blake3::hash(b"1").to_hex().to_string();
    let right = Report { outcome_hash: hash, ..report(id, &TOKEN, "Succeeded", "1") };
    assert!(authority.check_report(right).is_ok());
    let queued = with_attempt(false);
    assert_eq!(refused(&queued, report(id, &[], "Succeeded", "")), Code::StaleToken, "nobody holds it");
    let nobody = Authority::new("acme", RUN);
    assert_eq!(refused(&nobody, report(id, &TOKEN, "Succeeded", "")), Code::NotFound);
}

/// An old attempt: its worker is told the same as before, everybody else that it is over.
#[test]
fn a_superseded_attempt_keeps_its_answer() {
    let mut authority = with_attempt(true);
    let first = attempt_id(STEP, 1);
    let (_, mut record) = done(&mut authority, report(first, &TOKEN, "Failed", ""));
    authority.record_step_ready(&mut record, order(2), &mut OnePlace, b"");
    let authority = reload(authority, record);
    assert_eq!(authority.check_report(report(first, &TOKEN, "Failed", "")), Ok(Verdict::Repeated));
    assert_eq!(refused(&authority, report(first, &TOKEN, "Succeeded", "")), Code::Conflict);
    assert_eq!(refused(&authority, report(first, &[8; 16], "Failed", "")), Code::StaleToken);
    assert!(authority.check_report(report(attempt_id(STEP, 2), &TOKEN, "Succeeded", "")).is_ok());
}

#[test]
fn an_attempt_that_was_closed_takes_no_outcome() {
    let mut authority = with_attempt(true);
    let mut record = at(3_000);
    authority.record_close(&mut record, STEP, Closing::TimedOut);
    assert_eq!(told(&record), ["5 AttemptOutcomeRecorded"], "no fact: the engine said it itself");
    assert!(matches!(record.effects[..], [grain_contract::Effect::Withdraw { interrupt: true, .. }]));
    let authority = reload(authority, record);
    let late = report(attempt_id(STEP, 1), &TOKEN, "Succeeded", "");
    let rejection = authority.check_report(late.clone()).expect_err("too late");
    assert_eq!(rejection.code, Code::WrongState);
    assert!(rejection.message.contains("has already ended TimedOut"), "{}", rejection.message);
    // Closing again is no fault and changes nothing.
    let mut authority = authority;
    let mut record = at(3_100);
    authority.record_close(&mut record, STEP, Closing::Cancelled);
    assert!(record.entries.is_empty() && record.effects.is_empty());
}

#[test]
fn a_failure_without_a_reason_gets_the_class_of_its_step() {
    let table = [
        ("Failed", Some("tool")),
        ("TimedOut", Some("timeout")),
        ("Uncertain", Some("uncertain")),
        ("Succeeded", None),
    ];
    for (outcome, class) in table {
        let mut authority = with_attempt(true);
        let (fact, _) = done(&mut authority, report(attempt_id(STEP, 1), &TOKEN, outcome, ""));
        let Input::AttemptOutcomeRecorded { outcome: found, .. } = fact else { panic!("an outcome") };
        assert_eq!(found.failure.as_ref().map(|f| f.class.as_str()), class, "{outcome}");
    }
    let mut authority = with_attempt(true);
    let own = Failure { class: "quota".into(), message: "no more today".into() };
    let what = Report { failure: Some(own.clone()), ..report(attempt_id(STEP, 1), &TOKEN, "Failed", "") };
    let (fact, _) = done(&mut authority, what);
    let Input::AttemptOutcomeRecorded { outcome, .. } = fact else { panic!("an outcome") };
    assert_eq!(outcome.failure, Some(own));
}

/// [C1] A step that was asked for is not asked for again, however often the engine says so.
#[test]
fn step_ready_is_deduplicated() {
    let mut authority = with_attempt(true);
    let before = shape(&authority);
    let mut record = at(3_000);
    authority.record_step_ready(&mut record, order(1), &mut OnePlace, b"");
    assert_eq!(shape(&authority), before);
    assert!(record.entries.is_empty() && record.effects.is_empty());
}

/// [FR-125] The run's input is not copied into every step that takes it, and every step gets it.
#[test]
fn the_runs_input_is_kept_once() {
    let mut authority = submitted();
    let input = br#"{"n":1}"#;
    let mut record = at(2_000);
    let whole = StepReadyOrder { input: input.to_vec(), ..order(1) };
    authority.record_step_ready(&mut record, whole, &mut NoOffers, input);
    let authority = reload(authority, record);
    assert!(authority.steps[&STEP].input.is_empty());
    let mut record = at(3_000);
    authority.offer_all(&mut record, input);
    let [grain_contract::Effect::Offer(item)] = &record.effects[..] else { panic!("one offer") };
    let assignment = <granary_proto::v1::Assignment as prost::Message>::decode(item.body.as_slice()).expect("decodes");
    assert_eq!(assignment.input, Some(Json::new(&input[..])));
    assert!(assignment.lease_token.is_empty(), "the dispatcher fills it in");
}
