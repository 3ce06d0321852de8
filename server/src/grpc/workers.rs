//! `granary.v1.Workers`: one stream a worker.
//!
//! What is ready is sent together: assignments in one message, results of reports in one message. Reports run side by side,
//! up to a bound; beyond it the stream is not read on, so that HTTP/2 holds the worker back.

use super::caller;
use super::status::status;
use crate::api::{Api, check};
use crate::tenant::Caller;
use cluster::{HeldAttempt, ToWorker, WorkerHello, WorkerSession};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use grain_contract::{Code, QueueName, Rejection, limits};
use grains::kinds::methods::run;
use granary_proto::v1::server_message::Message as Out;
use granary_proto::v1::worker_message::Message as In;
use granary_proto::{calls, v1};
use prost::Message as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

pub struct WorkerService(pub Api);

/// Reports of one worker that are being recorded.
const REPORTS_IN_PROGRESS_MAX: usize = 256;
/// Assignments in one message.
const ASSIGNMENTS_AT_ONCE: usize = 128;
/// Messages on their way to one worker.
const MESSAGES_MAX: usize = 16;
const QUEUES_MAX: usize = 256;
const CAPACITY_MAX: u32 = 100_000;
const HELD_MAX: usize = 100_000;
/// A worker says hello within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// Recording one report; then the worker is told to try again.
const REPORT_MAX: Duration = Duration::from_secs(15);

#[tonic::async_trait]
impl v1::workers_server::Workers for WorkerService {
    type SessionStream = BoxStream<'static, Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let caller = caller(&self.0, &request)?;
        let place = self.0.session_place().map_err(status)?;
        let api = self.0.clone();
        let (tell, messages) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = serve(api, caller, request.into_inner(), tell.clone()).await {
                let _ = tell.send(Err(why)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

type Tell = mpsc::Sender<Result<v1::ServerMessage, Status>>;

async fn serve(api: Api, caller: Caller, mut stream: Streaming<v1::WorkerMessage>, tell: Tell) -> Result<(), Status> {
    let first = tokio::time::timeout(FIRST_MESSAGE, stream.message());
    let first =
        first.await.map_err(|_| Status::deadline_exceeded("Expected a hello within 10 s, but none came."))??;
    let Some(In::Hello(hello)) = first.and_then(|m| m.message) else {
        return Err(Status::invalid_argument("Expected a hello as the first message, but found another."));
    };
    let hello = checked(&caller, hello).map_err(status)?;
    let mut worker = api.silo().connect_worker(hello).await.map_err(status)?;
    if send(&tell, Out::Welcome(welcome(&api))).await.is_err() {
        return Ok(());
    }
    let mut session = Session { api, caller, tell, reports: FuturesUnordered::new() };
    let mut assigned = Vec::with_capacity(ASSIGNMENTS_AT_ONCE);
    loop {
        let room = session.reports.len() < REPORTS_IN_PROGRESS_MAX;
        tokio::select! {
            message = stream.message(), if room => match message? {
                Some(message) => session.heard(&worker, message).await?,
                // The worker ends the session. What it reported is recorded all the same; it asks again when it is back.
                None => return session.finish(&worker).await,
            },
            Some(done) = session.reports.next() => session.reported(&worker, done).await?,
            found = worker.recv_many(&mut assigned, ASSIGNMENTS_AT_ONCE) => {
                if found == 0 {
                    session.finish(&worker).await?;
                    return Err(Status::unavailable(
                        "Expected this to be the worker's only session on a running silo, but it is not any more.",
                    ));
                }
                session.tell_worker(&mut assigned).await?;
            }
            () = session.tell.closed() => return session.finish(&worker).await,
        }
    }
}

struct Session {
    api: Api,
    caller: Caller,
    tell: Tell,
    reports: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// What came of something the worker told.
struct Done {
    attempt: Option<Uuid>,
    /// `None` for observations, which are not answered.
    result: Option<v1::ReportResult>,
}

impl Session {
    async fn heard(&mut self, worker: &WorkerSession, message: v1::WorkerMessage) -> Result<(), Status> {
        match message.message {
            Some(In::Reports(reports)) => {
                for report in reports.reports {
                    if let Ok(attempt) = Uuid::try_parse(&report.attempt_id) {
                        worker.finished(attempt);
                    }
                    self.reports.push(Box::pin(record(self.api.clone(), self.caller.again(REPORT_MAX), report)));
                }
                Ok(())
            }
            Some(In::Renew(renew)) => {
                let ids: Vec<Uuid> = renew.attempt_ids.iter().filter_map(|id| Uuid::try_parse(id).ok()).collect();
                let lost = worker.renew(&ids).iter().map(Uuid::to_string).collect();
                self.say(Out::RenewResult(v1::RenewResult { lost })).await
            }
            Some(In::Observe(observe)) => {
                self.reports.push(Box::pin(observed(self.api.clone(), self.caller.again(REPORT_MAX), observe)));
                Ok(())
            }
            Some(In::Drain(v1::Drain {})) => {
                worker.drain();
                Ok(())
            }
            Some(In::Hello(_)) => Err(Status::invalid_argument("Expected one hello a session, but found another.")),
            // A newer worker may say what this build does not know.
            None => Ok(()),
        }
    }

    /// Everything that is answered by now, in one message.
    async fn reported(&mut self, worker: &WorkerSession, first: Done) -> Result<(), Status> {
        let mut results = Vec::new();
        let mut next = Some(first);
        while let Some(done) = next {
            take(worker, done, &mut results);
            next = futures::FutureExt::now_or_never(self.reports.next()).flatten();
        }
        if results.is_empty() {
            return Ok(());
        }
        self.say(Out::ReportResults(v1::ReportResults { results })).await
    }

    async fn tell_worker(&mut self, what: &mut Vec<ToWorker>) -> Result<(), Status> {
        let mut assignments = Vec::with_capacity(what.len());
        let mut bytes = 0;
        for one in what.drain(..) {
            match one {
                ToWorker::Assign { item, lease, .. } => {
                    let mut assignment = v1::Assignment::decode(item.body.as_slice()).map_err(|e| {
                        Status::internal(format!("Expected an assignment, but it does not decode: {e}."))
                    })?;
                    assignment.lease_token = lease.token.to_vec();
                    bytes += item.body.len();
                    assignments.push(assignment);
                    if bytes > limits::MESSAGE_BYTES_MAX / 2 {
                        bytes = 0;
                        let full = std::mem::take(&mut assignments);
                        self.say(Out::Assignments(v1::Assignments { assignments: full })).await?;
                    }
                }
                ToWorker::Interrupt { attempt, reason } => {
                    let interrupt = v1::Interrupt { attempt_id: attempt.to_string(), reason };
                    // In order with what was assigned before it.
                    if !assignments.is_empty() {
                        let before = std::mem::take(&mut assignments);
                        self.say(Out::Assignments(v1::Assignments { assignments: before })).await?;
                    }
                    self.say(Out::Interrupt(interrupt)).await?;
                }
            }
        }
        if assignments.is_empty() {
            return Ok(());
        }
        self.say(Out::Assignments(v1::Assignments { assignments })).await
    }

    /// Records what was reported before the stream ended.
    async fn finish(mut self, worker: &WorkerSession) -> Result<(), Status> {
        let mut results = Vec::new();
        while let Some(done) = self.reports.next().await {
            take(worker, done, &mut results);
        }
        if !results.is_empty() {
            // It may still listen, having only closed its own half.
            let _ = send(&self.tell, Out::ReportResults(v1::ReportResults { results })).await;
        }
        Ok(())
    }

    async fn say(&mut self, message: Out) -> Result<(), Status> {
        send(&self.tell, message).await.map_err(|()| Status::cancelled("The worker is gone."))
    }
}

fn take(worker: &WorkerSession, done: Done, results: &mut Vec<v1::ReportResult>) {
    let Some(result) = done.result else { return };
    if let Some(attempt) = done.attempt
        && !result.retry
    {
        worker.release(attempt);
    }
    results.push(result);
}

async fn send(tell: &Tell, message: Out) -> Result<(), ()> {
    tell.send(Ok(v1::ServerMessage { message: Some(message) })).await.map_err(|_| ())
}

fn welcome(api: &Api) -> v1::Welcome {
    v1::Welcome {
        silo: api.live().get().name.clone(),
        lease_ms: u32::try_from(limits::LEASE_MS).unwrap_or(u32::MAX),
        renew_ms: u32::try_from(limits::LEASE_RENEW_MS).unwrap_or(u32::MAX),
    }
}

fn checked(caller: &Caller, hello: v1::Hello) -> Result<WorkerHello, Rejection> {
    let worker_id = check::id(&hello.worker_id, "workerId")?.to_string();
    if hello.queues.is_empty() || hello.queues.len() > QUEUES_MAX {
        let message = format!("Expected 1 to {QUEUES_MAX} queues, but found {}.", hello.queues.len());
        return Err(check::invalid("queues", message));
    }
    for queue in &hello.queues {
        check::name(queue, "queues")?;
        if !(queue.starts_with("agent:") || queue.starts_with("tool:")) {
            let message = format!("Expected agent:NAME or tool:NAME, but found {}.", check::shown(queue));
            return Err(check::invalid("queues", message));
        }
    }
    if hello.capacity == 0 || hello.capacity > CAPACITY_MAX {
        let message = format!("Expected a capacity of 1 to {CAPACITY_MAX}, but found {}.", hello.capacity);
        return Err(check::invalid("capacity", message));
    }
    if hello.held.len() > HELD_MAX {
        return Err(check::invalid(
            "held",
            format!("Expected at most {HELD_MAX} attempts, but found {}.", hello.held.len()),
        ));
    }
    let held = hello.held.iter().map(|held| {
        let run = check::id(&held.run_id, "held.runId")?;
        Ok(HeldAttempt {
            attempt: check::id(&held.attempt_id, "held.attemptId")?,
            grain: crate::api::run_grain(&caller.tenant, run),
            token: held.lease_token.as_slice().try_into().map_err(|_| {
                check::invalid("held.leaseToken", "Expected a token of 16 bytes, but found another length.")
            })?,
        })
    });
    Ok(WorkerHello {
        worker_id,
        tenant: caller.tenant.clone(),
        capacity: hello.capacity,
        held: held.collect::<Result<_, Rejection>>()?,
        queues: hello.queues.into_iter().map(QueueName::new).collect(),
    })
}

async fn record(api: Api, caller: Caller, report: v1::Report) -> Done {
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
    let grain = crate::api::run_grain(&caller.tenant, run_id);
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

async fn observed(api: Api, caller: Caller, mut observe: v1::Observe) -> Done {
    let attempt = Uuid::try_parse(&observe.attempt_id).ok();
    let done = async {
        let run_id = check::id(&observe.run_id, "runId")?;
        check::json(&mut observe.value, "value")?;
        let grain = crate::api::run_grain(&caller.tenant, run_id);
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

    fn hello() -> v1::Hello {
        v1::Hello {
            worker_id: Uuid::from_u128(1).to_string(),
            queues: vec!["tool:echo".into()],
            capacity: 4,
            held: vec![v1::Held {
                attempt_id: Uuid::from_u128(2).to_string(),
                run_id: Uuid::from_u128(3).to_string(),
                lease_token: vec![7; 16],
            }],
        }
    }

    fn caller() -> Caller {
        Caller { tenant: "acme".into(), by: "test".into(), deadline: tokio::time::Instant::now() }
    }

    /// [C3]
    #[test]
    fn a_hello_is_checked_field_by_field() {
        let good = checked(&caller(), hello()).expect("good");
        assert_eq!(good.held[0].grain.tenant, "acme".into(), "what is held is the caller's tenant's");
        let cases: [(&str, fn(&mut v1::Hello)); 8] = [
            ("workerId", |h| h.worker_id = "me".into()),
            ("queues", |h| h.queues.clear()),
            ("queues", |h| h.queues = vec!["echo".into()]),
            ("capacity", |h| h.capacity = 0),
            ("capacity", |h| h.capacity = u32::MAX),
            ("held.runId", |h| h.held[0].run_id.clear()),
            ("held.attemptId", |h| h.held[0].attempt_id = "7".into()),
            ("held.leaseToken", |h| h.held[0].lease_token.clear()),
        ];
        for (field, spoil) in cases {
            let mut bad = hello();
            spoil(&mut bad);
            let refusal = checked(&caller(), bad).expect_err(field);
            assert_eq!((refusal.code, refusal.field.as_str()), (Code::Invalid, field));
        }
    }

    /// FR-125: an output that cannot be kept fails the attempt; it does not leave it open.
    #[test]
    fn an_output_that_cannot_be_kept_is_a_failed_attempt() {
        let report = v1::Report { outcome: "Succeeded".into(), outcome_hash: "h".into(), ..Default::default() };
        let made = unusable(report, &Rejection::new(Code::TooLarge, "Expected at most 1 byte, but found 2."));
        assert_eq!((made.outcome.as_str(), made.output, made.outcome_hash.as_str()), ("Failed", None, ""));
        assert!(made.failure.is_some_and(|f| f.message.contains("found 2")));
    }
}
