//! The authority alone, without an engine: what each trigger answers in each state of its target.

mod approvals;
mod children;
mod leases;
mod reports;
mod runs;

use super::{Authority, Pinned, Record, Verdict};
use crate::engine::StepReadyOrder;
use grain_contract::{Lease, NoOffers, Offers, QueueName, Timestamp};
use granary_proto::calls::Submit;
use granary_proto::v1::{Report, SubmitRunRequest};
use granary_proto::wire::Json;
use uuid::Uuid;

pub(super) const RUN: Uuid = Uuid::from_u128(0x11);
pub(super) const STEP: Uuid = Uuid::from_u128(0x22);
pub(super) const TOKEN: [u8; 16] = [7; 16];

/// One free place, always at the same worker.
pub(super) struct OnePlace;

impl Offers for OnePlace {
    fn take(&mut self, _: &QueueName) -> Option<Lease> {
        Some(lease("w1", TOKEN))
    }
}

pub(super) fn lease(worker: &str, token: [u8; 16]) -> Lease {
    Lease { worker: worker.into(), token }
}

pub(super) fn at(ms: i64) -> Record {
    Record::new(Timestamp(ms))
}

pub(super) fn submission() -> Submit {
    Submit {
        request: Some(SubmitRunRequest {
            client_key: "key".into(),
            definition_id: "line".into(),
            input: Some(Json::new(r#"{"n":1}"#)),
            ..SubmitRunRequest::default()
        }),
        by: "ann".into(),
        ..Submit::default()
    }
}

pub(super) fn pinned() -> Pinned {
    Pinned { definition_id: "line".into(), version: "1".into(), release_id: "line@1".into(), refusal: None }
}

/// A submitted run.
pub(super) fn submitted() -> Authority {
    let mut authority = Authority::new("acme", RUN);
    let mut record = at(1_000);
    let Ok(Verdict::New(checked)) = authority.check_submit(submission()) else { panic!("a new submission") };
    authority.record_submit(&mut record, checked, pinned());
    authority.settle();
    reload(authority, record)
}

pub(super) fn order(attempt: u32) -> StepReadyOrder {
    StepReadyOrder {
        step_run_id: STEP,
        step_id: "a".into(),
        step_name: "search".into(),
        kind: "Tool".into(),
        action_class: "read".into(),
        attempt,
        queue: "tool:search".into(),
        input: br#"{"q":2}"#.to_vec(),
        timeout_ms: 60_000,
        ask: String::new(),
        options: Vec::new(),
        reason: String::new(),
        idempotency_key: "k".into(),
    }
}

pub(super) fn human(attempt: u32, ask: &str) -> StepReadyOrder {
    let kind = "Human".to_owned();
    StepReadyOrder { kind, ask: ask.into(), queue: String::new(), step_id: "h".into(), ..order(attempt) }
}

/// A run with one attempt, claimed by w1 or queued.
pub(super) fn with_attempt(claimed: bool) -> Authority {
    let mut authority = submitted();
    let mut record = at(2_000);
    let offers: &mut dyn Offers = if claimed { &mut OnePlace } else { &mut NoOffers };
    authority.record_step_ready(&mut record, order(1), offers, b"");
    authority.settle();
    reload(authority, record)
}

/// Nothing but rows goes from one turn to the next: what a test sees is what a new owner would see.
pub(super) fn reload(mut authority: Authority, mut record: Record) -> Authority {
    let mut rows = rows_of(&authority);
    for row in authority.take_changes(&mut record) {
        rows.retain(|known| known.key != row.key);
        rows.push(row);
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    let loaded = Authority::load("acme", RUN, &rows).expect("rows that were just written");
    assert_eq!(shape(&loaded), shape(&authority));
    loaded
}

/// All rows of an authority, as if everything had changed.
fn rows_of(authority: &Authority) -> Vec<grain_contract::Row> {
    let mut whole = Authority::new("acme", RUN);
    whole.run.clone_from(&authority.run);
    whole.tombstone.clone_from(&authority.tombstone);
    whole.counters = authority.counters;
    whole.steps.clone_from(&authority.steps);
    whole.changed.run = authority.run.is_some() || authority.tombstone.is_some();
    whole.changed.counters = true;
    whole.changed.steps = authority.steps.keys().copied().collect();
    whole.changed.earlier =
        authority.steps.iter().flat_map(|(id, step)| step.earlier.keys().map(|number| (*id, *number))).collect();
    whole.take_changes(&mut at(0))
}

/// Everything but what is only for the next commit.
fn shape(authority: &Authority) -> String {
    let mut steps: Vec<_> = authority.steps.iter().collect();
    steps.sort_by_key(|(id, _)| **id);
    let mut asked: Vec<_> = authority.asked.iter().collect();
    asked.sort();
    format!(
        "{:?} {:?} {:?} {steps:?} {asked:?} {:?} {}",
        authority.run, authority.tombstone, authority.counters, authority.open, authority.pending_approvals
    )
}

pub(super) fn report(attempt: Uuid, token: &[u8], outcome: &str, output: &str) -> Report {
    Report {
        attempt_id: attempt.to_string(),
        run_id: RUN.to_string(),
        lease_token: token.to_vec(),
        outcome: outcome.into(),
        output: (!output.is_empty()).then(|| Json::new(output)),
        ..Report::default()
    }
}

/// Type of each journal entry, with its sequence where it is a fact.
pub(super) fn told(record: &Record) -> Vec<String> {
    let line = |e: &granary_proto::v1::JournalEntry| match e.sequence {
        0 => format!("{} {}", e.number, e.r#type),
        sequence => format!("{} {} fact {sequence}", e.number, e.r#type),
    };
    record.entries.iter().map(line).collect()
}
