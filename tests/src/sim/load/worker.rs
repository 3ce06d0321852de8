//! A worker: a session at some node, attempts in hand, reports by way of any node.
//!
//! It counts its own right to work more strictly than the silo does: from when it *asked* for the renewal, and a bit less than
//! a lease. So by its account a right ends before the silo may give the attempt to somebody else, whatever the clocks do
//! within their bounds.

use super::{LEASE, RENEW, Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::court::Sight;
use crate::sim::doors::{Door, Trouble};
use cluster::{HeldAttempt, ToWorker, WorkerHello, WorkerSession};
use grain_contract::{GrainId, TenantId};
use grains::kinds::methods::run;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use uuid::Uuid;

/// Of a lease, in percent: how long a right lasts by the worker's account from the renewal it asked for, and from when it was
/// handed the attempt (which may have been on the way for a while).
const RENEWED: u32 = 90;
const HANDED: u32 = 40;
const REPORT_WITHIN: Duration = Duration::from_secs(3);

pub struct Worker {
    pub yard: Yard,
    pub chance: Chance,
    pub tenant: &'static str,
    pub name: String,
}

/// What a session's node is asked.
enum Tell {
    Renew(Vec<Uuid>, oneshot::Sender<Vec<Uuid>>),
    Finished(Uuid),
    Release(Uuid),
}

struct Held {
    grain: GrainId,
    token: [u8; 16],
    work: AbortHandle,
}

type Book = Arc<Mutex<BTreeMap<Uuid, Held>>>;

fn lock(book: &Book) -> MutexGuard<'_, BTreeMap<Uuid, Held>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life of a worker: what a dead one held is forgotten.
struct Life {
    worker: String,
    book: Book,
    sessions: u64,
}

impl Worker {
    pub async fn run(mut self) {
        for life in 0.. {
            let worker = format!("{}-{life}", self.name);
            let mut life = Life { worker, book: Book::default(), sessions: 0 };
            while self.session(&mut life).await {
                pause(&mut self.chance, 10..400).await;
            }
            for (attempt, held) in std::mem::take(&mut *lock(&life.book)) {
                held.work.abort();
                self.yard.court.see(Sight::LetGo { worker: life.worker.clone(), attempt });
            }
            pause(&mut self.chance, 100..3_000).await;
        }
    }

    /// One session; false if the worker dies with it.
    async fn session(&mut self, life: &mut Life) -> bool {
        let Some(door) = self.yard.doors.any(&mut self.chance) else { return true };
        life.sessions += 1;
        self.yard.trace.note(format_args!("{} opens session {} at {}", life.worker, life.sessions, door.slot));
        let held = lock(&life.book)
            .iter()
            .map(|(attempt, held)| HeldAttempt { attempt: *attempt, grain: held.grain.clone(), token: held.token })
            .collect();
        let hello = WorkerHello {
            worker_id: life.worker.clone(),
            tenant: self.tenant.into(),
            queues: ["tool:anvil", "agent:clerk", "tool:doom"].map(Into::into).to_vec(),
            capacity: 3,
            held,
            session: life.sessions,
        };
        let (tell, mut told, asks) = open(&door, hello);
        let ends = self.chance.between(2_000..20_000);
        let (dies, breaks) = (self.chance.permille(200), self.chance.permille(300));
        let until = tokio::time::Instant::now() + Duration::from_millis(ends);
        let mut renew = tokio::time::interval(RENEW);
        loop {
            tokio::select! {
                message = told.recv() => match message {
                    Some(message) => self.heard(life, message, &asks),
                    None => return true,
                },
                _ = renew.tick() => self.renew(life, &asks),
                () = tokio::time::sleep_until(until), if self.yard.is_working() && (dies || breaks) => {
                    drop(tell);
                    return !dies;
                }
            }
        }
    }

    fn held(&self, life: &Life, attempt: Uuid, since_us: u64, percent: u32) {
        let until_us = since_us + (LEASE * percent / 100).as_micros() as u64;
        self.yard.court.see(Sight::Held { worker: life.worker.clone(), attempt, until_us });
    }

    fn heard(&mut self, life: &Life, message: ToWorker, asks: &mpsc::UnboundedSender<Tell>) {
        match message {
            ToWorker::Assign { grain, item, lease, .. } => {
                let Ok(mut assignment) = v1::Assignment::decode(&*item.body) else {
                    return self.yard.court.complain("an assignment does not decode");
                };
                assignment.lease_token = lease.token.to_vec();
                let (worker, at_us) = (life.worker.clone(), self.yard.now_us());
                let assignment = Arc::new(assignment);
                self.yard.court.see(Sight::Assigned {
                    worker,
                    tenant: TenantId::new(self.tenant),
                    at_us,
                    assignment: assignment.clone(),
                });
                self.held(life, item.attempt, at_us, HANDED);
                let task = Task {
                    yard: self.yard.clone(),
                    chance: self.chance.fork(),
                    worker: life.worker.clone(),
                    attempt: item.attempt,
                    grain: grain.clone(),
                    assignment,
                    book: life.book.clone(),
                    asks: asks.clone(),
                };
                let work = tokio::spawn(task.work()).abort_handle();
                if let Some(before) = lock(&life.book).insert(item.attempt, Held { grain, token: lease.token, work }) {
                    before.work.abort();
                }
            }
            ToWorker::Interrupt { attempt, .. } => self.let_go(life, attempt),
        }
    }

    fn let_go(&self, life: &Life, attempt: Uuid) {
        if let Some(held) = lock(&life.book).remove(&attempt) {
            held.work.abort();
            self.yard.court.see(Sight::LetGo { worker: life.worker.clone(), attempt });
        }
    }

    fn renew(&mut self, life: &Life, asks: &mpsc::UnboundedSender<Tell>) {
        let attempts: Vec<Uuid> = lock(&life.book).keys().copied().collect();
        if attempts.is_empty() {
            return;
        }
        let asked_us = self.yard.now_us();
        let (tell, told) = oneshot::channel();
        if asks.send(Tell::Renew(attempts.clone(), tell)).is_err() {
            return;
        }
        let (yard, worker, book) = (self.yard.clone(), life.worker.clone(), life.book.clone());
        tokio::spawn(async move {
            let Ok(Ok(lost)) = tokio::time::timeout(RENEW, told).await else { return };
            for attempt in attempts {
                if lost.contains(&attempt) {
                    if let Some(held) = lock(&book).remove(&attempt) {
                        held.work.abort();
                        yard.court.see(Sight::LetGo { worker: worker.clone(), attempt });
                    }
                } else if lock(&book).contains_key(&attempt) {
                    let until_us = asked_us + (LEASE * RENEWED / 100).as_micros() as u64;
                    yard.court.see(Sight::Held { worker: worker.clone(), attempt, until_us });
                }
            }
        });
    }
}

/// Opens a session at a node. The session lives there, and ends when the first of the three is dropped or the node dies.
fn open(
    door: &Door,
    hello: WorkerHello,
) -> (oneshot::Sender<()>, mpsc::UnboundedReceiver<ToWorker>, mpsc::UnboundedSender<Tell>) {
    let (end, mut ended) = oneshot::channel();
    let (tell, told) = mpsc::unbounded_channel();
    let (asks, mut asked) = mpsc::unbounded_channel();
    door.spawn(|inside| async move {
        let Ok(mut session) = inside.silo.connect_worker(hello).await else { return };
        let mut messages = Vec::new();
        loop {
            tokio::select! {
                _ = &mut ended => return,
                found = session.recv_many(&mut messages, 16) => {
                    if found == 0 {
                        return;
                    }
                    for message in messages.drain(..) {
                        drop(tell.send(message));
                    }
                }
                ask = asked.recv() => match ask {
                    Some(ask) => answer(&session, ask),
                    None => return,
                },
            }
        }
    });
    (end, told, asks)
}

fn answer(session: &WorkerSession, ask: Tell) {
    match ask {
        Tell::Renew(attempts, tell) => drop(tell.send(session.renew(&attempts))),
        Tell::Finished(attempt) => session.finished(attempt),
        Tell::Release(attempt) => session.release(attempt),
    }
}

/// One attempt in hand.
struct Task {
    yard: Yard,
    chance: Chance,
    worker: String,
    attempt: Uuid,
    grain: GrainId,
    assignment: Arc<v1::Assignment>,
    book: Book,
    asks: mpsc::UnboundedSender<Tell>,
}

impl Task {
    async fn work(mut self) {
        let long = self.chance.permille(40);
        pause(&mut self.chance, if long { 2_000..9_000 } else { 1..300 }).await;
        let report = self.report();
        self.yard.court.see(Sight::LetGo { worker: self.worker.clone(), attempt: self.attempt });
        drop(self.asks.send(Tell::Finished(self.attempt)));
        let stammers = self.chance.permille(150);
        loop {
            let Some(door) = self.yard.doors.any(&mut self.chance) else {
                pause(&mut self.chance, 50..200).await;
                continue;
            };
            let call = calls::ReportCall { report: Some(report.clone()) }.encode_to_vec();
            match door.call(self.grain.clone(), run::REPORT, call.clone(), None, REPORT_WITHIN).await {
                Ok(reply) => {
                    let result = v1::ReportResult::decode(&*reply).unwrap_or_default();
                    if result.retry {
                        pause(&mut self.chance, 50..400).await;
                        continue;
                    }
                    self.yard.court.see(Sight::Reported {
                        worker: self.worker.clone(),
                        attempt: self.attempt,
                        outcome: report.outcome.clone(),
                        accepted: result.accepted,
                    });
                    if stammers {
                        drop(door.call(self.grain.clone(), run::REPORT, call, None, REPORT_WITHIN).await);
                    }
                    break;
                }
                Err(trouble @ Trouble::Refused(_)) if trouble.is_final() => break,
                Err(_) => pause(&mut self.chance, 50..400).await,
            }
        }
        drop(self.asks.send(Tell::Release(self.attempt)));
        lock(&self.book).remove(&self.attempt);
        self.yard.court.see(Sight::LetGo { worker: self.worker, attempt: self.attempt });
    }

    fn report(&mut self) -> v1::Report {
        let doomed = self.assignment.name == "doom";
        let fails = doomed || self.chance.permille(30);
        let input = self.assignment.input.as_ref().and_then(|json| json.value().ok()).unwrap_or_default();
        let round = input.get("round").and_then(serde_json::Value::as_u64).unwrap_or(0) + 1;
        let failure = v1::Failure { class: "tool".to_owned(), message: "it broke".to_owned() };
        v1::Report {
            attempt_id: self.assignment.attempt_id.clone(),
            run_id: self.assignment.run_id.clone(),
            lease_token: self.assignment.lease_token.clone(),
            outcome: if fails { "Failed" } else { "Succeeded" }.to_owned(),
            output: (!fails).then(|| Json::of(&serde_json::json!({ "round": round }))),
            failure: fails.then_some(failure),
            outcome_hash: String::new(),
            observations: Vec::new(),
        }
    }
}
