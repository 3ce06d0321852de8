//! The engine says that the run has ended. Last of all: whatever is still open is closed, and then nothing follows.

use super::{Authority, Record, RunState};
use crate::engine::{Closing, RunEnd};
use crate::kinds::methods::index::OPEN_RUNS;
use crate::run_control::submit::runs_sort;
use grain_contract::IndexChange;
use granary_proto::v1::JournalEntry;
use granary_proto::wire::Json;

impl Authority {
    pub fn record_run_ended(&mut self, record: &mut Record, end: RunEnd) {
        if self.run.is_none() || self.is_over() {
            return;
        }
        // The engine has closed its step runs already; this is for asks it may not know of. FR-188: nothing of an ended
        // run stays in any queue.
        for step_run in self.open_step_runs() {
            self.close_open_ask(record, step_run, Closing::Cancelled);
        }
        let (state, mut entry, output, failure) = match end {
            RunEnd::Completed { output } => (RunState::Completed, JournalEntry::default(), output, None),
            RunEnd::Failed { failed_step_id, failure, compensated, output } => {
                let text = if compensated { "compensated".into() } else { String::new() };
                let entry = JournalEntry { step_id: failed_step_id, text, ..JournalEntry::default() };
                (RunState::Failed, entry, output, Some(failure))
            }
            RunEnd::Cancelled { open_step_runs } => {
                let data = Some(Json::of(&serde_json::json!({ "openStepRuns": open_step_runs })));
                let text = self.run.as_ref().map_or_else(String::new, |run| run.cancel_reason.clone());
                // The fact's number was taken by the request just before.
                let sequence = self.counters.next_sequence - 1;
                let entry = JournalEntry { sequence, data, text, ..JournalEntry::default() };
                (RunState::Cancelled, entry, Vec::new(), None)
            }
        };
        entry.r#type = format!("Run{}", state.as_str());
        if state == RunState::Completed && !output.is_empty() {
            entry.data = Some(Json::new(output.clone()));
        }
        entry.failure.clone_from(&failure);
        if state != RunState::Cancelled
            && self.run.as_ref().is_some_and(|run| run.state == RunState::Accepted && run.refusal.is_none())
        {
            self.enter(RunState::Running);
        }
        self.enter(state);
        let now = record.now;
        if let Some(run) = &mut self.run {
            run.ended = Some(now);
            record.index.push(IndexChange::Delete { index: OPEN_RUNS, sort: runs_sort(run.accepted) });
        }
        self.journal(record, entry);
        self.tell_parent(record, state, output, failure);
    }
}
