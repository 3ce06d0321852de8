//! The authority as rows, and back. Only what changed is written.

use super::state::{Approval, Ask, Attempt, AttemptState, Child, RunState, Step, Submitted};
use super::{Authority, Counters, Record, outcome_of, outcome_word};
use crate::kinds::methods::run::table::{AUTHORITY, AUTHORITY_STEPS, JOURNAL};
use grain_contract::{Corrupt, Lease, Row, RowKey, Table, Timestamp};
use granary_proto::storage::{
    ApprovalRow, AttemptRow, AuthorityRow, AuthorityStepRow, ChildRow, JournalRow, RunCountersRow,
};
use granary_proto::v1::Failure;
use prost::Message;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Keys in the authority's table.
pub const RUN_KEY: &[u8] = b"run";
pub const COUNTERS_KEY: &[u8] = b"n";
const FORMAT: u32 = 1;

impl Authority {
    /// Reads the authority's rows; others are passed over.
    pub fn load(tenant: &str, run_id: Uuid, rows: &[Row]) -> Result<Self, Corrupt> {
        let mut authority = Self::new(tenant, run_id);
        for row in rows {
            if row.key.table == AUTHORITY && row.key.key == RUN_KEY {
                let read: AuthorityRow = decode(row)?;
                if read.tombstone {
                    authority.tombstone = Some(read.cancel_reason);
                } else {
                    authority.run = Some(run_of(read)?);
                }
            } else if row.key.table == AUTHORITY && row.key.key == COUNTERS_KEY {
                authority.counters = counters_of(decode(row)?);
            } else if row.key.table == AUTHORITY_STEPS {
                authority.take_step(&row.key.key, decode(row)?)?;
            }
        }
        authority.count_open();
        // A run of before the index said so counts as "nobody knows" there, until it has work again.
        authority.told_work = authority.run.is_none() || authority.open_attempts > 0;
        Ok(authority)
    }

    fn take_step(&mut self, key: &[u8], row: AuthorityStepRow) -> Result<(), Corrupt> {
        let step_run = Uuid::from_slice(key.get(..16).unwrap_or_default()).map_err(|_| corrupt("a step's key"))?;
        let ask = ask_of(&row)?;
        self.asked.insert(ask.id(), (step_run, row.number));
        if key.len() > 16 {
            // Rows come in key order: the newest ask is before its history.
            let step = self.steps.get_mut(&step_run).ok_or_else(|| corrupt("an earlier ask without its step"))?;
            step.earlier.insert(row.number, ask);
            return Ok(());
        }
        let step = Step {
            step_run_id: step_run,
            step_id: row.step_id,
            kind: row.kind,
            action_class: row.action_class,
            queue: row.queue,
            name: row.name,
            input: row.input,
            run_input: row.run_input,
            timeout_ms: row.timeout_ms,
            idempotency_key: row.idempotency_key,
            number: row.number,
            ask,
            earlier: BTreeMap::new(),
        };
        self.steps.insert(step_run, step);
        Ok(())
    }

    fn count_open(&mut self) {
        for (id, step) in &self.steps {
            if step.ask.is_open() {
                self.open.insert(*id);
            }
            self.pending_approvals += usize::from(step.ask.is_pending_approval());
            self.open_attempts += usize::from(step.ask.is_open_attempt());
        }
    }

    /// Rows that changed since the last call, and the journal row of the turn's entries.
    pub fn take_changes(&mut self, record: &mut Record) -> Vec<Row> {
        let changed = std::mem::take(&mut self.changed);
        let mut puts = Vec::with_capacity(changed.steps.len() + 3);
        if changed.run {
            puts.push(row(AUTHORITY, RUN_KEY, &self.run_row()));
        }
        if changed.counters {
            puts.push(row(AUTHORITY, COUNTERS_KEY, &counters_row(self.counters)));
        }
        for step_run in &changed.steps {
            if let Some(step) = self.steps.get(step_run) {
                puts.push(row(AUTHORITY_STEPS, step_run.as_bytes(), &step_row(step)));
            }
        }
        for (step_run, number) in &changed.earlier {
            if let Some(ask) = self.steps.get(step_run).and_then(|step| step.earlier.get(number)) {
                let key = [step_run.as_bytes(), &number.to_be_bytes()[..]].concat();
                puts.push(row(AUTHORITY_STEPS, &key, &ask_row(ask, *number)));
            }
        }
        if let Some(first) = record.entries.first().map(|entry| entry.number) {
            let entries = JournalRow { entries: std::mem::take(&mut record.entries) };
            puts.push(row(JOURNAL, &first.to_be_bytes(), &entries));
        }
        puts
    }

    fn run_row(&self) -> AuthorityRow {
        let Some(run) = &self.run else {
            return AuthorityRow {
                format: FORMAT,
                tombstone: true,
                cancel_reason: self.tombstone.clone().unwrap_or_default(),
                ..AuthorityRow::default()
            };
        };
        AuthorityRow {
            format: FORMAT,
            client_key: run.client_key.clone(),
            submit_hash: run.hash.to_vec(),
            state: run.state.as_str().into(),
            submitted_by: run.by.clone(),
            cancel_reason: run.cancel_reason.clone(),
            definition_id: run.definition_id.clone(),
            definition_version: run.definition_version.clone(),
            project_id: run.project_id.clone(),
            accepted_ms: run.accepted.0,
            ended_ms: run.ended.map_or(0, |at| at.0),
            definition_release_id: run.release_id.clone(),
            parent_run_id: text(run.parent_run_id),
            parent_step_run_id: text(run.parent_step_run_id),
            depth: run.depth,
            refusal: run.refusal.as_ref().map(Message::encode_to_vec).unwrap_or_default(),
            ..AuthorityRow::default()
        }
    }
}

/// A stored run; also for lists, which read the row without the grain.
pub(crate) fn run_of(row: AuthorityRow) -> Result<Submitted, Corrupt> {
    if row.format > FORMAT {
        return Err(Corrupt { what: format!("a run of format {}, known is {FORMAT}", row.format) });
    }
    let refusal = (!row.refusal.is_empty()).then(|| Failure::decode(row.refusal.as_slice())).transpose();
    Ok(Submitted {
        state: RunState::parse(&row.state).ok_or_else(|| corrupt("a run's state"))?,
        client_key: row.client_key,
        hash: digest(&row.submit_hash)?,
        by: row.submitted_by,
        definition_id: row.definition_id,
        definition_version: row.definition_version,
        release_id: row.definition_release_id,
        project_id: row.project_id,
        parent_run_id: id(&row.parent_run_id)?,
        parent_step_run_id: id(&row.parent_step_run_id)?,
        depth: row.depth,
        accepted: Timestamp(row.accepted_ms),
        ended: time(row.ended_ms),
        cancel_reason: row.cancel_reason,
        refusal: refusal.map_err(|_| corrupt("a refusal"))?,
    })
}

pub(crate) fn counters_of(row: RunCountersRow) -> Counters {
    Counters {
        next_sequence: row.next_sequence.max(1),
        next_journal: row.next_journal.max(1),
        wake: time(row.wake_ms),
        stuck: time(row.stuck_ms),
    }
}

pub(crate) fn counters_row(counters: Counters) -> RunCountersRow {
    RunCountersRow {
        next_sequence: counters.next_sequence,
        next_journal: counters.next_journal,
        wake_ms: counters.wake.map_or(0, |at| at.0),
        stuck_ms: counters.stuck.map_or(0, |at| at.0),
    }
}

fn step_row(step: &Step) -> AuthorityStepRow {
    AuthorityStepRow {
        step_id: step.step_id.clone(),
        kind: step.kind.clone(),
        action_class: step.action_class.clone(),
        queue: step.queue.clone(),
        name: step.name.clone(),
        input: step.input.clone(),
        run_input: step.run_input,
        timeout_ms: step.timeout_ms,
        idempotency_key: step.idempotency_key.clone(),
        ..ask_row(&step.ask, step.number)
    }
}

fn ask_row(ask: &Ask, number: u32) -> AuthorityStepRow {
    let mut row = AuthorityStepRow { number, ..AuthorityStepRow::default() };
    match ask {
        Ask::Attempt(attempt) => row.attempt = Some(attempt_row(attempt, number)),
        Ask::Approval(approval) => {
            row.approval = Some(ApprovalRow {
                approval: Some(approval.view.clone()),
                decision_hash: approval.decision_hash.map(|h| h.to_vec()).unwrap_or_default(),
            });
        }
        Ask::Child(child) => {
            row.child = Some(ChildRow { child_run_id: child.run_id.to_string(), state: child.state.clone() });
        }
    }
    row
}

fn attempt_row(attempt: &Attempt, number: u32) -> AttemptRow {
    let state = match attempt.state {
        AttemptState::Queued => "Queued",
        AttemptState::Claimed => "Claimed",
        AttemptState::Ended(outcome) => outcome_word(outcome),
    };
    AttemptRow {
        attempt_id: attempt.id.to_string(),
        number,
        state: state.into(),
        worker: attempt.lease.as_ref().map(|lease| lease.worker.clone()).unwrap_or_default(),
        token: attempt.lease.as_ref().map(|lease| lease.token.to_vec()).unwrap_or_default(),
        outcome_hash: attempt.outcome_hash.map(|h| h.to_vec()).unwrap_or_default(),
        created_ms: attempt.created.0,
        ended_ms: attempt.ended.map_or(0, |at| at.0),
    }
}

fn ask_of(row: &AuthorityStepRow) -> Result<Ask, Corrupt> {
    if let Some(read) = &row.attempt {
        return Ok(Ask::Attempt(attempt_of(read)?));
    }
    if let Some(read) = &row.child {
        let run_id = id(&read.child_run_id)?.ok_or_else(|| corrupt("a child's run id"))?;
        return Ok(Ask::Child(Child { run_id, state: read.state.clone() }));
    }
    let read = row.approval.as_ref().ok_or_else(|| corrupt("a step that asks for nothing"))?;
    let view = read.approval.clone().ok_or_else(|| corrupt("an approval without content"))?;
    let approval_id = id(&view.approval_id)?.ok_or_else(|| corrupt("an approval's id"))?;
    let decision_hash = optional_digest(&read.decision_hash)?;
    Ok(Ask::Approval(Box::new(Approval { id: approval_id, view, decision_hash })))
}

fn attempt_of(row: &AttemptRow) -> Result<Attempt, Corrupt> {
    let state = match row.state.as_str() {
        "Queued" => AttemptState::Queued,
        "Claimed" => AttemptState::Claimed,
        word => AttemptState::Ended(outcome_of(word).ok_or_else(|| corrupt("an attempt's state"))?),
    };
    let lease = match <[u8; 16]>::try_from(row.token.as_slice()) {
        Ok(token) => Some(Lease { worker: row.worker.clone(), token }),
        Err(_) if row.token.is_empty() => None,
        Err(_) => return Err(corrupt("a lease token")),
    };
    Ok(Attempt {
        id: id(&row.attempt_id)?.ok_or_else(|| corrupt("an attempt's id"))?,
        state,
        created: Timestamp(row.created_ms),
        ended: time(row.ended_ms),
        lease,
        outcome_hash: optional_digest(&row.outcome_hash)?,
    })
}

fn row(table: Table, key: &[u8], message: &impl Message) -> Row {
    Row { key: RowKey { table, key: key.to_vec() }, value: message.encode_to_vec() }
}

fn decode<M: Message + Default>(row: &Row) -> Result<M, Corrupt> {
    M::decode(row.value.as_slice()).map_err(|e| Corrupt { what: format!("a row of table {}: {e}", row.key.table.0) })
}

fn corrupt(what: &str) -> Corrupt {
    Corrupt { what: format!("{what} cannot be read") }
}

fn text(id: Option<Uuid>) -> String {
    id.map_or_else(String::new, |id| id.to_string())
}

fn id(text: &str) -> Result<Option<Uuid>, Corrupt> {
    if text.is_empty() {
        return Ok(None);
    }
    Uuid::try_parse(text).map(Some).map_err(|_| corrupt("an id"))
}

fn time(ms: i64) -> Option<Timestamp> {
    (ms != 0).then_some(Timestamp(ms))
}

fn digest(bytes: &[u8]) -> Result<[u8; 32], Corrupt> {
    bytes.try_into().map_err(|_| corrupt("a digest"))
}

fn optional_digest(bytes: &[u8]) -> Result<Option<[u8; 32]>, Corrupt> {
    if bytes.is_empty() { Ok(None) } else { digest(bytes).map(Some) }
}
