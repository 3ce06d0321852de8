//! Messages of a run whose authority is here. One arm a trigger; each is check, fact, record.

use super::methods;
use super::reminders::{STUCK, WAKE};
use super::stop::Stop;
use super::turn::{Draft, Fired};
use super::{RunGrain, wire};
use crate::definition::SKILL_PREFIX;
use crate::engine::RunState;
use crate::run_control::{Cancellable, Cancelling, Expiry, Verdict};
use grain_contract::{Code, Context, Decision, Effect, Lease, Message, Method, Rejection, Turn};
use granary_proto::{calls, v1};
use prost::Message as _;

/// Observations that one report may carry.
const OBSERVATIONS_PER_REPORT_MAX: usize = 16;

impl RunGrain {
    pub(super) fn bundled(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Result<Decision, Stop> {
        match message {
            Message::Call { method, body } if *method == methods::SUBMIT => self.submit(cx, body),
            Message::Call { method, body } => self.call(cx, *method, body),
            Message::Reminder { name, .. } => self.reminded(cx, name),
            Message::Wake => Ok(self.wake()),
        }
    }

    fn call(&mut self, cx: &mut Context<'_>, method: Method, body: &[u8]) -> Result<Decision, Stop> {
        let mut draft = Draft::new(cx.now);
        self.prepare(cx, &mut draft)?;
        let done = match method {
            methods::REPORT => self.report(cx, &mut draft, body),
            methods::CLAIM => self.claim(cx, &mut draft, body),
            methods::LEASE_EXPIRED => self.lease_expired(cx, &mut draft, body),
            methods::DECIDE => self.decide_approval(cx, &mut draft, body),
            methods::CANCEL => self.cancel(cx, &mut draft, body),
            methods::CANCEL_CHILD => self.cancel_child(cx, &mut draft, body),
            methods::CHILD_ENDED => self.child_ended(cx, &mut draft, body),
            methods::CALL_REJECTED => self.call_rejected(cx, &mut draft, body),
            methods::OBSERVE => self.observe(cx, &mut draft, body),
            methods::SWEEP => self.sweep(cx, &mut draft),
            methods::FACTS => Err(Rejection::new(
                Code::WrongState,
                "Expected an external Run Control to send facts, but the bundled one is in charge (runControl: bundled).",
            )
            .into()),
            other => {
                let message = format!("Expected a call of kind {}, but {} is none of its numbers.", methods::KIND, other.0);
                Err(Rejection::new(Code::Invalid, message).into())
            }
        };
        match done {
            Ok(reply) => Ok(self.finish(draft, reply)),
            Err(Stop::Need(need)) => Err(Stop::Need(need)),
            Err(Stop::Rejection(rejection)) if draft.is_empty() => Err(rejection.into()),
            // Timers fired first, and that is why the call is refused. What they did must be committed, so the refusal
            // goes where the reply can say it.
            Err(Stop::Rejection(rejection)) => {
                let reply = self.refusal_reply(method, body, &rejection);
                Ok(self.finish(draft, reply))
            }
        }
    }

    /// Every turn first fires what is due, so that the outcome of a race between a timer and a message does not depend on
    /// when the reminder happens to be delivered.
    fn prepare(&mut self, cx: &mut Context<'_>, draft: &mut Draft) -> Result<(), Stop> {
        if self.authority.run().is_none() || self.authority.is_over() {
            return Ok(());
        }
        self.ready()?;
        if self.projection()?.next_due().is_some_and(|due| due <= cx.now) {
            self.fire_timers(cx, draft)?;
        }
        Ok(())
    }

    fn report(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let mut report = wire::body::<calls::ReportCall>(body)?.report.unwrap_or_default();
        let accepted = v1::ReportResult { attempt_id: report.attempt_id.clone(), accepted: true, ..Default::default() };
        let seen = seen_during(&mut report)?;
        if let Verdict::New(end) = self.authority.check_report(report)? {
            // What it saw came before its end. One that does not fit is left out: it says nothing against the outcome.
            for observe in seen {
                match self.record_seen(cx, draft, observe) {
                    Ok(()) | Err(Stop::Rejection(_)) => {}
                    Err(need) => return Err(need),
                }
            }
            let fact = end.fact(self.authority.next_sequence());
            self.advance(cx, draft, fact, |authority, record| authority.record_end(record, end))?;
        }
        Ok(accepted.encode_to_vec())
    }

    fn claim(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let claim: calls::Claim = wire::body(body)?;
        let attempt = wire::id(&claim.attempt_id, "attemptId")?;
        let token = <[u8; 16]>::try_from(claim.token.as_slice()).map_err(|_| {
            Rejection::new(Code::Invalid, "Expected a lease token of 16 bytes, but found another length.").at("token")
        })?;
        let lease = Lease { worker: claim.worker, token };
        let verdict = self.authority.check_claim(attempt, &lease);
        let claimed = verdict.as_ref().is_some_and(|verdict| !claim.held || *verdict == Verdict::Repeated);
        if claimed && verdict == Some(Verdict::New(())) {
            self.authority.record_claim(&mut draft.record, attempt, lease);
            self.show_taken(cx, draft);
        }
        Ok(calls::ClaimReply { claimed }.encode_to_vec())
    }

    fn lease_expired(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let expired: calls::LeaseExpired = wire::body(body)?;
        let attempt = wire::id(&expired.attempt_id, "attemptId")?;
        if !self.authority.is_lease_of(attempt, &expired.token) {
            return Ok(Vec::new());
        }
        match self.authority.check_lease_expired(attempt, &expired.worker, expired.never_started) {
            Expiry::Moot => {}
            Expiry::NeverStarted => {
                self.authority.record_never_started(&mut draft.record, attempt, cx.offers, &self.run_input);
                self.show_taken(cx, draft);
            }
            Expiry::Uncertain(end) => {
                let fact = end.fact(self.authority.next_sequence());
                self.advance(cx, draft, fact, |authority, record| authority.record_end(record, end))?;
            }
        }
        Ok(Vec::new())
    }

    fn decide_approval(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let request: v1::DecideApprovalRequest = wire::body(body)?;
        let id = request.approval_id.clone();
        if let Verdict::New(made) = self.authority.check_decide(request)? {
            let fact = self.authority.decide_fact(self.authority.next_sequence(), &made);
            self.advance(cx, draft, fact, |authority, record| authority.record_decide(record, made))?;
        }
        Ok(self.authority.approval(&id)?.encode_to_vec())
    }

    fn cancel(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let request: v1::CancelRunRequest = wire::body(body)?;
        match self.authority.check_cancel(&request.reason)? {
            Cancellable::Yes if self.is_compensating() => {
                let message = format!(
                    "Expected a run in progress, but {} is being compensated and will end Failed.",
                    self.run_id
                );
                return Err(Rejection::new(Code::WrongState, message).at("runId").into());
            }
            Cancellable::Yes => self.cancel_run(cx, draft, Cancelling { reason: request.reason, by: request.by })?,
            Cancellable::Already => self.ready()?,
            Cancellable::Unknown => {
                let message = format!("Expected a submitted run, but {} is not one.", self.run_id);
                return Err(Rejection::new(Code::NotFound, message).at("runId").into());
            }
        }
        Ok(self.view()?.encode_to_vec())
    }

    fn cancel_child(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let request: calls::CancelChild = wire::body(body)?;
        let parent = wire::id(&request.parent_run_id, "parentRunId")?;
        if self.authority.run().is_some_and(|run| run.parent_run_id != Some(parent)) {
            let message = format!("Expected the run's parent, but {parent} is not the parent of {}.", self.run_id);
            return Err(Rejection::new(Code::Invalid, message).at("parentRunId").into());
        }
        // A child that has ended already, however, is as good as cancelled: the parent waits for it no more.
        match self.authority.check_cancel(&request.reason) {
            // It ends by itself, and the parent waits for it no more.
            Ok(Cancellable::Yes) if self.is_compensating() => {}
            Ok(Cancellable::Yes) => {
                let by = format!("run {parent}");
                self.cancel_run(cx, draft, Cancelling { reason: request.reason, by })?;
            }
            Ok(Cancellable::Unknown) => {
                self.authority.remember_cancel(&request.reason);
            }
            Ok(Cancellable::Already) | Err(_) => {}
        }
        Ok(Vec::new())
    }

    /// S1 leads from there to Failed only: a cancel would leave authority and engine with two different ends.
    fn is_compensating(&self) -> bool {
        self.projection().is_ok_and(|projection| projection.state() == RunState::Compensating)
    }

    fn cancel_run(&mut self, cx: &mut Context<'_>, draft: &mut Draft, cancelling: Cancelling) -> Result<(), Stop> {
        let fact = self.authority.cancel_fact(self.authority.next_sequence(), &cancelling);
        self.advance(cx, draft, fact, |authority, record| authority.record_cancel(record, cancelling))?;
        Ok(())
    }

    fn child_ended(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let ended: calls::ChildEnded = wire::body(body)?;
        let child = wire::id(&ended.child_run_id, "childRunId")?;
        let output = ended.output.map(|json| json.text).unwrap_or_default();
        if let Some(end) = self.authority.check_child_ended(child, &ended.state, output, ended.failure) {
            let fact = end.fact(self.authority.next_sequence());
            self.advance(cx, draft, fact, |authority, record| authority.record_end(record, end))?;
        }
        Ok(Vec::new())
    }

    /// A child could not be started: that is how its step ends.
    fn call_rejected(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let rejected: calls::CallRejected = wire::body(body)?;
        if rejected.method != u32::from(methods::SUBMIT.0) {
            return Ok(Vec::new());
        }
        let submit: calls::Submit = wire::body(&rejected.body)?;
        let request = submit.request.unwrap_or_default();
        let child = wire::id(&request.run_id, "body.request.runId")?;
        // Nobody knows the skill that the step names, or it is none that can be run.
        let is_unknown_skill = request.definition_id.starts_with(SKILL_PREFIX)
            && [Code::NotFound, Code::Invalid].iter().any(|code| rejected.code == code.as_str());
        let class = if rejected.code == Code::Denied.as_str() {
            "policy-denied"
        } else if is_unknown_skill {
            "step-definition"
        } else {
            "infrastructure"
        };
        let message = match is_unknown_skill {
            true => rejected.message,
            false => format!("The child run could not be started ({}): {}", rejected.code, rejected.message),
        };
        let failure = v1::Failure { class: class.into(), message };
        if let Some(end) = self.authority.check_child_ended(child, "Failed", Vec::new(), Some(failure)) {
            let fact = end.fact(self.authority.next_sequence());
            self.advance(cx, draft, fact, |authority, record| authority.record_end(record, end))?;
        }
        Ok(Vec::new())
    }

    fn observe(&mut self, cx: &mut Context<'_>, draft: &mut Draft, body: &[u8]) -> Done {
        let observe = wire::body(body)?;
        self.record_seen(cx, draft, observe)?;
        Ok(Vec::new())
    }

    fn record_seen(&mut self, cx: &mut Context<'_>, draft: &mut Draft, observe: v1::Observe) -> Result<(), Stop> {
        let entry = self.authority.check_observe(observe)?;
        match self.authority.observe_fact(self.authority.next_sequence(), &entry) {
            Some(fact) => {
                self.advance(cx, draft, fact, |authority, record| authority.record_observe(record, entry))?;
            }
            None => self.authority.record_note(&mut draft.record, entry),
        }
        Ok(())
    }

    fn sweep(&mut self, cx: &mut Context<'_>, draft: &mut Draft) -> Done {
        if self.authority.run().is_some() && !self.authority.is_over() {
            self.check_stuck(cx, draft)?;
            self.authority.offer_all(&mut draft.record, &self.run_input);
        }
        Ok(Vec::new())
    }

    fn reminded(&mut self, cx: &mut Context<'_>, name: &str) -> Result<Decision, Stop> {
        let mut draft = Draft::new(cx.now);
        self.prepare(cx, &mut draft)?;
        draft.fired = match name {
            WAKE => Fired::Wake,
            STUCK => Fired::Stuck,
            _ => Fired::Unknown,
        };
        if draft.fired == Fired::Stuck && self.authority.run().is_some() && !self.authority.is_over() {
            self.check_stuck(cx, &mut draft)?;
        }
        if draft.fired == Fired::Unknown {
            return Ok(self.forget_reminder(draft, name));
        }
        Ok(self.finish(draft, Vec::new()))
    }

    /// The owner is new: what lives in memory only is told again. Changes no row.
    fn wake(&mut self) -> Decision {
        let mut draft = Draft::new(grain_contract::Timestamp::default());
        if !self.authority.is_over() {
            self.authority.offer_all(&mut draft.record, &self.run_input);
        }
        let mut effects = draft.record.effects;
        if effects.is_empty() {
            effects.push(Effect::Deactivate);
        }
        Decision::Commit(Turn { effects, ..Turn::default() })
    }

    /// The answer to a call that came too late, in the words of its reply.
    fn refusal_reply(&self, method: Method, body: &[u8], rejection: &Rejection) -> Vec<u8> {
        match method {
            methods::REPORT => {
                let report = calls::ReportCall::decode(body).unwrap_or_default().report.unwrap_or_default();
                v1::ReportResult {
                    attempt_id: report.attempt_id,
                    accepted: false,
                    code: rejection.code.as_str().into(),
                    message: rejection.message.clone(),
                    retry: rejection.code.is_retryable(),
                }
                .encode_to_vec()
            }
            methods::DECIDE => {
                let id = v1::DecideApprovalRequest::decode(body).unwrap_or_default().approval_id;
                self.authority.approval(&id).map(|approval| approval.encode_to_vec()).unwrap_or_default()
            }
            methods::CANCEL => self.view().map(|run| run.encode_to_vec()).unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

/// The reply, or why not.
type Done = Result<Vec<u8>, Stop>;

/// The observations of a report, in the words of a worker that tells them by themselves.
fn seen_during(report: &mut v1::Report) -> Result<Vec<v1::Observe>, Rejection> {
    let found = report.observations.len();
    if found > OBSERVATIONS_PER_REPORT_MAX {
        let message = format!("Expected at most {OBSERVATIONS_PER_REPORT_MAX} observations, but found {found}.");
        return Err(Rejection::new(Code::TooLarge, message).at("report.observations"));
    }
    let seen = std::mem::take(&mut report.observations).into_iter().map(|observation| v1::Observe {
        run_id: report.run_id.clone(),
        attempt_id: report.attempt_id.clone(),
        lease_token: report.lease_token.clone(),
        kind: observation.kind,
        value: observation.value,
        by: String::new(),
    });
    Ok(seen.collect())
}
