//! `granary.v1.Workers`: one stream a worker.
//!
//! What is ready is sent together: assignments in one message, results of reports in one message. Reports run side by side,
//! up to a bound; beyond it the stream is not read on, so that HTTP/2 holds the worker back.

use super::caller;
use super::status::status;
use crate::api::Api;
use crate::tenant::Caller;
use cluster::{ToWorker, WorkerSession};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use grain_contract::limits;
use granary_proto::v1;
use granary_proto::v1::server_message::Message as Out;
use granary_proto::v1::worker_message::Message as In;
use prost::Message as _;
use report::Done;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

mod hello;
mod report;

pub struct WorkerService(pub Api);

/// Reports of one worker that are being recorded.
const REPORTS_IN_PROGRESS_MAX: usize = 256;
/// Assignments in one message.
const ASSIGNMENTS_AT_ONCE: usize = 128;
/// Messages on their way to one worker.
const MESSAGES_MAX: usize = 16;
/// A worker says hello within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

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
    let hello = hello::checked(&caller, hello).map_err(status)?;
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

impl Session {
    async fn heard(&mut self, worker: &WorkerSession, message: v1::WorkerMessage) -> Result<(), Status> {
        match message.message {
            Some(In::Reports(reports)) => {
                for report in reports.reports {
                    if let Ok(attempt) = Uuid::try_parse(&report.attempt_id) {
                        worker.finished(attempt);
                    }
                    self.reports.push(Box::pin(report::record(
                        self.api.clone(),
                        self.caller.again(report::REPORT_MAX),
                        report,
                    )));
                }
                Ok(())
            }
            Some(In::Renew(renew)) => {
                let ids: Vec<Uuid> = renew.attempt_ids.iter().filter_map(|id| Uuid::try_parse(id).ok()).collect();
                let lost = worker.renew(&ids).iter().map(Uuid::to_string).collect();
                self.say(Out::RenewResult(v1::RenewResult { lost })).await
            }
            Some(In::Observe(observe)) => {
                self.reports.push(Box::pin(report::observed(
                    self.api.clone(),
                    self.caller.again(report::REPORT_MAX),
                    observe,
                )));
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
