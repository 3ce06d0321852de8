//! Messages of a run whose Run Control is outside: the facts arrive by call, numbered by their sender, and the engine alone
//! follows them. What it wants leaves as events.
//!
//! Several facts may come at once, to fill a gap. They are applied in order; if one is refused, those before it stay applied
//! and the reply says how far it went, so that the sender can go on from there.

use super::plan::plan_need;
use super::reminders::{STUCK, WAKE};
use super::stop::Stop;
use super::turn::{Draft, Fired};
use super::{RunGrain, methods, wire};
use crate::engine::{Accepted, Decided, Input, Note, Observation, Outcome};
use crate::kinds::methods::index::{OPEN_RUNS, RUNS};
use crate::run_control::{check_seen, outcome_of, runs_sort};
use grain_contract::limits::{FACTS_PER_TURN_MAX, TURN_BYTES_MAX};
use grain_contract::{Code, Context, Decision, Effect, IndexChange, Message, NOTHING_TO_TELL, Rejection, Turn};
use granary_proto::calls::external_fact::Fact;
use granary_proto::{calls, v1, wire::Json};
use prost::Message as _;
use uuid::Uuid;

/// What the facts of one call may make together, before the rest is left to the next one. Then there is room for one more fact
/// of any size. Bytes.
const FACTS_BYTES_MAX: usize = TURN_BYTES_MAX / 4;

impl RunGrain {
    pub(super) fn external(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Result<Decision, Stop> {
        match message {
            Message::Call { method, body } if *method == methods::FACTS => self.facts(cx, body),
            Message::Call { method, .. } if *method == methods::SWEEP => self.external_reminded(cx, ""),
            Message::Call { method, .. } => {
                let message = format!(
                    "Expected a call of an external Run Control, but call {} is the bundled one's (runControl: external).",
                    method.0
                );
                Err(Rejection::new(Code::WrongState, message).into())
            }
            Message::Reminder { name, .. } => self.external_reminded(cx, name),
            // Nothing of such a run lives in memory only.
            Message::Wake => Ok(Decision::Commit(Turn { effects: vec![Effect::Deactivate], ..Turn::default() })),
        }
    }

    fn facts(&mut self, cx: &mut Context<'_>, body: &[u8]) -> Result<Decision, Stop> {
        let facts = wire::body::<calls::ExternalFacts>(body)?.facts;
        if facts.is_empty() || facts.len() > FACTS_PER_TURN_MAX {
            let message = format!("Expected 1 to {FACTS_PER_TURN_MAX} facts, but found {}.", facts.len());
            return Err(Rejection::new(Code::Invalid, message).at("facts").into());
        }
        let mut inputs = Vec::with_capacity(facts.len());
        for fact in facts {
            inputs.push(self.input_of(fact)?);
        }
        let was_accepted = !self.release_id.is_empty();
        if was_accepted {
            self.ready()?;
        }
        self.pin_external(&mut inputs)?;
        let mut draft = Draft::new(cx.now);
        let mut applied = 0;
        for input in inputs {
            match self.advance(cx, &mut draft, input, |_, _| {}) {
                Ok(()) => applied += usize::from(*self.projection()?.note() != Note::Repeated),
                Err(rejection) if applied == 0 => return Err(rejection.into()),
                Err(_) => break,
            }
            if self.projection()?.spent_bytes() > FACTS_BYTES_MAX {
                break; // One commit holds so much; the sender goes on from there.
            }
        }
        self.release_id = self.projection()?.release_id().to_owned();
        self.index_external(cx, &mut draft, was_accepted)?;
        let projection = self.projection()?;
        let reply = v1::Advanced {
            last_outcome_sequence: projection.last_outcome_sequence(),
            state: projection.state().as_str().into(),
            repeated: applied == 0,
        };
        Ok(self.finish(draft, reply.encode_to_vec()))
    }

    /// An acceptance brings its release; one that cannot be had makes the run fail at once, saying why (D6).
    fn pin_external(&mut self, inputs: &mut [Input]) -> Result<(), Stop> {
        for input in inputs {
            let Input::RunAccepted { accepted, .. } = input else { continue };
            if !self.release_id.is_empty() {
                // A repeated acceptance is compared with what was recorded, and so must be refused again if it was then.
                continue;
            }
            if let Err(why) = self.plan_for(plan_need(&accepted.definition_release_id))? {
                accepted.refusal = Some(super::submit::refused(&why, &accepted.definition_release_id));
            }
        }
        Ok(())
    }

    fn index_external(&mut self, cx: &Context<'_>, draft: &mut Draft, was_accepted: bool) -> Result<(), Stop> {
        let is_over = self.projection()?.is_terminal();
        if !was_accepted && !self.release_id.is_empty() {
            let sort = runs_sort(cx.now);
            draft.record.index.push(IndexChange::Put { index: RUNS, sort: sort.clone(), value: Vec::new() });
            // Nothing of such a run lives in memory only.
            let value = NOTHING_TO_TELL.to_vec();
            draft.record.index.push(IndexChange::Put { index: OPEN_RUNS, sort, value });
        }
        if is_over && !draft.events.is_empty() {
            let accepted_ms = self.view()?.accepted_at.map_or(cx.now.0, |at| at.millis());
            let sort = runs_sort(grain_contract::Timestamp(accepted_ms));
            draft.record.index.push(IndexChange::Delete { index: OPEN_RUNS, sort });
        }
        Ok(())
    }

    fn external_reminded(&mut self, cx: &mut Context<'_>, name: &str) -> Result<Decision, Stop> {
        let mut draft = Draft::new(cx.now);
        draft.fired = match name {
            WAKE => Fired::Wake,
            STUCK => Fired::Stuck,
            "" => Fired::None,
            _ => Fired::Unknown,
        };
        if draft.fired == Fired::Unknown {
            return Ok(self.forget_reminder(draft, name));
        }
        self.ready()?;
        let projection = self.projection()?;
        if projection.last_outcome_sequence() > 0 && !projection.is_terminal() {
            if draft.fired == Fired::Wake {
                self.fire_timers(cx, &mut draft)?;
            } else {
                self.check_stuck(cx, &mut draft)?;
            }
            self.index_external(cx, &mut draft, true)?;
        }
        Ok(self.finish(draft, Vec::new()))
    }

    fn input_of(&self, fact: calls::ExternalFact) -> Result<Input, Rejection> {
        let text = |json: Option<Json>| json.map(|j| j.text).unwrap_or_default();
        let fact = fact
            .fact
            .ok_or_else(|| Rejection::new(Code::Invalid, "Expected a fact, but found none.").at("facts.fact"))?;
        match fact {
            Fact::Accepted(m) => {
                self.is_ours(&m.run_id)?;
                if m.definition_release_id.is_empty() {
                    let message = "Expected the release that the run is pinned to, but found none.";
                    return Err(Rejection::new(Code::Invalid, message).at("definitionReleaseId"));
                }
                Ok(Input::RunAccepted {
                    sequence: m.sequence,
                    accepted: Accepted {
                        project_id: m.project_id,
                        definition_release_id: m.definition_release_id,
                        input: text(m.input),
                        variables: text(m.variables),
                        parent_run_id: optional_id(&m.parent_run_id, "parentRunId")?,
                        parent_step_run_id: None,
                        depth: m.depth,
                        refusal: None,
                    },
                })
            }
            Fact::Outcome(m) => {
                self.is_ours(&m.run_id)?;
                let kind = outcome_of(&m.outcome).ok_or_else(|| {
                    let found: String = m.outcome.chars().take(64).collect();
                    let message =
                        format!("Expected Succeeded, Failed, TimedOut, Cancelled or Uncertain, but found {found:?}.");
                    Rejection::new(Code::Invalid, message).at("outcome")
                })?;
                Ok(Input::AttemptOutcomeRecorded {
                    sequence: m.sequence,
                    outcome: Outcome {
                        step_run_id: wire::id(&m.step_run_id, "stepRunId")?,
                        attempt_id: optional_id(&m.attempt_id, "attemptId")?,
                        attempt: m.attempt,
                        kind,
                        output: text(m.output),
                        output_ref: m.output_ref,
                        failure: m.failure,
                    },
                })
            }
            Fact::Decision(m) => {
                self.is_ours(&m.run_id)?;
                Ok(Input::ApprovalDecided {
                    sequence: m.sequence,
                    decided: Decided {
                        step_run_id: wire::id(&m.step_run_id, "stepRunId")?,
                        approval_id: optional_id(&m.approval_id, "approvalId")?,
                        decision: m.decision,
                        proposal_version: m.proposal_version,
                        answer: text(m.answer),
                        comment: m.comment,
                        decided_by: m.decided_by,
                    },
                })
            }
            Fact::Cancelled(m) => {
                self.is_ours(&m.run_id)?;
                Ok(Input::RunCancelled { sequence: m.sequence, reason: m.reason })
            }
            Fact::Observed(m) => {
                self.is_ours(&m.run_id)?;
                let seen = check_seen(&m.kind, m.value.as_ref())?;
                Ok(Input::Observed {
                    sequence: m.sequence,
                    observation: Observation {
                        seen,
                        value: text(m.value),
                        step_run_id: optional_id(&m.step_run_id, "stepRunId")?,
                        attempt_id: optional_id(&m.attempt_id, "attemptId")?,
                        by: m.observed_by,
                    },
                })
            }
        }
    }

    fn is_ours(&self, run_id: &str) -> Result<(), Rejection> {
        if wire::id(run_id, "runId")? == self.run_id {
            return Ok(());
        }
        let message = format!("Expected a fact of run {}, but it is of {run_id}.", self.run_id);
        Err(Rejection::new(Code::Invalid, message).at("runId"))
    }
}

fn optional_id(text: &str, field: &str) -> Result<Option<Uuid>, Rejection> {
    if text.is_empty() { Ok(None) } else { wire::id(text, field).map(Some) }
}
