//! Somebody cancels the run: a caller, or the parent.
//!
//! In one turn: the request is noted, the engine closes its projection, open attempts are withdrawn, the fact is recorded,
//! the run is over. So there is no time in which a half-cancelled run can meet a late outcome: what comes afterwards finds
//! a terminal run (FR-115).

use super::decide::check_text;
use super::{Authority, Record, RunState};
use crate::engine::Input;
use grain_contract::{Code, Rejection};
use granary_proto::v1::JournalEntry;

#[derive(Clone, Debug, PartialEq)]
pub struct Cancelling {
    pub reason: String,
    pub by: String,
}

/// What a cancel finds.
#[derive(Debug, PartialEq)]
pub enum Cancellable {
    Yes,
    /// Cancelled before: the same answer.
    Already,
    /// Never submitted.
    Unknown,
}

impl Authority {
    /// (R12) Refused if the run ended otherwise: of a completion and a cancel at the same time one wins, and the other is
    /// told so.
    pub fn check_cancel(&self, reason: &str) -> Result<Cancellable, Rejection> {
        check_text(reason, "reason")?;
        let Some(run) = &self.run else { return Ok(Cancellable::Unknown) };
        match run.state {
            RunState::Cancelled => Ok(Cancellable::Already),
            RunState::Completed | RunState::Failed => {
                let message = format!(
                    "Expected a run in progress, but {} is already terminal ({}).",
                    self.run_id,
                    run.state.as_str()
                );
                Err(Rejection::new(Code::WrongState, message).at("runId"))
            }
            _ => Ok(Cancellable::Yes),
        }
    }

    pub fn cancel_fact(&self, sequence: u64, cancelling: &Cancelling) -> Input {
        Input::RunCancelled { sequence, reason: cancelling.reason.clone() }
    }

    /// The fact itself is written into the journal when the run ends, behind what it closes; see `run_ended`.
    pub fn record_cancel(&mut self, record: &mut Record, cancelling: Cancelling) {
        self.take_sequence();
        if let Some(run) = &mut self.run {
            run.cancel_reason.clone_from(&cancelling.reason);
        }
        self.changed.run = true;
        self.enter(RunState::Cancelling);
        let entry = JournalEntry {
            r#type: "RunCancelRequested".into(),
            by: cancelling.by,
            text: cancelling.reason,
            ..JournalEntry::default()
        };
        self.journal(record, entry);
    }

    /// The parent cancels a child that was not submitted yet. True if that is news.
    pub fn remember_cancel(&mut self, reason: &str) -> bool {
        if self.tombstone.is_some() {
            return false;
        }
        self.tombstone = Some(reason.to_owned());
        self.changed.run = true;
        true
    }
}
