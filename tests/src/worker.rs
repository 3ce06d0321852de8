//! A small worker of our own, so that the protocol is tested against something that is not our SDK.
//!
//! It answers each assignment with its input, remembers what it did, and goes on over broken streams, at the next node if there
//! are several: it reports again what was not acknowledged, and says in its hello what it still holds.

use crate::cluster::client::Clients;
use crate::cluster::pace::Pace;
use anyhow::{Result, ensure};
use granary_proto::v1::{self, server_message, worker_message};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Before an outcome that the node could not take is offered again.
const REPORT_AGAIN: Duration = Duration::from_millis(100);
/// A node that cannot take outcomes for so long (it is cut off) is left for the next.
const REFUSED_MAX: Duration = Duration::from_secs(3);
/// Between two sessions: nodes are killed and started, and asking more often gains nothing.
const RECONNECT: Duration = Duration::from_millis(50);
/// Half of the lease's own rhythm, so that a session that was lost for a while is no lost lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// A node that does not even greet is not waited for.
const WELCOME_MAX: Duration = Duration::from_secs(5);

/// One attempt as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub attempt_id: String,
    pub run_id: String,
    pub step_id: String,
    pub at: Instant,
}

#[derive(Default)]
struct Book {
    /// Attempts in hand: assignment and, once done, the report.
    held: HashMap<String, v1::Report>,
    seen: Vec<Seen>,
    /// How often each piece of work (idempotency key) was done.
    done: HashMap<String, u32>,
}

#[derive(Clone)]
pub struct Echo {
    book: Arc<Mutex<Book>>,
    stop: Arc<tokio::sync::Notify>,
    pace: Pace,
}

/// What follows from a message of the node.
#[derive(Default)]
struct Next {
    reports: Vec<v1::Report>,
    /// Some outcome could not be taken and is offered again later.
    refused: bool,
    /// Some outcome was taken.
    taken: bool,
}

impl Echo {
    /// Serves `queues` at `url` until [`Echo::stop`].
    ///
    /// # Errors
    /// The address is none.
    pub fn start(url: &str, queues: &[&str], capacity: u32) -> Result<Self> {
        Ok(Self::among(Clients::new(&[url.to_owned()])?, 0, queues, capacity, Pace::default()))
    }

    /// Serves `queues` at the `first` node, and at the next whenever a session ends; `pace` is told of each outcome that was taken.
    pub fn among(clients: Clients, first: usize, queues: &[&str], capacity: u32, pace: Pace) -> Self {
        let echo = Self { book: Arc::default(), stop: Arc::default(), pace };
        let worker_id = uuid::Uuid::new_v4().to_string();
        let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
        let inner = echo.clone();
        tokio::spawn(async move {
            for n in first.. {
                let session = inner.session(&clients, n, &worker_id, &queues, capacity);
                tokio::select! {
                    _ = inner.stop.notified() => return,
                    // Whatever ended the session, the answer is the next one.
                    _ = session => {}
                }
                tokio::time::sleep(RECONNECT).await;
            }
        });
        echo
    }

    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Work done more than once: idempotency key and how often.
    pub fn done_more_than_once(&self) -> Vec<(String, u32)> {
        let book = self.book.lock().expect("no panic while held");
        book.done.iter().filter(|(_, n)| **n > 1).map(|(k, n)| (k.clone(), *n)).collect()
    }

    pub fn done(&self) -> usize {
        self.book.lock().expect("no panic while held").done.len()
    }

    /// Every attempt that came, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.book.lock().expect("no panic while held").seen.clone()
    }

    async fn session(
        &self,
        clients: &Clients,
        n: usize,
        worker_id: &str,
        queues: &[String],
        capacity: u32,
    ) -> Result<()> {
        let mut client = v1::workers_client::WorkersClient::new(clients.channel(n))
            .max_decoding_message_size(grain_contract::limits::MESSAGE_BYTES_MAX);
        let (send, receive) = mpsc::channel(1_024);
        let (hello, reports) = self.hello(worker_id, queues, capacity);
        send.send(message(worker_message::Message::Hello(hello))).await?;
        let opening = client.session(ReceiverStream::new(receive));
        let mut answers = tokio::time::timeout(WELCOME_MAX, opening).await??.into_inner();
        if !reports.is_empty() {
            send.send(message(worker_message::Message::Reports(v1::Reports { reports }))).await?;
        }
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut again: Option<tokio::time::Instant> = None;
        let mut refused_since: Option<Instant> = None;
        loop {
            let reports = tokio::select! {
                _ = renew.tick() => {
                    let attempt_ids = self.book.lock().expect("no panic while held").held.keys().cloned().collect();
                    send.send(message(worker_message::Message::Renew(v1::Renew { attempt_ids }))).await?;
                    continue;
                }
                () = sleep_until(again) => {
                    again = None;
                    self.book.lock().expect("no panic while held").held.values().cloned().collect()
                }
                answer = answers.next() => {
                    let Some(answer) = answer else { return Ok(()) };
                    let next = self.take(answer?);
                    if next.refused {
                        again.get_or_insert(tokio::time::Instant::now() + REPORT_AGAIN);
                        let since = refused_since.get_or_insert_with(Instant::now);
                        ensure!(since.elapsed() < REFUSED_MAX, "this node takes no outcomes");
                    } else if next.taken {
                        refused_since = None;
                    }
                    next.reports
                }
            };
            if !reports.is_empty() {
                send.send(message(worker_message::Message::Reports(v1::Reports { reports }))).await?;
            }
        }
    }

    fn hello(&self, worker_id: &str, queues: &[String], capacity: u32) -> (v1::Hello, Vec<v1::Report>) {
        let book = self.book.lock().expect("no panic while held");
        let held = book
            .held
            .values()
            .map(|r| v1::Held {
                attempt_id: r.attempt_id.clone(),
                run_id: r.run_id.clone(),
                lease_token: r.lease_token.clone(),
            })
            .collect();
        let hello = v1::Hello { worker_id: worker_id.into(), queues: queues.to_vec(), capacity, held, session: 0 };
        (hello, book.held.values().cloned().collect())
    }

    fn take(&self, answer: v1::ServerMessage) -> Next {
        let mut book = self.book.lock().expect("no panic while held");
        let mut next = Next::default();
        match answer.message {
            Some(server_message::Message::Assignments(list)) => {
                for given in list.assignments {
                    book.seen.push(Seen {
                        attempt_id: given.attempt_id.clone(),
                        run_id: given.run_id.clone(),
                        step_id: given.step_id,
                        at: Instant::now(),
                    });
                    *book.done.entry(given.idempotency_key).or_default() += 1;
                    let report = v1::Report {
                        attempt_id: given.attempt_id.clone(),
                        run_id: given.run_id,
                        lease_token: given.lease_token,
                        outcome: "Succeeded".into(),
                        output: given.input,
                        ..Default::default()
                    };
                    book.held.insert(given.attempt_id, report.clone());
                    next.reports.push(report);
                }
            }
            Some(server_message::Message::ReportResults(list)) => {
                for result in list.results {
                    if result.retry {
                        next.refused |= book.held.contains_key(&result.attempt_id);
                    } else {
                        book.held.remove(&result.attempt_id);
                        next.taken = true;
                        self.pace.sign();
                    }
                }
            }
            Some(server_message::Message::RenewResult(result)) => {
                for attempt in result.lost {
                    book.held.remove(&attempt);
                }
            }
            _ => {}
        }
        next
    }
}

/// A worker without places says hello at one node and leaves.
///
/// # Errors
/// The node's no.
pub async fn knock(clients: &Clients, node: usize) -> Result<(), tonic::Status> {
    let mut client = v1::workers_client::WorkersClient::new(clients.channel(node));
    let worker_id = uuid::Uuid::new_v4().to_string();
    let queues = vec!["tool:knock".to_owned()];
    let hello = v1::Hello { worker_id, queues, capacity: 1, held: Vec::new(), session: 0 };
    // Kept until the answer has come: its end is the end of the session.
    let (send, receive) = mpsc::channel(1);
    let said = send.send(message(worker_message::Message::Hello(hello))).await;
    said.map_err(|_| tonic::Status::cancelled("nobody listens"))?;
    let opening = async { client.session(ReceiverStream::new(receive)).await?.into_inner().message().await };
    let answer = tokio::time::timeout(WELCOME_MAX, opening).await;
    answer.map_err(|_| tonic::Status::deadline_exceeded("no answer to a hello"))?.map(drop)
}

async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn message(message: worker_message::Message) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(message) }
}
