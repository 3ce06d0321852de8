//! A worker tells what it saw in the world of the run. Recorded before anything may read it, and then a fact like
//! others: what waits for it is looked at in the same turn.

use super::report::check_token;
use super::state::{Ask, AttemptState};
use super::{Authority, Record};
use crate::engine::{Input, Observation, Seen};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use grain_contract::{Code, Rejection};
use granary_proto::v1::{JournalEntry, Observe};
use granary_proto::wire::Json;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::HashMap;
use uuid::Uuid;

/// What can be observed.
const KINDS: [(&str, Seen); 2] = [("scene", Seen::Scene), ("world", Seen::World)];

impl Authority {
    /// The worker must hold the attempt that it observes for; without an attempt it is somebody from outside, and the run must
    /// go on. Gives the journal entry to record.
    pub fn check_observe(&self, observe: Observe) -> Result<JournalEntry, Rejection> {
        let run = self.submitted()?;
        check_seen(&observe.kind, observe.value.as_ref())?;
        if observe.attempt_id.is_empty() {
            if run.state.is_terminal() {
                let message =
                    format!("Expected a run in progress, but {} is already {}.", self.run_id, run.state.as_str());
                return Err(Rejection::new(Code::WrongState, message).at("runId"));
            }
            let (by, text) = (observe.by, observe.kind);
            return Ok(JournalEntry { r#type: "Observed".into(), data: observe.value, by, text, ..Default::default() });
        }
        let id = Uuid::try_parse(&observe.attempt_id)
            .map_err(|_| Rejection::new(Code::Invalid, "Expected a UUID, but found something else.").at("attemptId"))?;
        let Some((step, number, Ask::Attempt(attempt))) = self.find(id) else {
            let message = format!("Expected an attempt of run {}, but {id} is none.", self.run_id);
            return Err(Rejection::new(Code::NotFound, message).at("attemptId"));
        };
        let by = check_token(attempt, &observe.lease_token)?;
        if attempt.state != AttemptState::Claimed {
            let message = format!("Expected an open attempt, but attempt {number} of step {} has ended.", step.step_id);
            return Err(Rejection::new(Code::WrongState, message).at("attemptId"));
        }
        Ok(JournalEntry {
            r#type: "Observed".into(),
            step_id: step.step_id.clone(),
            step_run_id: step.step_run_id.to_string(),
            attempt_id: id.to_string(),
            attempt: number,
            data: observe.value,
            by,
            text: observe.kind,
            ..JournalEntry::default()
        })
    }

    /// The fact that an observation is for the engine.
    pub fn observe_fact(&self, sequence: u64, entry: &JournalEntry) -> Option<Input> {
        observation_of(entry).map(|observation| Input::Observed { sequence, observation })
    }

    pub fn record_observe(&mut self, record: &mut Record, entry: JournalEntry) {
        let sequence = self.take_sequence();
        self.journal(record, JournalEntry { sequence, ..entry });
    }

    /// Entries that are not decided by the authority: observations, timers that the engine fired, stuck checks.
    pub fn record_note(&mut self, record: &mut Record, entry: JournalEntry) {
        self.journal(record, entry);
    }
}

/// What was seen, as the journal has it; `None` for another entry.
pub fn observation_of(entry: &JournalEntry) -> Option<Observation> {
    Some(Observation {
        seen: seen_of(&entry.text)?,
        value: entry.data.as_ref().map(|json| json.text.clone()).unwrap_or_default(),
        step_run_id: Uuid::try_parse(&entry.step_run_id).ok(),
        attempt_id: Uuid::try_parse(&entry.attempt_id).ok(),
        by: entry.by.clone(),
    })
}

fn seen_of(kind: &str) -> Option<Seen> {
    KINDS.iter().find(|(word, _)| *word == kind).map(|(_, seen)| *seen)
}

/// What can be observed: a kind that is known, and a value that fits it.
///
/// # Errors
/// Another kind, or a value that is not of it.
pub fn check_seen(kind: &str, value: Option<&Json>) -> Result<Seen, Rejection> {
    let Some(seen) = seen_of(kind) else {
        let found: String = kind.chars().take(64).collect();
        let message = format!("Expected {}, but found {found:?}.", KINDS.map(|(word, _)| word).join(" or "));
        return Err(Rejection::new(Code::Invalid, message).at("kind"));
    };
    let text = value.map(|json| json.text.as_slice()).unwrap_or_default();
    if text.len() > PAYLOAD_BYTES_MAX {
        let message = format!("Expected at most {PAYLOAD_BYTES_MAX} bytes, but found {}.", text.len());
        return Err(Rejection::new(Code::TooLarge, message).at("value"));
    }
    let (wanted, read) = match seen {
        Seen::World => {
            ("an object of variables", serde_json::from_slice::<HashMap<Cow<'_, str>, IgnoredAny>>(text).map(drop))
        }
        Seen::Scene => ("one JSON value", serde_json::from_slice::<IgnoredAny>(text).map(drop)),
    };
    read.map(|()| seen).map_err(|error| {
        let message = format!("Expected {wanted}, but found something else: {error}.");
        Rejection::new(Code::Invalid, message).at("value")
    })
}
