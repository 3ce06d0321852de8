//! What workers report: outcomes and observations, on their way to the run's grain.

use crate::api::{Api, check, run_grain};
use crate::tenant::Caller;
use grain_contract::{Code, Rejection};
use grains::kinds::methods::run;
use granary_proto::{calls, v1};
use prost::Message as _;
use std::time::Duration;
use uuid::Uuid;

/// Recording one report; then the worker is told to try again.
pub(super) const REPORT_MAX: Duration = Duration::from_secs(15);

/// What came of something the worker told.
pub(super) struct Done {
    pub attempt: Option<Uuid>,
    /// `None` for observations, which are not answered.
    pub result: Option<v1::ReportResult>,
}

pub(super) async fn record(api: Api, caller: Caller, report: v1::Report) -> Done {
    let attempt_id = report.attempt_id.clone();
    let attempt = Uuid::try_parse(&attempt_id).ok();
    let result = match try_record(&api, &caller, report).await {
        Ok(result) => v1::ReportResult { attempt_id, ..result },
        Err(refusal) => v1::ReportResult {
            attempt_id,
            accepted: false,
            code: refusal.code.as_str().to_owned(),
            retry: refusal.code.is_retryable(),
            message: refusal.message,
        },
    };
    Done { attempt, result: Some(result) }
}

async fn try_record(api: &Api, caller: &Caller, mut report: v1::Report) -> Result<v1::ReportResult, Rejection> {
    let run_id = check::id(&report.run_id, "runId")?;
    check::id(&report.attempt_id, "attemptId")?;
    if let Err(refusal) = check::json(&mut report.output, "output") {
        report = unusable(report, &refusal);
    }
    if let Some(failure) = &mut report.failure
        && failure.message.len() > check::TEXT_BYTES_MAX
    {
        failure.message = failure.message.chars().take(check::TEXT_BYTES_MAX / 4).collect();
    }
    let call = calls::ReportCall { report: Some(report) };
    let grain = run_grain(&caller.tenant, run_id);
    api.call(caller, grain, run::REPORT, call.encode_to_vec()).await
}

/// An output that cannot be kept (no JSON, too large) would never become acceptable by being sent again, and a refused report
/// would hold the step until its lease ends: so the attempt has failed, and the step's failure policy decides.
fn unusable(report: v1::Report, refusal: &Rejection) -> v1::Report {
    v1::Report {
        outcome: "Failed".to_owned(),
        output: None,
        outcome_hash: String::new(),
        failure: Some(v1::Failure {
            class: "infrastructure".to_owned(),
            message: format!("The output cannot be kept. {}", refusal.message),
        }),
        ..report
    }
}

pub(super) async fn observed(api: Api, caller: Caller, mut observe: v1::Observe) -> Done {
    let attempt = Uuid::try_parse(&observe.attempt_id).ok();
    let done = async {
        let run_id = check::id(&observe.run_id, "runId")?;
        check::json(&mut observe.value, "value")?;
        let grain = run_grain(&caller.tenant, run_id);
        api.call::<()>(&caller, grain, run::OBSERVE, observe.encode_to_vec()).await
    };
    if let Err(refusal) = done.await {
        let level_is_ours = refusal.code == Code::Internal;
        if level_is_ours {
            tracing::error!(%refusal, "an observation was not recorded");
        } else {
            tracing::debug!(%refusal, "an observation was refused");
        }
    }
    Done { attempt, result: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FR-125: an output that cannot be kept fails the attempt; it does not leave it open.
    #[test]
    fn an_output_that_cannot_be_kept_is_a_failed_attempt() {
        let report = v1::Report { outcome: "Succeeded".into(), outcome_hash: "h".into(), ..Default::default() };
        let made = unusable(report, &Rejection::new(Code::TooLarge, "Expected at most 1 byte, but found 2."));
        assert_eq!((made.outcome.as_str(), made.output, made.outcome_hash.as_str()), ("Failed", None, ""));
        assert!(made.failure.is_some_and(|f| f.message.contains("found 2")));
    }
}
