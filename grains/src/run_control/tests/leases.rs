//! Claims and expiries.

use super::*;
use crate::engine::ids::attempt_id;
use crate::engine::{Input, OutcomeKind};
use crate::run_control::Expiry;
use grain_contract::{Code, Effect};

/// [C3] Whoever comes first; the same worker with the same token again has the same answer.
#[test]
fn an_attempt_is_claimed_by_one_worker() {
    let mut authority = with_attempt(false);
    let id = attempt_id(STEP, 1);
    let mine = lease("w1", TOKEN);
    assert_eq!(authority.check_claim(id, &mine), Some(Verdict::New(())));
    let mut record = at(2_500);
    authority.record_claim(&mut record, id, mine.clone());
    assert_eq!(told(&record), ["4 AttemptClaimed"]);
    assert_eq!(record.entries[0].by, "w1");
    let authority = reload(authority, record);
    assert_eq!(authority.check_claim(id, &mine), Some(Verdict::Repeated));
    assert_eq!(authority.check_claim(id, &lease("w1", [8; 16])), None);
    assert_eq!(authority.check_claim(id, &lease("w2", TOKEN)), None);
    assert_eq!(authority.check_claim(Uuid::from_u128(9), &mine), None);
}

/// [C3] A lease taken with the step is one commit: the attempt is born claimed.
#[test]
fn a_free_place_makes_created_and_claimed_one_turn() {
    let mut authority = submitted();
    let mut record = at(2_000);
    authority.record_step_ready(&mut record, order(1), &mut OnePlace, b"");
    assert_eq!(told(&record), ["2 StepCreated", "3 AttemptCreated", "4 AttemptClaimed"]);
    let [Effect::Offer(item)] = &record.effects[..] else { panic!("one offer") };
    assert_eq!(item.lease, Some(lease("w1", TOKEN)));
}

/// [C3] An expired lease ends the attempt Uncertain; its old token proves nothing any more.
#[test]
fn an_expired_lease_is_an_uncertain_end() {
    let mut authority = with_attempt(true);
    let id = attempt_id(STEP, 1);
    let Expiry::Uncertain(end) = authority.check_lease_expired(id, "w1", false) else { panic!("uncertain") };
    let Input::AttemptOutcomeRecorded { outcome, .. } = end.fact(2) else { panic!("an outcome") };
    assert_eq!(outcome.kind, OutcomeKind::Uncertain);
    let mut record = at(50_000);
    authority.record_end(&mut record, end);
    assert!(matches!(&record.effects[..], [Effect::Withdraw { interrupt: true, .. }]));
    let authority = reload(authority, record);
    assert_eq!(authority.check_lease_expired(id, "w1", false), Expiry::Moot);
    let late = authority.check_report(report(id, &TOKEN, "Succeeded", "")).expect_err("too late");
    assert_eq!(late.code, Code::WrongState);
}

/// What the worker never got is offered again: the same attempt, another token; the old one is stale.
#[test]
fn an_attempt_that_never_started_is_offered_again() {
    struct Other;
    impl Offers for Other {
        fn take(&mut self, _: &QueueName) -> Option<Lease> {
            Some(lease("w2", [9; 16]))
        }
    }
    let mut authority = with_attempt(true);
    let id = attempt_id(STEP, 1);
    assert_eq!(authority.check_lease_expired(id, "w1", true), Expiry::NeverStarted);
    let mut record = at(2_100);
    authority.record_never_started(&mut record, id, &mut Other, b"");
    let [Effect::Offer(item)] = &record.effects[..] else { panic!("one offer") };
    assert_eq!((item.attempt, item.lease.clone()), (id, Some(lease("w2", [9; 16]))));
    let authority = reload(authority, record);
    let stale = authority.check_report(report(id, &TOKEN, "Succeeded", "")).expect_err("stale");
    assert_eq!(stale.code, Code::StaleToken);
    assert!(!stale.message.contains("7, 7"), "a token is never printed");
    assert!(authority.check_report(report(id, &[9; 16], "Succeeded", "")).is_ok());
    // The former holder's expiry must not take it from the present one.
    assert_eq!(authority.check_lease_expired(id, "w1", false), Expiry::Moot);
}

#[test]
fn a_moot_expiry_does_nothing() {
    let queued = with_attempt(false);
    assert_eq!(queued.check_lease_expired(attempt_id(STEP, 1), "w1", false), Expiry::Moot);
    assert_eq!(queued.check_lease_expired(Uuid::from_u128(9), "w1", true), Expiry::Moot);
}

/// After a takeover, and by the sweep, what waits is offered and what is claimed is expected.
#[test]
fn open_work_is_told_again_from_rows() {
    let mut authority = with_attempt(true);
    let mut record = at(2_100);
    let other = Uuid::from_u128(0x23);
    authority.record_step_ready(&mut record, StepReadyOrder { step_run_id: other, ..order(1) }, &mut NoOffers, b"");
    let authority = reload(authority, record);
    let mut record = at(9_000);
    authority.offer_all(&mut record, b"");
    let [Effect::Expect { attempt, lease: held, .. }, Effect::Offer(item)] = &record.effects[..] else {
        panic!("{:?}", record.effects)
    };
    assert_eq!((*attempt, held.clone()), (attempt_id(STEP, 1), lease("w1", TOKEN)));
    assert_eq!((item.attempt, item.lease.clone()), (attempt_id(other, 1), None));
}
