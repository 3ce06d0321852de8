//! A human decides: an approval, an input, an escalation.
//!
//! A decision is on one exact version of the proposal. Who has looked at an older one, or at none, is refused, and so is a
//! second decision, unless it is the same one again.

use super::state::{Ask, PENDING, WITHDRAWN};
use super::step_ready::approval_sort;
use super::{Authority, Record, Verdict};
use crate::engine::{Decided, Input};
use crate::kinds::methods::index::PENDING_APPROVALS;
use grain_contract::limits::{PAYLOAD_BYTES_MAX, TEXT_BYTES_MAX};
use grain_contract::{Code, IndexChange, Rejection, Timestamp};
use granary_proto::v1::{Approval, DecideApprovalRequest, JournalEntry};
use granary_proto::wire::{self, Json};
use serde::de::IgnoredAny;
use uuid::Uuid;

/// A checked decision.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionMade {
    step_run_id: Uuid,
    number: u32,
    approval_id: Uuid,
    /// approved, rejected, answered, retry, skip, fail
    state: &'static str,
    version: u32,
    answer: Vec<u8>,
    comment: String,
    by: String,
    hash: [u8; 32],
}

/// Which words answer which kind of question, and what the approval is then.
const WORDS: [(&str, &str, &str); 7] = [
    ("approval", "approve", "approved"),
    ("approval", "reject", "rejected"),
    ("input", "answer", "answered"),
    ("input", "reject", "rejected"),
    ("escalation", "retry", "retry"),
    ("escalation", "skip", "skip"),
    ("escalation", "fail", "fail"),
];

impl Authority {
    /// The approval with this id as it stands.
    pub fn approval(&self, id: &str) -> Result<&Approval, Rejection> {
        self.submitted()?;
        let parsed = Uuid::try_parse(id).map_err(|_| {
            Rejection::new(Code::Invalid, "Expected a UUID, but found something else.").at("approvalId")
        })?;
        match self.find(parsed) {
            Some((_, _, Ask::Approval(approval))) => Ok(&approval.view),
            _ => {
                let message = format!("Expected an approval of run {}, but {parsed} is none.", self.run_id);
                Err(Rejection::new(Code::NotFound, message).at("approvalId"))
            }
        }
    }

    /// (R8) An exact version, once.
    pub fn check_decide(&self, request: DecideApprovalRequest) -> Result<Verdict<DecisionMade>, Rejection> {
        let view = self.approval(&request.approval_id)?;
        let id = Uuid::try_parse(&view.approval_id).unwrap_or_default();
        let state = word_for(&view.kind, &request.decision)?;
        check_text(&request.comment, "comment")?;
        check_text(&request.decided_by, "decidedBy")?;
        let answer = checked_answer(request.answer.map(|json| json.text).unwrap_or_default(), state)?;
        let hash = digest(state, request.proposal_version, &answer, &request.comment, &request.decided_by);
        let Some((step, number, Ask::Approval(approval))) = self.find(id) else {
            return Err(Rejection::new(Code::NotFound, "Expected an approval, but found none.").at("approvalId"));
        };
        if request.proposal_version == 0 {
            let message = "Expected the version of the proposal that was looked at, but found 0 (none).";
            return Err(Rejection::new(Code::Invalid, message).at("proposalVersion"));
        }
        if request.proposal_version != view.proposal_version {
            let message = format!(
                "Expected a decision on proposal version {}, but it is on version {}.",
                view.proposal_version, request.proposal_version
            );
            return Err(Rejection::new(Code::WrongState, message).at("proposalVersion"));
        }
        match view.state.as_str() {
            PENDING => Ok(Verdict::New(DecisionMade {
                step_run_id: step.step_run_id,
                number,
                approval_id: id,
                state,
                version: request.proposal_version,
                answer,
                comment: request.comment,
                by: request.decided_by,
                hash,
            })),
            WITHDRAWN => {
                let message = format!("Expected a pending approval, but {id} was withdrawn.");
                Err(Rejection::new(Code::WrongState, message).at("approvalId"))
            }
            _ if approval.decision_hash == Some(hash) => Ok(Verdict::Repeated),
            decided => {
                let message =
                    format!("Expected the decision that was made before ({decided}), but found another ({state}).");
                Err(Rejection::new(Code::Conflict, message).at("decision"))
            }
        }
    }

    pub fn decide_fact(&self, sequence: u64, made: &DecisionMade) -> Input {
        Input::ApprovalDecided {
            sequence,
            decided: Decided {
                step_run_id: made.step_run_id,
                approval_id: Some(made.approval_id),
                decision: made.state.into(),
                proposal_version: made.version,
                answer: made.answer.clone(),
                comment: made.comment.clone(),
                decided_by: made.by.clone(),
            },
        }
    }

    pub fn record_decide(&mut self, record: &mut Record, made: DecisionMade) {
        let sequence = self.take_sequence();
        let now = record.now;
        let answer = (!made.answer.is_empty()).then(|| Json::new(made.answer));
        let entry = JournalEntry {
            r#type: "ApprovalDecided".into(),
            sequence,
            step_id: self.step_id(made.step_run_id),
            step_run_id: made.step_run_id.to_string(),
            attempt: made.number,
            data: answer.clone(),
            by: made.by.clone(),
            approval_id: made.approval_id.to_string(),
            decision: made.state.into(),
            proposal_version: made.version,
            text: made.comment.clone(),
            ..JournalEntry::default()
        };
        let mut requested = now;
        self.change(made.step_run_id, made.number, |ask| {
            if let Ask::Approval(approval) = ask {
                let view = &mut approval.view;
                requested = view.requested_at.map_or(now, |at| Timestamp(at.millis()));
                view.state = made.state.into();
                view.decided_at = Some(wire::Timestamp::from_millis(now.0));
                view.decided_by = made.by;
                view.comment = made.comment;
                view.answer = answer;
                approval.decision_hash = Some(made.hash);
            }
        });
        record
            .index
            .push(IndexChange::Delete { index: PENDING_APPROVALS, sort: approval_sort(requested, made.approval_id) });
        self.journal(record, entry);
    }

    /// Approvals of the run in this state (empty: pending), oldest first.
    pub fn approvals(&self, state: &str) -> Vec<&Approval> {
        let wanted = if state.is_empty() { PENDING } else { state };
        let mut found: Vec<&Approval> = self
            .steps
            .values()
            .flat_map(|step| std::iter::once(&step.ask).chain(step.earlier.values()))
            .filter_map(|ask| match ask {
                Ask::Approval(approval) if wanted == "all" || approval.view.state == wanted => Some(&approval.view),
                _ => None,
            })
            .collect();
        found.sort_by_key(|a| (a.requested_at.map_or(0, |at| at.millis()), a.approval_id.clone()));
        found
    }
}

/// The words that answer a question of this kind.
pub(super) fn words_for(kind: &str) -> Vec<String> {
    WORDS.iter().filter(|(k, _, _)| *k == kind).map(|(_, word, _)| (*word).to_owned()).collect()
}

fn word_for(kind: &str, decision: &str) -> Result<&'static str, Rejection> {
    if let Some((_, _, state)) = WORDS.iter().find(|(k, word, _)| *k == kind && *word == decision) {
        return Ok(state);
    }
    let found: String = decision.chars().take(64).collect();
    let message =
        format!("Expected {} for a question of kind {kind}, but found {found:?}.", words_for(kind).join(" or "));
    Err(Rejection::new(Code::Invalid, message).at("decision"))
}

/// Text for people has a bound of its own: it goes into rows that are read whole.
pub(super) fn check_text(text: &str, field: &str) -> Result<(), Rejection> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("Expected at most {TEXT_BYTES_MAX} bytes, but found {}.", text.len());
    Err(Rejection::new(Code::TooLarge, message).at(field))
}

fn checked_answer(answer: Vec<u8>, state: &str) -> Result<Vec<u8>, Rejection> {
    if answer.is_empty() && state == "answered" {
        return Err(Rejection::new(Code::Invalid, "Expected an answer, but found none.").at("answer"));
    }
    if answer.len() > PAYLOAD_BYTES_MAX {
        let message = format!("Expected at most {PAYLOAD_BYTES_MAX} bytes of answer, but found {}.", answer.len());
        return Err(Rejection::new(Code::TooLarge, message).at("answer"));
    }
    if !answer.is_empty()
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(&answer)
    {
        let message = format!("Expected one JSON value, but found something else: {error}.");
        return Err(Rejection::new(Code::Invalid, message).at("answer"));
    }
    Ok(answer)
}

fn digest(state: &str, version: u32, answer: &[u8], comment: &str, by: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in [state.as_bytes(), &version.to_be_bytes(), answer, comment.as_bytes(), by.as_bytes()] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}
