//! A worker reports how an attempt ended. Once, idempotently: what was accepted is accepted again with the same content, and
//! only then. The lease token decides who may speak; where the attempt stands decides what can still be said.

use super::outcome::ToldBy;
use super::state::{Ask, Attempt, AttemptState};
use super::{AttemptEnd, Authority, Verdict, outcome_of, outcome_word};
use crate::engine::OutcomeKind;
use grain_contract::limits::{NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, TEXT_BYTES_MAX};
use grain_contract::{Code, Rejection};
use granary_proto::v1::{Failure, Report};
use serde::de::IgnoredAny;
use uuid::Uuid;

impl Authority {
    /// (C3) `report` has a worker's outcome of an attempt of this run.
    pub fn check_report(&self, report: Report) -> Result<Verdict<AttemptEnd>, Rejection> {
        let run = self.submitted()?;
        let id = Uuid::try_parse(&report.attempt_id).map_err(|_| {
            Rejection::new(Code::Invalid, "Expected a UUID, but found something else.").at("report.attemptId")
        })?;
        let outcome = outcome_of(&report.outcome).ok_or_else(|| {
            let message = format!(
                "Expected Succeeded, Failed, TimedOut, Cancelled or Uncertain, but found {:?}.",
                report.outcome.chars().take(64).collect::<String>()
            );
            Rejection::new(Code::Invalid, message).at("report.outcome")
        })?;
        let output = checked_output(report.output.map(|json| json.text).unwrap_or_default(), &report.outcome_hash)?;
        check_failure(report.failure.as_ref())?;
        let Some((step, number, Ask::Attempt(attempt))) = self.find(id) else {
            let message = format!("Expected an attempt of run {}, but {id} is none.", self.run_id);
            return Err(Rejection::new(Code::NotFound, message).at("report.attemptId"));
        };
        let hash = digest(outcome, &output, report.failure.as_ref());
        let worker = check_token(attempt, &report.lease_token)?;
        match attempt.state {
            AttemptState::Claimed => Ok(Verdict::New(AttemptEnd {
                step_run_id: step.step_run_id,
                number,
                id,
                outcome,
                output,
                failure: report.failure.or_else(|| default_failure(outcome, &step.kind)),
                told_by: ToldBy::Worker { name: worker, hash },
            })),
            // Without a lease there is no token that could have matched.
            AttemptState::Queued => Err(stale(id)),
            AttemptState::Ended(_) if attempt.outcome_hash == Some(hash) => Ok(Verdict::Repeated),
            AttemptState::Ended(ended) if attempt.outcome_hash.is_some() => {
                let message = format!(
                    "Expected the outcome {} that attempt {number} of step {} reported before, but found {} with other content.",
                    outcome_word(ended),
                    step.step_id,
                    outcome_word(outcome)
                );
                Err(Rejection::new(Code::Conflict, message).at("report.outcome"))
            }
            AttemptState::Ended(_) if run.state.is_terminal() => {
                let message = format!(
                    "Expected a run in progress, but {} is already terminal ({}).",
                    self.run_id,
                    run.state.as_str()
                );
                Err(Rejection::new(Code::WrongState, message).at("report.runId"))
            }
            AttemptState::Ended(ended) => {
                let message = format!(
                    "Expected an open attempt, but attempt {number} of step {} has already ended {}{}.",
                    step.step_id,
                    outcome_word(ended),
                    if step.number > number { ", and a newer one was made" } else { "" }
                );
                Err(Rejection::new(Code::WrongState, message).at("report.attemptId"))
            }
        }
    }
}

/// The token proves the lease; gives the worker's name. Equality, nothing else; a token is never printed.
pub(super) fn check_token(attempt: &Attempt, token: &[u8]) -> Result<String, Rejection> {
    match &attempt.lease {
        Some(lease) if lease.token.as_slice() == token => Ok(lease.worker.clone()),
        _ => Err(stale(attempt.id)),
    }
}

fn stale(attempt: Uuid) -> Rejection {
    let message = format!("Expected the lease token in force for attempt {attempt}, but found another.");
    Rejection::new(Code::StaleToken, message).at("report.leaseToken")
}

fn checked_output(output: Vec<u8>, stated_hash: &str) -> Result<Vec<u8>, Rejection> {
    if output.len() > PAYLOAD_BYTES_MAX {
        let message = format!("Expected at most {PAYLOAD_BYTES_MAX} bytes of output, but found {}.", output.len());
        return Err(Rejection::new(Code::TooLarge, message).at("report.output"));
    }
    if !output.is_empty()
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(&output)
    {
        let message = format!("Expected one JSON value, but found something else: {error}.");
        return Err(Rejection::new(Code::Invalid, message).at("report.output"));
    }
    if !stated_hash.is_empty() {
        let found = blake3::hash(&output).to_hex();
        if !stated_hash.eq_ignore_ascii_case(&found) {
            let message = format!("Expected the hash of the output, {found}, but another was stated.");
            return Err(Rejection::new(Code::Invalid, message).at("report.outcomeHash"));
        }
    }
    Ok(output)
}

fn check_failure(failure: Option<&Failure>) -> Result<(), Rejection> {
    let Some(failure) = failure else { return Ok(()) };
    let parts = [("class", failure.class.len(), NAME_BYTES_MAX), ("message", failure.message.len(), TEXT_BYTES_MAX)];
    for (part, found, most) in parts {
        if found > most {
            let message = format!("Expected at most {most} bytes, but found {found}.");
            return Err(Rejection::new(Code::TooLarge, message).at(format!("report.failure.{part}")));
        }
    }
    Ok(())
}

/// A failure without a reason gets its kind's class, so that every failed step names one.
fn default_failure(outcome: OutcomeKind, kind: &str) -> Option<Failure> {
    let class = match (outcome, kind) {
        (OutcomeKind::Succeeded, _) => return None,
        (OutcomeKind::TimedOut, _) => "timeout",
        (OutcomeKind::Cancelled, _) => "cancelled",
        (OutcomeKind::Uncertain, _) => "uncertain",
        (OutcomeKind::Failed, "Agent") => "agent",
        (OutcomeKind::Failed, _) => "tool",
    };
    Some(Failure { class: class.into(), message: "The worker gave no reason.".into() })
}

/// Digest of a report's content. Each part is preceded by its length, so that no two contents run together.
fn digest(outcome: OutcomeKind, output: &[u8], failure: Option<&Failure>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let (class, message) = failure.map_or(("", ""), |f| (f.class.as_str(), f.message.as_str()));
    for part in [outcome_word(outcome).as_bytes(), output, class.as_bytes(), message.as_bytes()] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}
