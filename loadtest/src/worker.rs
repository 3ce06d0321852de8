//! The echoing worker: gives every input back as output, at once, as cheaply as it can.
//!
//! It keeps the real contract all the same: outcomes stay in hand until the server has taken them, and after a loss of the
//! connection it says what it holds and reports again.

use crate::args::WorkerArgs;
use crate::server_link::endpoint;
use granary_proto::v1::{self, server_message::Message as FromServer, worker_message::Message as ToServer};
use std::collections::HashMap;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

const RECONNECT: Duration = Duration::from_millis(50);
/// Before an outcome that the server could not take is offered again.
const REPORT_AGAIN: Duration = Duration::from_millis(100);
/// Messages to the server that are not yet on the wire.
const OUTGOING: usize = 64;

struct Echo {
    worker_id: String,
    queue: String,
    capacity: u32,
    /// Done, and not yet taken by the server.
    unreported: HashMap<String, v1::Report>,
}

/// Works until standard input closes: the parent holds its other end, so the worker never outlives it.
pub async fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    let channels = args.server.iter().map(|url| session_channel(url)).collect::<anyhow::Result<Vec<_>>>()?;
    let sessions = u32::try_from(channels.len())?;
    // One a server, so that work and the way to it are spread; each goes to the next server when it loses its own.
    let work = (0..channels.len()).map(|first| {
        let mut echo = Echo {
            worker_id: Uuid::new_v4().to_string(),
            queue: args.queue.clone(),
            capacity: (args.capacity / sessions).max(1),
            unreported: HashMap::new(),
        };
        let channels = channels.clone();
        async move {
            for channel in channels.iter().cycle().skip(first) {
                // Whatever ended the session, the answer is to open the next one.
                let _ = echo.session(channel.clone()).await;
                tokio::time::sleep(RECONNECT).await;
            }
        }
    });
    tokio::select! {
        _ = futures::future::join_all(work) => {}
        _ = parent_is_gone() => {}
    }
    Ok(())
}

/// A silo that has nothing to do says nothing, and so does a frozen one: they are told apart by pings.
fn session_channel(url: &str) -> anyhow::Result<tonic::transport::Channel> {
    Ok(endpoint(url)?.keep_alive_while_idle(true).connect_lazy())
}

async fn parent_is_gone() {
    let mut byte = [0; 1];
    while matches!(tokio::io::stdin().read(&mut byte).await, Ok(1..)) {}
}

/// Rises with each stream, also over restarts of this process.
fn session_number() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Echo {
    async fn session(&mut self, channel: tonic::transport::Channel) -> Result<(), tonic::Status> {
        let (requests, outgoing) = mpsc::channel(OUTGOING);
        let gone = |_| tonic::Status::unavailable("the stream is closed");
        let hello = v1::Hello {
            worker_id: self.worker_id.clone(),
            queues: vec![self.queue.clone()],
            capacity: self.capacity,
            held: self.unreported.values().map(held).collect(),
            session: session_number(),
        };
        requests.send(message(ToServer::Hello(hello))).await.map_err(gone)?;
        let mut client = v1::workers_client::WorkersClient::new(channel)
            .max_decoding_message_size(grain_contract::limits::MESSAGE_BYTES_MAX);
        let mut stream = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        if !self.unreported.is_empty() {
            requests.send(self.reports_again()).await.map_err(gone)?;
        }
        let mut renew = tokio::time::interval(Duration::from_millis(grain_contract::limits::LEASE_RENEW_MS));
        let mut again: Option<tokio::time::Instant> = None;
        loop {
            let answer = tokio::select! {
                message = stream.message() => match message?.and_then(|m| m.message) {
                    Some(FromServer::Assignments(work)) => Some(self.echo(work)),
                    Some(FromServer::ReportResults(results)) => {
                        if self.settle(results) {
                            again.get_or_insert_with(|| tokio::time::Instant::now() + REPORT_AGAIN);
                        }
                        None
                    }
                    Some(FromServer::RenewResult(renewed)) => {
                        renewed.lost.iter().for_each(|id| { self.unreported.remove(id); });
                        None
                    }
                    // There is nothing to stop: an echo is done when it is read.
                    Some(FromServer::Welcome(_) | FromServer::Interrupt(_)) => None,
                    None => return Ok(()),
                },
                _ = renew.tick() => (!self.unreported.is_empty()).then(|| {
                    message(ToServer::Renew(v1::Renew { attempt_ids: self.unreported.keys().cloned().collect() }))
                }),
                () = sleep_until(again) => {
                    again = None;
                    (!self.unreported.is_empty()).then(|| self.reports_again())
                }
            };
            if let Some(answer) = answer {
                requests.send(answer).await.map_err(gone)?;
            }
        }
    }

    /// All outcomes of one message in one message.
    fn echo(&mut self, work: v1::Assignments) -> v1::WorkerMessage {
        let reports = work.assignments.into_iter().map(|assignment| v1::Report {
            attempt_id: assignment.attempt_id,
            run_id: assignment.run_id,
            lease_token: assignment.lease_token,
            outcome: "Succeeded".to_owned(),
            output: assignment.input,
            ..Default::default()
        });
        let reports: Vec<v1::Report> = reports.collect();
        self.unreported.extend(reports.iter().map(|report| (report.attempt_id.clone(), report.clone())));
        message(ToServer::Reports(v1::Reports { reports }))
    }

    fn reports_again(&self) -> v1::WorkerMessage {
        message(ToServer::Reports(v1::Reports { reports: self.unreported.values().cloned().collect() }))
    }

    /// True if some outcome has to be offered again.
    fn settle(&mut self, results: v1::ReportResults) -> bool {
        let mut again = false;
        for result in results.results {
            if result.retry && !result.accepted {
                again = true;
            } else {
                self.unreported.remove(&result.attempt_id);
            }
        }
        again
    }
}

fn held(report: &v1::Report) -> v1::Held {
    v1::Held {
        attempt_id: report.attempt_id.clone(),
        run_id: report.run_id.clone(),
        lease_token: report.lease_token.clone(),
    }
}

fn message(inner: ToServer) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(inner) }
}

async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
