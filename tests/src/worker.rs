//! A small worker of our own, so that the protocol is tested against something that is not our SDK.
//!
//! It answers each assignment with its input, remembers what it did, and goes on over broken streams: it reports again what was
//! not acknowledged, and says in its hello what it still holds.

use anyhow::Result;
use granary_proto::v1::{self, server_message, worker_message};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

#[derive(Default)]
struct Book {
    /// Attempts in hand: assignment and, once done, the report.
    held: HashMap<String, v1::Report>,
    /// How often each attempt was given to us.
    given: HashMap<String, u32>,
    /// How often each piece of work (idempotency key) was done.
    done: HashMap<String, u32>,
}

#[derive(Clone)]
pub struct Echo {
    book: Arc<Mutex<Book>>,
    stop: Arc<tokio::sync::Notify>,
}

impl Echo {
    /// Serves `queues` at `url` until [`Echo::stop`].
    pub fn start(url: String, queues: Vec<String>, capacity: u32) -> Self {
        let echo = Self { book: Arc::default(), stop: Arc::default() };
        let worker_id = uuid::Uuid::new_v4().to_string();
        let inner = echo.clone();
        tokio::spawn(async move {
            loop {
                let session = inner.session(&url, &worker_id, &queues, capacity);
                tokio::select! {
                    _ = inner.stop.notified() => return,
                    _ = session => {}
                }
                // The server is being killed and started; asking it more often than this gains nothing.
                tokio::time::sleep(Duration::from_millis(50)).await;
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

    async fn session(&self, url: &str, worker_id: &str, queues: &[String], capacity: u32) -> Result<()> {
        let channel = tonic::transport::Endpoint::from_shared(url.to_owned())?
            .connect_timeout(Duration::from_secs(2))
            .connect()
            .await?;
        let mut client = v1::workers_client::WorkersClient::new(channel);
        let (send, receive) = mpsc::channel(1_024);
        let (hello, reports) = self.hello(worker_id, queues, capacity);
        send.send(message(worker_message::Message::Hello(hello))).await?;
        let mut answers = client.session(ReceiverStream::new(receive)).await?.into_inner();
        if !reports.is_empty() {
            send.send(message(worker_message::Message::Reports(v1::Reports { reports }))).await?;
        }
        let mut renew = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                _ = renew.tick() => {
                    let attempt_ids = self.book.lock().expect("no panic while held").held.keys().cloned().collect();
                    send.send(message(worker_message::Message::Renew(v1::Renew { attempt_ids }))).await?;
                }
                answer = answers.next() => {
                    let Some(answer) = answer else { return Ok(()) };
                    let reports = self.take(answer?);
                    if !reports.is_empty() {
                        send.send(message(worker_message::Message::Reports(v1::Reports { reports }))).await?;
                    }
                }
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

    fn take(&self, answer: v1::ServerMessage) -> Vec<v1::Report> {
        let mut book = self.book.lock().expect("no panic while held");
        let mut reports = Vec::new();
        match answer.message {
            Some(server_message::Message::Assignments(list)) => {
                for given in list.assignments {
                    *book.given.entry(given.attempt_id.clone()).or_default() += 1;
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
                    reports.push(report);
                }
            }
            Some(server_message::Message::ReportResults(list)) => {
                for result in list.results {
                    if !result.retry {
                        book.held.remove(&result.attempt_id);
                    } else if let Some(report) = book.held.get(&result.attempt_id) {
                        reports.push(report.clone());
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
        reports
    }
}

fn message(message: worker_message::Message) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(message) }
}
