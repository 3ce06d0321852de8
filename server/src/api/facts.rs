//! The inbound messages of an external Run Control, and what is done when one is missing.

use super::{Api, HEADER_ROWS_MAX, check, header, run_grain};
use crate::tenant::Caller;
use grain_contract::{Code, GrainId, Rejection};
use grains::kinds::methods::run;
use granary_proto::calls::external_fact::Fact;
use granary_proto::{calls, v1};
use prost::Message as _;
use uuid::Uuid;

impl Api {
    pub async fn run_accepted(
        &self,
        caller: &Caller,
        mut m: v1::RunAcceptedMessage,
    ) -> Result<v1::Advanced, Rejection> {
        check::optional_name(&m.project_id, "projectId")?;
        check::name(&m.definition_release_id, "definitionReleaseId")?;
        check::json(&mut m.input, "input")?;
        check::json_object(&mut m.variables, "variables")?;
        if !m.parent_run_id.is_empty() {
            check::id(&m.parent_run_id, "parentRunId")?;
        }
        let (run, sequence) = (m.run_id.clone(), m.sequence);
        self.apply(caller, &run, sequence, Fact::Accepted(m)).await
    }

    pub async fn outcome_recorded(
        &self,
        caller: &Caller,
        mut m: v1::AttemptOutcomeRecordedMessage,
    ) -> Result<v1::Advanced, Rejection> {
        check::id(&m.step_run_id, "stepRunId")?;
        if !m.attempt_id.is_empty() {
            check::id(&m.attempt_id, "attemptId")?;
        }
        const OUTCOMES: [&str; 5] = ["Succeeded", "Failed", "TimedOut", "Cancelled", "Uncertain"];
        if !OUTCOMES.contains(&m.outcome.as_str()) {
            let message = format!("Expected one of {}, but found {}.", OUTCOMES.join(", "), check::shown(&m.outcome));
            return Err(check::invalid("outcome", message));
        }
        check::json(&mut m.output, "output")?;
        check::text(&m.output_ref, "outputRef")?;
        let (run, sequence) = (m.run_id.clone(), m.sequence);
        self.apply(caller, &run, sequence, Fact::Outcome(m)).await
    }

    pub async fn approval_decided(
        &self,
        caller: &Caller,
        mut m: v1::ApprovalDecidedMessage,
    ) -> Result<v1::Advanced, Rejection> {
        check::id(&m.step_run_id, "stepRunId")?;
        if !m.approval_id.is_empty() {
            check::id(&m.approval_id, "approvalId")?;
        }
        const DECISIONS: [&str; 6] = ["approved", "rejected", "answered", "retry", "skip", "fail"];
        if !DECISIONS.contains(&m.decision.as_str()) {
            let message = format!("Expected one of {}, but found {}.", DECISIONS.join(", "), check::shown(&m.decision));
            return Err(check::invalid("decision", message));
        }
        check::json(&mut m.answer, "answer")?;
        check::text(&m.comment, "comment")?;
        check::optional_text_name(&m.decided_by, "decidedBy")?;
        let (run, sequence) = (m.run_id.clone(), m.sequence);
        self.apply(caller, &run, sequence, Fact::Decision(m)).await
    }

    pub async fn run_cancelled(&self, caller: &Caller, m: v1::RunCancelledMessage) -> Result<v1::Advanced, Rejection> {
        check::text(&m.reason, "reason")?;
        let (run, sequence) = (m.run_id.clone(), m.sequence);
        self.apply(caller, &run, sequence, Fact::Cancelled(m)).await
    }

    pub async fn observed(&self, caller: &Caller, mut m: v1::ObservedMessage) -> Result<v1::Advanced, Rejection> {
        check::json(&mut m.value, "value")?;
        for (id, field) in [(&m.step_run_id, "stepRunId"), (&m.attempt_id, "attemptId")] {
            if !id.is_empty() {
                check::id(id, field)?;
            }
        }
        check::optional_text_name(&m.observed_by, "observedBy")?;
        let (run, sequence) = (m.run_id.clone(), m.sequence);
        self.apply(caller, &run, sequence, Fact::Observed(m)).await
    }

    /// One fact. If earlier ones are missing, they are read from Run Control's journal and all are applied in one call
    /// (R2); if that fails, the refusal still names the number that was expected.
    async fn apply(&self, caller: &Caller, run_id: &str, sequence: u64, fact: Fact) -> Result<v1::Advanced, Rejection> {
        self.external()?;
        let id = check::id(run_id, "runId")?;
        if sequence == 0 {
            return Err(check::invalid("sequence", "Expected a number from 1, but found 0."));
        }
        let grain = run_grain(&caller.tenant, id);
        let alone = || vec![calls::ExternalFact { fact: Some(fact.clone()) }];
        let gap = match self.send_facts(caller, &grain, alone()).await {
            Err(refusal) if refusal.code == Code::Gap => refusal,
            answer => return answer,
        };
        let Some(journal) = &self.inner.journal else { return Err(gap) };
        let applied = self.last_applied(caller, &grain).await?;
        let missing = journal.facts_between(caller, id, applied, sequence).await.map_err(|why| Rejection {
            message: format!("{} Run Control's journal: {}", gap.message, why.message),
            ..gap
        })?;
        let mut facts: Vec<calls::ExternalFact> = missing;
        facts.extend(alone());
        let advanced = self.send_facts(caller, &grain, facts).await?;
        if advanced.last_outcome_sequence >= sequence {
            return Ok(advanced);
        }
        // One of them was refused and those before it stand: asked alone, this one says why, or what is missing still.
        self.send_facts(caller, &grain, alone()).await
    }

    async fn send_facts(
        &self,
        caller: &Caller,
        grain: &GrainId,
        facts: Vec<calls::ExternalFact>,
    ) -> Result<v1::Advanced, Rejection> {
        let body = calls::ExternalFacts { facts };
        self.call(caller, grain.clone(), run::FACTS, body.encode_to_vec()).await
    }

    async fn last_applied(&self, caller: &Caller, grain: &GrainId) -> Result<u64, Rejection> {
        let rows = self.inner.silo.rows(grain, run::table::HEADER, None, HEADER_ROWS_MAX, caller.deadline).await?;
        Ok(header(&rows).last_outcome_sequence)
    }
}

/// A journal entry of Run Control as the fact it records; `None` if it is not one of the five.
pub(crate) fn fact_of(run_id: Uuid, entry: v1::JournalEntry) -> Option<calls::ExternalFact> {
    if entry.sequence == 0 {
        return None;
    }
    let run_id = run_id.to_string();
    let (sequence, occurred_at) = (entry.sequence, entry.at);
    let fact = match entry.r#type.as_str() {
        "RunAccepted" => Fact::Accepted(accepted(run_id, entry)),
        "AttemptOutcomeRecorded" => Fact::Outcome(v1::AttemptOutcomeRecordedMessage {
            run_id,
            sequence,
            step_run_id: entry.step_run_id,
            attempt_id: entry.attempt_id,
            attempt: entry.attempt,
            outcome: entry.outcome,
            output: entry.data,
            output_ref: String::new(),
            failure: entry.failure,
            occurred_at,
        }),
        "ApprovalDecided" => Fact::Decision(v1::ApprovalDecidedMessage {
            run_id,
            sequence,
            step_run_id: entry.step_run_id,
            approval_id: entry.approval_id,
            decision: entry.decision,
            proposal_version: entry.proposal_version,
            answer: entry.data,
            comment: entry.text,
            decided_by: entry.by,
            occurred_at,
        }),
        "RunCancelled" => {
            Fact::Cancelled(v1::RunCancelledMessage { run_id, sequence, reason: entry.text, occurred_at })
        }
        "Observed" => Fact::Observed(v1::ObservedMessage {
            run_id,
            sequence,
            kind: entry.text,
            value: entry.data,
            step_run_id: entry.step_run_id,
            attempt_id: entry.attempt_id,
            observed_by: entry.by,
            occurred_at,
        }),
        _ => return None,
    };
    Some(calls::ExternalFact { fact: Some(fact) })
}

/// The data of an acceptance is an object: definitionReleaseId, projectId, input, variables, parentRunId, depth.
fn accepted(run_id: String, entry: v1::JournalEntry) -> v1::RunAcceptedMessage {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Data {
        definition_release_id: String,
        project_id: String,
        input: Option<granary_proto::wire::Json>,
        variables: Option<granary_proto::wire::Json>,
        parent_run_id: String,
        depth: u32,
    }
    let data: Data = entry.data.as_ref().and_then(|d| serde_json::from_slice(&d.text).ok()).unwrap_or_default();
    v1::RunAcceptedMessage {
        run_id,
        sequence: entry.sequence,
        project_id: data.project_id,
        definition_release_id: data.definition_release_id,
        input: data.input,
        variables: data.variables,
        occurred_at: entry.at,
        parent_run_id: data.parent_run_id,
        depth: data.depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::wire::Json;

    /// [R2]
    #[test]
    fn journal_entries_become_the_facts_they_record() {
        let run = Uuid::from_u128(7);
        let entry = |kind: &str, sequence: u64| v1::JournalEntry {
            r#type: kind.to_owned(),
            sequence,
            data: Some(Json::new(r#"{"definitionReleaseId":"a@1","input":{"x":1},"variables":null}"#)),
            ..v1::JournalEntry::default()
        };
        let Some(Fact::Accepted(m)) = fact_of(run, entry("RunAccepted", 1)).and_then(|f| f.fact) else {
            panic!("an acceptance");
        };
        assert_eq!((m.definition_release_id.as_str(), m.sequence), ("a@1", 1));
        assert_eq!(m.input, Some(Json::new(r#"{"x":1}"#)));
        assert_eq!(m.variables, None);
        for kind in ["AttemptOutcomeRecorded", "ApprovalDecided", "RunCancelled", "Observed"] {
            assert!(fact_of(run, entry(kind, 2)).is_some(), "{kind}");
        }
        assert!(fact_of(run, entry("AttemptCreated", 0)).is_none());
        assert!(fact_of(run, entry("StepCreated", 3)).is_none());
    }
}
