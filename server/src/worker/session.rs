//! One stream to a silo, from hello to its loss.
//!
//! The session owns no attempt: they live in the worker and outlive it. What finished is reported in batches, one message for
//! all that came together, and kept until the silo has answered.

use super::Error;
use super::runtime::{Worker, WorkerOptions};
use grain_contract::limits::{LEASE_RENEW_MS, MESSAGE_BYTES_MAX};
use granary_proto::v1::{self, server_message::Message as FromServer, worker_message::Message as ToServer};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

const TENANT_HEADER: &str = "x-granary-tenant";
/// Messages to the silo that are not yet on the wire.
const OUTGOING: usize = 64;
/// A silo that takes no message for so long is as good as gone.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Outcomes in one message.
const REPORTS_PER_MESSAGE: usize = 256;
/// Bytes of outcomes in one message; a single outcome always fits beside it.
const REPORT_BYTES_PER_MESSAGE: usize = MESSAGE_BYTES_MAX / 4;
/// Before an outcome that the silo could not take is offered again.
const REPORT_AGAIN: Duration = Duration::from_millis(200);
/// How long the silo may take to confirm that nothing more will come.
const DRAIN_CONFIRM: Duration = Duration::from_secs(2);

pub enum Ended {
    /// Everything is done and reported, as asked.
    Drained,
    /// To be opened again.
    Lost(String),
    /// It would be refused again.
    Refused(String),
}

pub struct Session<'a> {
    worker: &'a mut Worker,
    stop: &'a CancellationToken,
    drain_until: &'a mut Option<Instant>,
    /// Whether `Drain` was said on this stream, and then whether the silo has seen it.
    draining: Draining,
    /// To be offered again, and when.
    again: HashSet<String>,
    again_at: Option<Instant>,
    open: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Draining {
    No,
    Said { give_up: Instant },
    Seen,
}

/// What the loop does next.
enum Next {
    Message(Box<Result<Option<v1::ServerMessage>, Status>>),
    Finished,
    Renew,
    Again,
    Stop,
    DrainConfirmLate,
    DrainOver,
}

/// One a server; none is dialled before it is needed.
pub fn channels(options: &WorkerOptions) -> Result<Vec<Channel>, Error> {
    if options.servers.is_empty() {
        return Err(Error::NoAddress);
    }
    options.servers.iter().map(|server| channel(server)).collect()
}

fn channel(server: &str) -> Result<Channel, Error> {
    let address = |source| Error::Address { url: server.to_owned(), source };
    let endpoint = Endpoint::from_shared(server.to_owned()).map_err(address)?;
    // A silo whose packets vanish shall be noticed well before the leases run out.
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(3))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true)
        .connect_lazy())
}

impl<'a> Session<'a> {
    pub fn new(worker: &'a mut Worker, stop: &'a CancellationToken, drain_until: &'a mut Option<Instant>) -> Self {
        Self { worker, stop, drain_until, draining: Draining::No, again: HashSet::new(), again_at: None, open: false }
    }

    /// Gives how it ended, and whether the silo had welcomed the worker.
    pub async fn run(mut self, channel: Channel) -> (Ended, bool) {
        let ended = match self.talk(channel).await {
            Ok(ended) => ended,
            Err(status) if is_final(&status) && !self.open => Ended::Refused(status.message().to_owned()),
            Err(status) => Ended::Lost(format!("{:?}: {}", status.code(), status.message())),
        };
        (ended, self.open)
    }

    async fn talk(&mut self, channel: Channel) -> Result<Ended, Status> {
        let (requests, outgoing) = mpsc::channel(OUTGOING);
        let hello = self.hello();
        self.send(&requests, ToServer::Hello(hello)).await?;
        let mut stream = self.connect(channel, outgoing).await?;
        // The answer tells which of the attempts from before are still ours.
        self.send(&requests, ToServer::Renew(v1::Renew { attempt_ids: self.worker.held.ids() })).await?;
        let before = self.worker.held.reports();
        self.report(&requests, before).await?;
        let mut renew = every(LEASE_RENEW_MS);
        let mut finished = Vec::with_capacity(REPORTS_PER_MESSAGE);
        loop {
            if self.draining == Draining::Seen && self.worker.held.is_empty() {
                return Ok(Ended::Drained);
            }
            match self.next(&mut stream, &mut renew, &mut finished).await {
                Next::Message(message) => {
                    let Some(message) = (*message)?.and_then(|m| m.message) else {
                        return Ok(Ended::Lost("the silo closed the stream".to_owned()));
                    };
                    self.receive(message, &mut renew);
                }
                Next::Finished => {
                    let reports = finished.drain(..).filter_map(|report| self.finish(report)).collect();
                    self.report(&requests, reports).await?;
                }
                Next::Renew => {
                    self.send(&requests, ToServer::Renew(v1::Renew { attempt_ids: self.worker.held.ids() })).await?
                }
                Next::Again => {
                    self.again_at = None;
                    let reports = self.again.drain().filter_map(|id| self.worker.held.report_of(&id)).collect();
                    self.report(&requests, reports).await?;
                }
                Next::Stop => self.say_drain(&requests).await?,
                Next::DrainConfirmLate => self.draining = Draining::Seen,
                Next::DrainOver => {
                    // What still runs is dropped and not reported: nobody asked for its end, and the next life of this worker, or
                    // the end of the lease, will say what became of it.
                    return Ok(Ended::Drained);
                }
            }
        }
    }

    async fn next(
        &mut self,
        stream: &mut Streaming<v1::ServerMessage>,
        renew: &mut Interval,
        finished: &mut Vec<v1::Report>,
    ) -> Next {
        let give_up = if let Draining::Said { give_up } = self.draining { Some(give_up) } else { None };
        let drain_until = if self.draining == Draining::No { None } else { *self.drain_until };
        tokio::select! {
            message = stream.message() => Next::Message(Box::new(message)),
            _ = self.worker.finished.recv_many(finished, REPORTS_PER_MESSAGE) => Next::Finished,
            _ = renew.tick() => Next::Renew,
            () = until(self.again_at) => Next::Again,
            () = self.stop.cancelled(), if self.draining == Draining::No => Next::Stop,
            () = until(give_up) => Next::DrainConfirmLate,
            () = until(drain_until) => Next::DrainOver,
        }
    }

    fn hello(&mut self) -> v1::Hello {
        let mut queues: Vec<String> = self.worker.handlers.keys().cloned().collect();
        queues.sort_unstable();
        v1::Hello {
            worker_id: self.worker.worker_id.to_string(),
            queues,
            capacity: self.worker.options.capacity,
            held: self.worker.held.hello(),
            session: self.worker.next_session(),
        }
    }

    async fn connect(
        &self,
        channel: Channel,
        outgoing: mpsc::Receiver<v1::WorkerMessage>,
    ) -> Result<Streaming<v1::ServerMessage>, Status> {
        let mut client = v1::workers_client::WorkersClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        let tenant = MetadataValue::try_from(&self.worker.options.tenant)
            .map_err(|_| Status::invalid_argument("the tenant's name does not fit a header"))?;
        request.metadata_mut().insert(TENANT_HEADER, tenant);
        let opened = tokio::time::timeout(SEND_MAX, client.session(request)).await;
        Ok(opened.map_err(|_| Status::unavailable("the silo does not answer"))??.into_inner())
    }

    fn receive(&mut self, message: FromServer, renew: &mut Interval) {
        match message {
            FromServer::Welcome(welcome) => {
                self.open = true;
                tracing::info!(silo = %welcome.silo, worker = %self.worker.worker_id, "connected");
                if welcome.renew_ms > 0 {
                    *renew = every(u64::from(welcome.renew_ms));
                }
            }
            FromServer::Assignments(work) => {
                for assignment in work.assignments {
                    let interrupt = CancellationToken::new();
                    if self.worker.held.take(&assignment, interrupt.clone()) {
                        self.worker.begin(assignment, interrupt);
                    }
                }
            }
            FromServer::ReportResults(results) => results.results.into_iter().for_each(|result| self.settle(result)),
            FromServer::RenewResult(result) => self.renewed(result),
            FromServer::Interrupt(interrupt) => self.worker.held.interrupt(&interrupt.attempt_id),
        }
    }

    fn settle(&mut self, result: v1::ReportResult) {
        if !result.accepted && result.retry {
            self.again.insert(result.attempt_id);
            self.again_at.get_or_insert_with(|| Instant::now() + REPORT_AGAIN);
            return;
        }
        if !result.accepted {
            tracing::warn!(attempt = %result.attempt_id, code = %result.code, "the silo did not take an outcome: {}", result.message);
        }
        self.worker.held.forget(&result.attempt_id);
        self.forget_on_disk(&result.attempt_id);
    }

    fn renewed(&mut self, result: v1::RenewResult) {
        for attempt in result.lost {
            tracing::warn!(%attempt, "the lease is lost");
            self.worker.held.lose(&attempt);
            self.forget_on_disk(&attempt);
        }
        if matches!(self.draining, Draining::Said { .. }) {
            self.draining = Draining::Seen;
        }
        for (assignment, interrupt) in self.worker.held.resume() {
            tracing::info!(attempt = %assignment.attempt_id, step = %assignment.step_id, "goes on with an attempt of an earlier life");
            self.worker.begin(assignment, interrupt);
        }
    }

    fn finish(&mut self, report: v1::Report) -> Option<v1::Report> {
        let attempt = report.attempt_id.clone();
        let ours = self.worker.held.finish(report);
        if ours.is_none() {
            self.forget_on_disk(&attempt);
        }
        ours
    }

    fn forget_on_disk(&self, attempt: &str) {
        if let Some(journal) = &self.worker.journal
            && let Err(error) = journal.forget(attempt)
        {
            // It is reported once more in the next life, and refused as done.
            tracing::warn!(%attempt, "cannot remove the note of an attempt: {error}");
        }
    }

    /// Behind `Drain` goes a renewal: its answer comes after everything the silo had sent before it read `Drain`, so that no
    /// assignment can be on its way when the stream is closed.
    async fn say_drain(&mut self, requests: &mpsc::Sender<v1::WorkerMessage>) -> Result<(), Status> {
        self.send(requests, ToServer::Drain(v1::Drain {})).await?;
        self.send(requests, ToServer::Renew(v1::Renew { attempt_ids: self.worker.held.ids() })).await?;
        let now = Instant::now();
        self.drain_until.get_or_insert(now + self.worker.options.drain);
        self.draining = Draining::Said { give_up: now + DRAIN_CONFIRM };
        Ok(())
    }

    async fn report(&self, requests: &mpsc::Sender<v1::WorkerMessage>, reports: Vec<v1::Report>) -> Result<(), Status> {
        for reports in in_messages(reports) {
            self.send(requests, ToServer::Reports(v1::Reports { reports })).await?;
        }
        Ok(())
    }

    async fn send(&self, requests: &mpsc::Sender<v1::WorkerMessage>, message: ToServer) -> Result<(), Status> {
        match requests.send_timeout(v1::WorkerMessage { message: Some(message) }, SEND_MAX).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Status::unavailable("the silo takes no messages")),
        }
    }
}

/// Whether the silo would say the same again.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented
    )
}

/// As few messages as the bounds allow.
fn in_messages(reports: Vec<v1::Report>) -> Vec<Vec<v1::Report>> {
    let mut messages: Vec<Vec<v1::Report>> = Vec::new();
    let mut bytes = 0;
    for report in reports {
        let size = report.output.as_ref().map_or(0, |output| output.text.len());
        match messages.last_mut() {
            Some(last) if last.len() < REPORTS_PER_MESSAGE && bytes + size <= REPORT_BYTES_PER_MESSAGE => {
                bytes += size;
                last.push(report);
            }
            _ => {
                bytes = size;
                messages.push(vec![report]);
            }
        }
    }
    messages
}

fn every(milliseconds: u64) -> Interval {
    let period = Duration::from_millis(milliseconds);
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::wire::Json;

    #[test]
    fn reports_share_messages_up_to_the_bounds() {
        let report = |bytes: usize| v1::Report { output: Some(Json::new(vec![b' '; bytes])), ..Default::default() };
        let sizes = |reports: Vec<v1::Report>| in_messages(reports).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(Vec::new()), Vec::<usize>::new());
        assert_eq!(sizes((0..300).map(|_| report(10)).collect()), [256, 44]);
        assert_eq!(sizes(vec![report(REPORT_BYTES_PER_MESSAGE), report(1), report(1)]), [1, 2]);
    }
}
