//! State to rows: only what changed since the last call.
//!
//! The header is two rows, since it is written every turn: what is fixed at acceptance (the input may be a megabyte), and what
//! moves. A step run's row is keyed by its number, so rows come back in the order of creation.

use super::state::{Projection, RunIx, Source, StepRun, Timer};
use crate::definition::StepIx;
use crate::kinds::methods::run::table;
use grain_contract::{Row, RowKey, Table};
use granary_proto::storage::{
    CompensationRow, FactRow, ObservedFrom, RunHeaderRow, RunObservedRow, StepRunRow, TimerRow,
};
use prost::Message;
use serde_json::value::RawValue;

pub(super) const FORMAT: u32 = 1;
pub(super) const START_KEY: &[u8] = b"s";
pub(super) const HEADER_KEY: &[u8] = b"h";
const OBSERVED_KEY: &[u8] = b"o";

/// Rows to write and to delete: only what changed since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub puts: Vec<Row>,
    pub deletes: Vec<RowKey>,
}

impl Projection {
    pub fn take_changes(&mut self) -> Changes {
        let mut puts = Vec::new();
        self.spent.bytes = 0;
        if std::mem::take(&mut self.start_changed) {
            puts.push(row(table::HEADER, START_KEY, &self.start_row()));
        }
        if std::mem::take(&mut self.header_changed) {
            puts.push(row(table::HEADER, HEADER_KEY, &self.header_row()));
        }
        if std::mem::take(&mut self.observed_changed) {
            puts.push(row(table::OBSERVED, OBSERVED_KEY, &self.observed_row()));
        }
        for ix in std::mem::take(&mut self.changed_runs) {
            self.runs[ix.0 as usize].changed = false;
            puts.push(row(table::STEP_RUNS, &ix.0.to_be_bytes(), &self.step_run_row(self.run(ix))));
        }
        for at in 0..self.entries.len() {
            if std::mem::take(&mut self.entries[at].changed) {
                puts.push(row(table::COMPENSATION, &(at as u32).to_be_bytes(), &self.compensation_row(at)));
            }
        }
        for sequence in std::mem::take(&mut self.changed_facts) {
            let hash = self.facts.get(&sequence).cloned().unwrap_or_default();
            puts.push(row(table::FACTS, &sequence.to_be_bytes(), &FactRow { sequence, hash }));
        }
        // A projection only adds: its rows go as a whole, when the run's retention ends.
        Changes { puts, deletes: Vec::new() }
    }

    /// Keys of all rows that the run has: what goes when another projection takes its place.
    pub fn row_keys(&self) -> Vec<RowKey> {
        if self.last_outcome_sequence() == 0 {
            return Vec::new();
        }
        let key = |table, key: &[u8]| RowKey { table, key: key.to_vec() };
        let mut keys = vec![key(table::HEADER, START_KEY), key(table::HEADER, HEADER_KEY)];
        if self.observed.bytes() > 0 {
            keys.push(key(table::OBSERVED, OBSERVED_KEY));
        }
        keys.extend((0..self.runs.len() as u32).map(|at| key(table::STEP_RUNS, &at.to_be_bytes())));
        keys.extend((0..self.entries.len() as u32).map(|at| key(table::COMPENSATION, &at.to_be_bytes())));
        keys.extend(self.facts.keys().map(|sequence| key(table::FACTS, &sequence.to_be_bytes())));
        keys
    }

    fn start_row(&self) -> RunHeaderRow {
        let h = &self.header;
        RunHeaderRow {
            format: FORMAT,
            project_id: h.project_id.clone(),
            definition_release_id: h.release_id.clone(),
            graph_hash: h.graph_hash.clone(),
            input: h.input.clone(),
            variables: h.variables.clone(),
            accepted_ms: h.accepted_ms,
            deadline_ms: h.deadline_ms,
            parent_run_id: text(h.parent_run_id),
            parent_step_run_id: text(h.parent_step_run_id),
            depth: h.depth,
            ..Default::default()
        }
    }

    fn header_row(&self) -> RunHeaderRow {
        let h = &self.header;
        RunHeaderRow {
            format: FORMAT,
            state: self.state.as_str().to_owned(),
            last_outcome_sequence: h.last_sequence,
            version: h.version,
            ended_ms: h.ended_ms,
            output: h.output.clone(),
            failure: h.failure.clone(),
            failed_step_id: h.failed_step_id.clone(),
            compensated: h.compensated,
            follow_up: h.follow_up.clone(),
            event_sequence: h.events,
            completion_counter: h.completions,
            open_step_runs: h.open_step_runs,
            last_fact_hash: h.last_digest.clone(),
            deadline_fired: h.deadline_fired,
            ..Default::default()
        }
    }

    fn observed_row(&self) -> RunObservedRow {
        let o = &self.observed;
        RunObservedRow {
            format: FORMAT,
            scene: o.scene.clone(),
            scene_from: Some(source_row(&o.scene_from)),
            world: o.world.clone(),
            world_from: Some(source_row(&o.world_from)),
        }
    }

    fn step_run_row(&self, run: &StepRun) -> StepRunRow {
        StepRunRow {
            step_run_id: run.id.to_string(),
            step: run.step.0,
            iteration: run.iteration,
            branch: self.frame(run.frame).owner.map(|(_, branch)| branch).into_iter().collect(),
            state: run.state.as_str().to_owned(),
            attempt: run.attempt,
            approval_id: text(run.approval_id),
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
            output: run.output.clone(),
            output_ref: run.output_ref.clone(),
            failure: run.failure.clone(),
            completed_as: run.completed_as,
            attempt_ids: run.attempt_ids.iter().map(ToString::to_string).collect(),
            edges: run.edges.clone(),
            ready_ms: run.ready_ms,
            timers: run.timers.iter().map(timer_row).collect(),
            child_run_id: String::new(),
            skipped_by: run.skipped_by.iter().map(|step: &StepIx| step.0.to_string()).collect(),
            branches: run.fan.as_ref().map_or(0, |fan| fan.branches + 1),
            items: run.fan.as_ref().map_or_else(Vec::new, |fan| list_text(&fan.items)),
            asked: run.asked.as_str().to_owned(),
            last_ready_sequence: run.asked_again,
            late: run.late,
            input: run.input.clone().unwrap_or_default(),
            scope: self.frame(run.frame).owner.map_or(0, |(owner, _)| owner.0 + 1),
            loops: run.loops.to_vec(),
            routed: run.routed,
        }
    }

    fn compensation_row(&self, at: usize) -> CompensationRow {
        let entry = &self.entries[at];
        CompensationRow {
            entry_id: entry.id.to_string(),
            for_step_run_id: self.run(entry.undoes).id.to_string(),
            compensation_step: entry.step.0,
            order: at as u32 + 1,
            state: entry.state.as_str().to_owned(),
            step_run_id: entry.run.map(|ix: RunIx| self.run(ix).id.to_string()).unwrap_or_default(),
        }
    }
}

fn row(table: Table, key: &[u8], message: &impl Message) -> Row {
    Row { key: RowKey { table, key: key.to_vec() }, value: message.encode_to_vec() }
}

fn source_row(source: &Source) -> ObservedFrom {
    ObservedFrom {
        at_ms: source.at_ms,
        step_run_id: text(source.step_run_id),
        attempt_id: text(source.attempt_id),
        by: source.by.clone(),
    }
}

fn timer_row(timer: &Timer) -> TimerRow {
    TimerRow {
        timer_id: timer.id.to_string(),
        purpose: timer.purpose.as_str().to_owned(),
        due_ms: timer.due_ms,
        fired: timer.fired,
        late_ms: timer.late_ms,
    }
}

fn text(id: Option<uuid::Uuid>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

/// JSON texts as one JSON list.
fn list_text(items: &[Box<[u8]>]) -> Vec<u8> {
    if items.is_empty() {
        return Vec::new();
    }
    let mut text = vec![b'['];
    for item in items {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.push(b']');
    text
}

/// Reads [`list_text`] back.
pub(super) fn list_items(text: &[u8]) -> Result<Vec<Box<[u8]>>, serde_json::Error> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let items: Vec<Box<RawValue>> = serde_json::from_slice(text)?;
    Ok(items.into_iter().map(|item| item.get().as_bytes().into()).collect())
}
