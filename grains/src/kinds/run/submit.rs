//! SUBMIT: the run is accepted, pinned to a release, and started, all in one turn.

use super::plan::{plan_need, release_need};
use super::stop::Stop;
use super::turn::Draft;
use super::{RunGrain, wire};
use crate::definition::SKILL_PREFIX;
use crate::run_control::{Cancelling, Pinned, Verdict};
use grain_contract::{Code, Context, Decision, Rejection};
use granary_proto::calls::Submit;
use granary_proto::v1::{Failure, SubmitRunRequest, SubmitRunResponse};
use prost::Message as _;

impl RunGrain {
    pub(super) fn submit(&mut self, cx: &mut Context<'_>, body: &[u8]) -> Result<Decision, Stop> {
        let submit: Submit = wire::body(body)?;
        let request = submit.request.clone().unwrap_or_default();
        if !request.run_id.is_empty() && request.run_id != self.run_id.to_string() {
            let message = format!("Expected run id {}, but the request names {}.", self.run_id, request.run_id);
            return Err(Rejection::new(Code::Invalid, message).at("runId").into());
        }
        let release_id = if submit.release_id.is_empty() { &request.definition_release_id } else { &submit.release_id };
        let release_id = release_id.clone();
        let submission = match self.authority.check_submit(submit)? {
            Verdict::Repeated => {
                self.ready()?;
                return Ok(Decision::Read(self.submitted(true)?));
            }
            Verdict::New(submission) => submission,
        };
        let pinned = self.pin(&request, release_id)?;
        let mut draft = Draft::new(cx.now);
        let fact = self.authority.submit_fact(&submission, &pinned);
        self.run_input = request.input.map(|json| json.text).unwrap_or_default();
        self.release_id.clone_from(&pinned.release_id);
        let accepted = self.advance(cx, &mut draft, fact, |authority, record| {
            authority.record_submit(record, submission, pinned);
        });
        if let Err(rejection) = accepted {
            (self.run_input, self.release_id) = (Vec::new(), String::new());
            return Err(rejection.into());
        }
        self.end_what_was_cancelled_before(cx, &mut draft)?;
        let reply = self.submitted(false)?;
        Ok(self.finish(draft, reply))
    }

    /// Pins the release, or finds out why there is none. An unknown release stores nothing; a refused one is accepted and
    /// fails at once, so that the refusal can be read where the run is (D6).
    fn pin(&mut self, request: &SubmitRunRequest, release_id: String) -> Result<Pinned, Stop> {
        let need = match (release_id.as_str(), request.definition_id.as_str()) {
            ("", "") => {
                let message = "Expected a release id or a definition id, but found neither.";
                return Err(Rejection::new(Code::Invalid, message).at("definitionReleaseId").into());
            }
            ("", definition) => release_need(definition, &request.version),
            (release, _) => plan_need(release),
        };
        match self.plan_for(need.clone())? {
            Ok(plan) => Ok(Pinned {
                definition_id: plan.definition_id.clone(),
                version: plan.version.clone(),
                release_id: plan.release_id.clone(),
                refusal: None,
            }),
            Err(why) if why.code == Code::NotFound => Err(why.into()),
            Err(why) => {
                // Something must be pinned even so: what was asked for.
                let release_id = if release_id.is_empty() { need.key } else { release_id };
                Ok(Pinned {
                    definition_id: request.definition_id.clone(),
                    version: request.version.clone(),
                    refusal: Some(refused(&why, &release_id)),
                    release_id,
                })
            }
        }
    }

    /// FR-052: the parent's cancel came before the start. The child is accepted, so that its books are complete, and is
    /// cancelled in the same turn: no worker ever sees it.
    fn end_what_was_cancelled_before(&mut self, cx: &mut Context<'_>, draft: &mut Draft) -> Result<(), Stop> {
        let Some(reason) = self.authority.tombstone().map(str::to_owned) else { return Ok(()) };
        if self.authority.is_over() {
            return Ok(());
        }
        let cancelling = Cancelling { reason, by: "parent".into() };
        let fact = self.authority.cancel_fact(self.authority.next_sequence(), &cancelling);
        self.advance(cx, draft, fact, |authority, record| authority.record_cancel(record, cancelling)).map_err(|_| {
            Stop::new(Code::Internal, "Expected a run that was just accepted to be cancelled, but it could not be.")
        })
    }

    fn submitted(&self, repeated: bool) -> Result<Vec<u8>, Stop> {
        Ok(SubmitRunResponse { run: Some(self.view()?), repeated }.encode_to_vec())
    }
}

/// `wanted` is the release or definition that was asked for.
pub(super) fn refused(why: &Rejection, wanted: &str) -> Failure {
    let class = match why.code {
        Code::Denied => "policy-denied",
        // A skill that cannot be run, as no flow template.
        Code::Invalid if wanted.starts_with(SKILL_PREFIX) => "step-definition",
        _ => "infrastructure",
    };
    Failure { class: class.into(), message: format!("The release cannot be run: {}", why.message) }
}
