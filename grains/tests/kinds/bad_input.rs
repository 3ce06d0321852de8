//! Every refusal names what was wanted and what was found, and changes nothing.

use crate::plans::{flow, human, line, tool};
use crate::world::{World, run_id, submit};
use grain_contract::{Code, GrainId, Method, Rejection};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use uuid::Uuid;

fn reported(world: &mut World, run: &GrainId, report: v1::Report) -> Result<v1::ReportResult, Rejection> {
    world.call(run, run::REPORT, &calls::ReportCall { report: Some(report) })
}

fn report_of(world: &World, attempt: Uuid, outcome: &str, output: &str) -> v1::Report {
    let work = &world.work[&attempt];
    v1::Report {
        attempt_id: attempt.to_string(),
        run_id: work.assignment.run_id.clone(),
        lease_token: work.lease.as_ref().map(|l| l.token.to_vec()).unwrap_or_default(),
        outcome: outcome.into(),
        output: Some(Json::new(output)),
        ..Default::default()
    }
}

fn started() -> (World, GrainId, Uuid) {
    let mut world = World::new(RunMode::Bundled).knows(line("line", &["a", "b"]));
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    let attempt = world.attempt_of("a");
    (world, run, attempt)
}

/// [C3] [FR-003] Outcome for an unknown step, with a stale token, twice, with other content, of a finished step, of a finished run.
#[test]
fn an_outcome_that_does_not_fit_changes_nothing() {
    let (mut world, run, a) = started();
    let good = report_of(&world, a, "Succeeded", "1");
    let table = [
        ("unknown attempt", v1::Report { attempt_id: Uuid::nil().to_string(), ..good.clone() }, Code::NotFound),
        ("malformed id", v1::Report { attempt_id: "a".into(), ..good.clone() }, Code::Invalid),
        ("stale token", v1::Report { lease_token: vec![0; 16], ..good.clone() }, Code::StaleToken),
        ("no token", v1::Report { lease_token: Vec::new(), ..good.clone() }, Code::StaleToken),
        ("unknown outcome", v1::Report { outcome: "Perhaps".into(), ..good.clone() }, Code::Invalid),
        ("output that is no JSON", v1::Report { output: Some(Json::new("{")), ..good.clone() }, Code::Invalid),
        ("deep output", v1::Report { output: Some(Json::new("[".repeat(10_000))), ..good.clone() }, Code::Invalid),
    ];
    let before = world.stored.clone();
    for (name, report, code) in table {
        let rejection = reported(&mut world, &run, report).expect_err(name);
        assert_eq!(rejection.code, code, "{name}: {rejection}");
        assert_eq!(world.stored, before, "{name} changed something");
    }
    assert!(reported(&mut world, &run, good.clone()).expect("the first").accepted);
    let before = world.stored.clone();
    assert!(reported(&mut world, &run, good.clone()).expect("the same again").accepted, "twice");
    let other = v1::Report { output: Some(Json::new("2")), ..good.clone() };
    assert_eq!(reported(&mut world, &run, other).expect_err("other content").code, Code::Conflict);
    assert_eq!(world.stored, before);
    let b = world.attempt_of("b");
    world.report(b, "Failed", "").expect("taken");
    assert_eq!(world.get(&run).expect("the run").state, "Failed");
    let before = world.stored.clone();
    assert!(reported(&mut world, &run, good).expect("still the same answer").accepted);
    assert_eq!(world.stored, before);
}

/// [C2] A decision on an old version, for a decided approval, for an unknown one.
#[test]
fn a_decision_that_does_not_fit_changes_nothing() {
    let plan = flow("ask").step("h", human()).step("a", tool("a")).edge("h", "a").plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("ask@1", "1")).expect("accepted");
    assert_eq!(world.get(&run).expect("the run").state, "WaitingForApproval");
    let list: v1::ListApprovalsResponse =
        world.call(&run, run::APPROVALS, &v1::ListApprovalsRequest::default()).expect("a list");
    let pending = list.approvals[0].clone();
    let good = v1::DecideApprovalRequest {
        approval_id: pending.approval_id.clone(),
        decision: "approve".into(),
        proposal_version: pending.proposal_version,
        decided_by: "ann".into(),
        ..Default::default()
    };
    let table = [
        ("old version", v1::DecideApprovalRequest { proposal_version: 9, ..good.clone() }, Code::WrongState),
        ("no version", v1::DecideApprovalRequest { proposal_version: 0, ..good.clone() }, Code::Invalid),
        ("another word", v1::DecideApprovalRequest { decision: "ok".into(), ..good.clone() }, Code::Invalid),
        ("unknown", v1::DecideApprovalRequest { approval_id: Uuid::nil().to_string(), ..good.clone() }, Code::NotFound),
        ("malformed", v1::DecideApprovalRequest { approval_id: "1".into(), ..good.clone() }, Code::Invalid),
    ];
    let before = world.stored.clone();
    for (name, request, code) in table {
        let rejection = world.call::<v1::Approval>(&run, run::DECIDE, &request).expect_err(name);
        assert_eq!(rejection.code, code, "{name}: {rejection}");
        assert_eq!(world.stored, before, "{name} changed something");
    }
    let decided: v1::Approval = world.call(&run, run::DECIDE, &good).expect("decided");
    assert_eq!(decided.state, "approved");
    let before = world.stored.clone();
    let again: v1::Approval = world.call(&run, run::DECIDE, &good).expect("the same again");
    assert_eq!(again, decided);
    let other = v1::DecideApprovalRequest { decision: "reject".into(), ..good };
    assert_eq!(world.call::<v1::Approval>(&run, run::DECIDE, &other).expect_err("decided").code, Code::Conflict);
    assert_eq!(world.stored, before);
    assert_eq!(world.open_steps(), ["a"]);
}

/// Every call of a run that does not exist, and every call with a body that does not decode.
#[test]
fn calls_on_nothing_and_garbage_are_refused() {
    let unknown = run_id(9);
    for mode in [RunMode::Bundled, RunMode::External] {
        let mut world = World::new(mode).knows(line("line", &["a"]));
        for number in 0..40 {
            for body in [&b""[..], &[0xff; 12][..]] {
                let message = grain_contract::Message::Call { method: Method(number), body };
                // Whatever it answers, it neither panics nor stores anything.
                let _ = world.send(&unknown, &message);
            }
        }
        assert!(world.stored.values().all(|s| s.rows.is_empty()), "{mode:?} stored something");
    }
    let mut world = World::new(RunMode::Bundled);
    let table: [(Method, Code); 9] = [
        (run::CANCEL, Code::NotFound),
        (run::GET, Code::NotFound),
        (run::GRAPH, Code::NotFound),
        (run::PLAN_NEXT, Code::NotFound),
        (run::APPROVALS, Code::NotFound),
        (run::DECIDE, Code::NotFound),
        (run::REPROJECT, Code::NotFound),
        (run::FACTS, Code::WrongState),
        (Method(99), Code::Invalid),
    ];
    for (method, code) in table {
        let rejection = world.call::<()>(&unknown, method, &()).expect_err("no such run");
        assert_eq!(rejection.code, code, "{method:?}");
    }
}

/// A worker's observation is recorded if it holds the attempt.
#[test]
fn an_observation_needs_the_attempt() {
    let (mut world, run, a) = started();
    let token = world.work[&a].lease.as_ref().expect("a lease").token.to_vec();
    let good = v1::Observe {
        run_id: run.key.to_string(),
        attempt_id: a.to_string(),
        lease_token: token,
        kind: "world".into(),
        value: Some(Json::new(r#"{"door":"open"}"#)),
        by: String::new(),
    };
    let table = [
        (v1::Observe { kind: "mood".into(), ..good.clone() }, Code::Invalid),
        (v1::Observe { value: Some(Json::new("{")), ..good.clone() }, Code::Invalid),
        (v1::Observe { lease_token: vec![0; 16], ..good.clone() }, Code::StaleToken),
        (v1::Observe { attempt_id: Uuid::nil().to_string(), ..good.clone() }, Code::NotFound),
    ];
    for (observe, code) in table {
        assert_eq!(world.call::<()>(&run, run::OBSERVE, &observe).expect_err("refused").code, code);
    }
    let _: () = world.call(&run, run::OBSERVE, &good).expect("observed");
    let last = world.journal(&run).pop().expect("an entry");
    assert_eq!((last.r#type.as_str(), last.text.as_str(), last.sequence), ("Observed", "world", 2));
    world.report(a, "Succeeded", "1").expect("taken");
    assert_eq!(world.call::<()>(&run, run::OBSERVE, &good).expect_err("over").code, Code::WrongState);
}

/// [FR-125] An input or variables that are too large, too deep or no JSON are refused before anything is stored.
#[test]
fn a_submission_with_bad_values_changes_nothing() {
    let large = format!("\"{}\"", "x".repeat(grain_contract::limits::PAYLOAD_BYTES_MAX - 1));
    let deep = "[".repeat(10_000);
    for (text, code) in [("{", Code::Invalid), ("1 2", Code::Invalid), (&deep, Code::Invalid), (&large, Code::TooLarge)]
    {
        for field in ["input", "variables"] {
            let mut world = World::new(RunMode::Bundled).knows(line("line", &["a"]));
            let mut request = submit("line@1", "1");
            let inner = request.request.as_mut().expect("a request");
            let value = Some(Json::new(text));
            if field == "input" {
                inner.input = value
            } else {
                inner.variables = value
            };
            let refused = world.call::<v1::SubmitRunResponse>(&run_id(1), run::SUBMIT, &request).expect_err(field);
            assert_eq!((refused.code, refused.field.as_str()), (code, field));
            assert!(world.stored.is_empty());
        }
    }
}
