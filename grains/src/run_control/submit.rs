//! A run is submitted. Idempotent: the run's id follows from the client's key, or is the client's own, so the same submission
//! comes to the same grain, and is recognised by its content. Run ids are never used again, so a late duplicate of an old
//! submission can only meet its own run (FR-172).

use super::state::Submitted;
use super::{Authority, Record, RunState, Verdict};
use crate::engine::{Accepted, Input};
use crate::kinds::methods::index::{OPEN_RUNS, RUNS};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use grain_contract::{Code, IndexChange, Rejection, Timestamp};
use granary_proto::calls::Submit;
use granary_proto::v1::{Failure, JournalEntry, SubmitRunRequest};
use granary_proto::wire::Json;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// A checked submission.
#[derive(Clone, Debug)]
pub struct Submission {
    request: SubmitRunRequest,
    hash: [u8; 32],
    parent: Option<(Uuid, Uuid)>,
    depth: u32,
    by: String,
}

/// The release that the run is pinned to, or why there is none.
#[derive(Clone, Debug)]
pub struct Pinned {
    pub definition_id: String,
    pub version: String,
    pub release_id: String,
    pub refusal: Option<Failure>,
}

impl Authority {
    pub fn check_submit(&self, submit: Submit) -> Result<Verdict<Submission>, Rejection> {
        let request = submit.request.unwrap_or_default();
        let parent = match (submit.parent_run_id.as_str(), submit.parent_step_run_id.as_str()) {
            ("", "") => None,
            (run, step_run) => Some((parent_id(run, "parentRunId")?, parent_id(step_run, "parentStepRunId")?)),
        };
        let hash = digest(&request, parent);
        if let Some(run) = &self.run {
            if run.hash == hash {
                return Ok(Verdict::Repeated);
            }
            let (what, field) = match request.client_key.as_str() {
                "" => (format!("run id {}", self.run_id), "runId"),
                key => (format!("client key {key}"), "clientKey"),
            };
            let message = format!(
                "Expected the submission that {what} was used for before, but found another content. Run {} is {}.",
                self.run_id,
                run.state.as_str()
            );
            return Err(Rejection::new(Code::Conflict, message).at(field));
        }
        check_value(request.input.as_ref(), "input")?;
        check_value(request.variables.as_ref(), "variables")?;
        Ok(Verdict::New(Submission { request, hash, parent, depth: submit.depth, by: submit.by }))
    }

    pub fn submit_fact(&self, submission: &Submission, pinned: &Pinned) -> Input {
        let text = |json: &Option<Json>| json.as_ref().map(|j| j.text.clone()).unwrap_or_default();
        Input::RunAccepted {
            sequence: self.next_sequence(),
            accepted: Accepted {
                project_id: submission.request.project_id.clone(),
                definition_release_id: pinned.release_id.clone(),
                input: text(&submission.request.input),
                variables: text(&submission.request.variables),
                parent_run_id: submission.parent.map(|p| p.0),
                parent_step_run_id: submission.parent.map(|p| p.1),
                depth: submission.depth,
                refusal: pinned.refusal.clone(),
            },
        }
    }

    pub fn record_submit(&mut self, record: &mut Record, submission: Submission, pinned: Pinned) {
        let sequence = self.take_sequence();
        let entry = JournalEntry {
            r#type: "RunAccepted".into(),
            sequence,
            data: Some(journal_data(&submission, &pinned)),
            failure: pinned.refusal.clone(),
            by: submission.by.clone(),
            ..JournalEntry::default()
        };
        self.run = Some(Submitted {
            state: RunState::Accepted,
            client_key: submission.request.client_key,
            hash: submission.hash,
            by: submission.by,
            definition_id: pinned.definition_id,
            definition_version: pinned.version,
            release_id: pinned.release_id,
            project_id: submission.request.project_id,
            parent_run_id: submission.parent.map(|p| p.0),
            parent_step_run_id: submission.parent.map(|p| p.1),
            depth: submission.depth,
            accepted: record.now,
            ended: None,
            cancel_reason: String::new(),
            refusal: pinned.refusal,
        });
        self.changed.run = true;
        let sort = runs_sort(record.now);
        record.index.push(IndexChange::Put { index: RUNS, sort: sort.clone(), value: Vec::new() });
        record.index.push(IndexChange::Put { index: OPEN_RUNS, sort, value: Vec::new() });
        self.journal(record, entry);
    }
}

/// Place in the indexes of runs: newest first.
pub(crate) fn runs_sort(accepted: Timestamp) -> Vec<u8> {
    (u64::MAX - u64::try_from(accepted.0).unwrap_or(0)).to_be_bytes().to_vec()
}

fn parent_id(text: &str, field: &str) -> Result<Uuid, Rejection> {
    Uuid::try_parse(text)
        .map_err(|_| Rejection::new(Code::Invalid, "Expected a UUID, but found something else.").at(field))
}

/// What cannot be read back from the journal must not get into it.
fn check_value(json: Option<&Json>, field: &str) -> Result<(), Rejection> {
    let Some(json) = json else { return Ok(()) };
    if json.text.len() > PAYLOAD_BYTES_MAX {
        let message = format!("Expected at most {PAYLOAD_BYTES_MAX} bytes of {field}, but found {}.", json.text.len());
        return Err(Rejection::new(Code::TooLarge, message).at(field));
    }
    if !json.text.is_empty()
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(&json.text)
    {
        let message = format!("Expected {field} to be one JSON value, but found something else: {error}.");
        return Err(Rejection::new(Code::Invalid, message).at(field));
    }
    Ok(())
}

/// Over the request as the caller gave it. Not over the release it led to: the same request made again after a newer version
/// was published is still the same request.
fn digest(request: &SubmitRunRequest, parent: Option<(Uuid, Uuid)>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let text = |json: &'_ Option<Json>| json.as_ref().map(|j| j.text.clone()).unwrap_or_default();
    let (input, variables) = (text(&request.input), text(&request.variables));
    let parent = parent.map(|(run, step)| [*run.as_bytes(), *step.as_bytes()].concat()).unwrap_or_default();
    for part in [
        request.definition_release_id.as_bytes(),
        request.definition_id.as_bytes(),
        request.version.as_bytes(),
        request.project_id.as_bytes(),
        &input,
        &variables,
        &parent,
    ] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// What the journal keeps of an acceptance: enough to make the fact again, byte for byte.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcceptedData {
    // An external Run Control may have none, and then leaves it out.
    #[serde(default)]
    project_id: String,
    definition_release_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variables: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_step_run_id: Option<Uuid>,
    #[serde(default)]
    depth: u32,
}

fn journal_data(submission: &Submission, pinned: &Pinned) -> Json {
    let raw = |json: &Option<Json>| {
        let text = std::str::from_utf8(&json.as_ref()?.text).ok()?;
        RawValue::from_string(text.to_owned()).ok()
    };
    Json::of(&AcceptedData {
        project_id: submission.request.project_id.clone(),
        definition_release_id: pinned.release_id.clone(),
        input: raw(&submission.request.input),
        variables: raw(&submission.request.variables),
        parent_run_id: submission.parent.map(|p| p.0),
        parent_step_run_id: submission.parent.map(|p| p.1),
        depth: submission.depth,
    })
}

/// Reads a journal's acceptance back.
pub fn accepted_of(entry: &JournalEntry) -> Result<Accepted, String> {
    let data = entry.data.as_ref().map(|json| json.text.as_slice()).unwrap_or_default();
    let read: AcceptedData = serde_json::from_slice(data).map_err(|e| format!("entry {}: {e}", entry.number))?;
    let text = |raw: Option<Box<RawValue>>| raw.map(|r| r.get().as_bytes().to_vec()).unwrap_or_default();
    Ok(Accepted {
        project_id: read.project_id,
        definition_release_id: read.definition_release_id,
        input: text(read.input),
        variables: text(read.variables),
        parent_run_id: read.parent_run_id,
        parent_step_run_id: read.parent_step_run_id,
        depth: read.depth,
        refusal: entry.failure.clone(),
    })
}
