//! Decisions of humans.

use super::*;
use crate::engine::ids::approval_id;
use crate::engine::{Closing, Input};
use crate::kinds::methods::index::PENDING_APPROVALS;
use crate::run_control::RunState;
use grain_contract::{Code, IndexChange};
use granary_proto::v1::DecideApprovalRequest;

fn asked(ask: &str) -> Authority {
    let mut authority = submitted();
    let mut record = at(2_000);
    authority.record_step_ready(&mut record, human(1, ask), &mut NoOffers, b"");
    assert!(matches!(&record.index[..], [IndexChange::Put { index: PENDING_APPROVALS, .. }]));
    authority.settle();
    reload(authority, record)
}

fn decision(word: &str, version: u32) -> DecideApprovalRequest {
    DecideApprovalRequest {
        approval_id: approval_id(STEP, 1).to_string(),
        decision: word.into(),
        proposal_version: version,
        decided_by: "ann".into(),
        ..DecideApprovalRequest::default()
    }
}

fn decide(authority: &mut Authority, request: DecideApprovalRequest) -> (Input, Record) {
    let Ok(Verdict::New(made)) = authority.check_decide(request) else { panic!("a new decision") };
    let fact = authority.decide_fact(authority.next_sequence(), &made);
    let mut record = at(4_000);
    authority.record_decide(&mut record, made);
    authority.settle();
    (fact, record)
}

/// [R8] Decided once; the same again is the same answer, another one a conflict.
#[test]
fn a_decision_is_made_once() {
    let mut authority = asked("approval");
    assert_eq!(authority.run().expect("a run").state, RunState::WaitingForApproval);
    let put = authority.approvals("")[0].clone();
    assert_eq!(
        (put.state.as_str(), put.proposal_version, put.options.join(",")),
        ("pending", 1, "approve,reject".into())
    );
    let (fact, record) = decide(&mut authority, decision("approve", 1));
    let Input::ApprovalDecided { sequence: 2, decided } = fact else { panic!("a decision") };
    assert_eq!((decided.decision.as_str(), decided.proposal_version), ("approved", 1));
    assert_eq!(told(&record), ["4 ApprovalDecided fact 2"]);
    let [IndexChange::Delete { index: PENDING_APPROVALS, .. }] = &record.index[..] else {
        panic!("{:?}", record.index)
    };
    let authority = reload(authority, record);
    assert_eq!(authority.run().expect("a run").state, RunState::Running);
    assert_eq!(authority.check_decide(decision("approve", 1)), Ok(Verdict::Repeated));
    assert_eq!(authority.check_decide(decision("reject", 1)).expect_err("decided").code, Code::Conflict);
    assert_eq!(authority.approvals(""), Vec::<&granary_proto::v1::Approval>::new());
    assert_eq!(authority.approvals("approved")[0].decided_by, "ann");
}

#[test]
fn a_decision_that_does_not_fit_is_refused() {
    let answer = |text: &str| Some(Json::new(text));
    let unknown = DecideApprovalRequest { approval_id: Uuid::from_u128(9).to_string(), ..decision("approve", 1) };
    let malformed = DecideApprovalRequest { approval_id: "no".into(), ..decision("approve", 1) };
    let bad_answer = DecideApprovalRequest { answer: answer("{"), ..decision("answer", 1) };
    let long = DecideApprovalRequest { comment: "x".repeat(16 * 1024 + 1), ..decision("approve", 1) };
    let table = [
        ("approval", long, Code::TooLarge, "comment"),
        ("approval", decision("approve", 2), Code::WrongState, "proposalVersion"),
        ("approval", decision("approve", 0), Code::Invalid, "proposalVersion"),
        ("approval", decision("maybe", 1), Code::Invalid, "decision"),
        ("approval", decision("retry", 1), Code::Invalid, "decision"),
        ("escalation", decision("approve", 1), Code::Invalid, "decision"),
        ("input", decision("answer", 1), Code::Invalid, "answer"),
        ("input", bad_answer, Code::Invalid, "answer"),
        ("approval", unknown, Code::NotFound, "approvalId"),
        ("approval", malformed, Code::Invalid, "approvalId"),
    ];
    for (ask, request, code, field) in table {
        let authority = asked(ask);
        let before = shape(&authority);
        let rejection = authority.check_decide(request.clone()).expect_err("a refusal");
        assert_eq!((rejection.code, rejection.field.as_str()), (code, field), "{ask} {request:?}");
        assert_eq!(shape(&authority), before);
    }
}

#[test]
fn every_word_has_its_state() {
    let table = [
        ("approval", "approve", "approved"),
        ("approval", "reject", "rejected"),
        ("input", "answer", "answered"),
        ("input", "reject", "rejected"),
        ("escalation", "retry", "retry"),
        ("escalation", "skip", "skip"),
        ("escalation", "fail", "fail"),
    ];
    for (ask, word, state) in table {
        let mut authority = asked(ask);
        let request = DecideApprovalRequest { answer: Some(Json::new("1")), ..decision(word, 1) };
        let (fact, _) = decide(&mut authority, request);
        let Input::ApprovalDecided { decided, .. } = fact else { panic!("a decision") };
        assert_eq!(decided.decision, state);
    }
}

/// A step asked again is another version: who decides on the old one is told so.
#[test]
fn a_decision_on_an_older_proposal_is_refused() {
    let mut authority = asked("approval");
    let mut record = at(3_000);
    authority.record_close(&mut record, STEP, Closing::TimedOut);
    assert!(matches!(&record.index[..], [IndexChange::Delete { index: PENDING_APPROVALS, .. }]));
    authority.record_step_ready(&mut record, human(2, "escalation"), &mut NoOffers, b"");
    assert_eq!(told(&record), ["4 ApprovalWithdrawn", "5 ApprovalRequested"]);
    let authority = reload(authority, record);
    let withdrawn = authority.check_decide(decision("approve", 1)).expect_err("withdrawn");
    assert_eq!(withdrawn.code, Code::WrongState);
    assert_eq!(authority.approvals("")[0].proposal_version, 2);
    assert_eq!(authority.approvals("withdrawn").len(), 1);
    assert_eq!(authority.approvals("all").len(), 2);
}
