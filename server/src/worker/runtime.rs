//! The worker: it does attempts, and keeps a session with a silo as long as it lives.

use super::backoff::Backoff;
use super::handler::Handler;
use super::held::{HeldAttempts, Stage};
use super::journal::Journal;
use super::session::{self, Ended, Session};
use super::work::{Outcome, Work};
use super::{Error, orphans};
use futures::FutureExt;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long a handler that was interrupted, or whose time is over, may take to settle its affairs before it is dropped.
const SETTLE_GRACE: Duration = Duration::from_secs(5);
/// Outcomes on their way from the handlers to the session.
const FINISHED: usize = 256;

#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// e.g. `http://127.0.0.1:7420`; at least one. When a session is lost the next one is asked.
    pub servers: Vec<String>,
    pub tenant: String,
    /// Attempts held at once.
    pub capacity: u32,
    /// After the word to stop: how long the attempts in hand may take.
    pub drain: Duration,
}

pub struct Worker {
    pub(super) options: WorkerOptions,
    pub(super) handlers: HashMap<String, Arc<dyn Handler>>,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) worker_id: Uuid,
    last_session: u64,
    pub(super) held: HeldAttempts,
    pub(super) finished: mpsc::Receiver<v1::Report>,
    pub(super) tell_finished: mpsc::Sender<v1::Report>,
    /// Dropping it stops what runs.
    attempts: JoinSet<()>,
    /// A silo never gives more than the capacity; a faulty one shall not drown this machine.
    places: Arc<Semaphore>,
}

impl Worker {
    pub fn new(options: WorkerOptions) -> Self {
        let (tell_finished, finished) = mpsc::channel(FINISHED);
        let places = Arc::new(Semaphore::new(options.capacity as usize));
        Self {
            options,
            handlers: HashMap::new(),
            journal: None,
            worker_id: Uuid::new_v4(),
            last_session: 0,
            held: HeldAttempts::default(),
            finished,
            tell_finished,
            attempts: JoinSet::new(),
            places,
        }
    }

    /// Serves `queue`: `agent:NAME`, `tool:NAME` or `condition:NAME`.
    pub fn serve(self, queue: impl Into<String>, handler: impl Handler) -> Self {
        self.serve_shared(queue, Arc::new(handler))
    }

    pub fn serve_shared(mut self, queue: impl Into<String>, handler: Arc<dyn Handler>) -> Self {
        self.handlers.insert(queue.into(), handler);
        self
    }

    /// Remembers attempts over the death of this process.
    pub fn remember_in(mut self, journal: Journal) -> Self {
        self.worker_id = journal.worker_id();
        self.journal = Some(Arc::new(journal));
        self
    }

    /// The number of the next session: greater than all before it. The clock makes it so over restarts under the same name, in
    /// microseconds, since the silo's own numbers are milliseconds and must never pass it.
    pub(super) fn next_session(&mut self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let by_clock = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        self.last_session = by_clock.max(self.last_session.saturating_add(1));
        self.last_session
    }

    /// Works until `stop` is cancelled, then takes nothing new, finishes what it holds and reports it.
    ///
    /// # Errors
    /// A wrong address; a server that refuses this worker for good. A lost connection is no error: it is made again.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let channels = session::channels(&self.options)?;
        let mut silos = (0..channels.len()).cycle();
        // `channels` refuses to give none.
        let mut at = silos.next().unwrap_or_default();
        self.recall()?;
        let mut backoff = Backoff::new();
        let mut drain_until: Option<Instant> = None;
        loop {
            let (ended, was_open) = Session::new(&mut self, &stop, &mut drain_until).run(channels[at].clone()).await;
            match ended {
                Ended::Drained => return Ok(()),
                Ended::Refused(why) => return Err(Error::Refused(why)),
                Ended::Lost(why) => {
                    tracing::warn!(server = %self.options.servers[at], "no session with the silo: {why}")
                }
            }
            // It brings along what it holds, so any silo will do.
            at = silos.next().unwrap_or_default();
            if was_open {
                backoff.reset();
            }
            if stop.is_cancelled() {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + self.options.drain);
                if self.held.is_empty() || Instant::now() >= until {
                    return Ok(());
                }
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.pause(rand::random::<f64>())) => {}
                () = stop.cancelled(), if drain_until.is_none() => {}
            }
        }
    }

    /// Takes up what an earlier life left behind.
    fn recall(&mut self) -> Result<(), Error> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        let state = |source| Error::State { folder: "the worker's state folder".to_owned(), source };
        for remembered in journal.remembered().map_err(state)? {
            let assignment = remembered.assignment;
            let stage = match remembered.report {
                Some(report) => Stage::Done(Box::new(report)),
                None => {
                    // A command of the earlier life may still run; two of it at once would be worse than none.
                    orphans::stop(&assignment.attempt_id);
                    if self.may_repeat(&assignment) {
                        Stage::Resumable(Box::new(assignment.clone()))
                    } else {
                        let outcome = Outcome::Uncertain("the worker was killed while it did this".to_owned());
                        let report = report_of(&assignment, outcome);
                        journal.finish(&report).map_err(state)?;
                        Stage::Done(Box::new(report))
                    }
                }
            };
            self.held.put(&assignment, CancellationToken::new(), stage);
        }
        Ok(())
    }

    fn may_repeat(&self, assignment: &v1::Assignment) -> bool {
        assignment.action_class == "read" || self.handler_of(assignment).is_some_and(|handler| handler.is_idempotent())
    }

    fn handler_of(&self, assignment: &v1::Assignment) -> Option<&Arc<dyn Handler>> {
        // A compensation names only its tool or agent; the tool comes first, as in the definition.
        let kinds: &[&str] = match assignment.kind.as_str() {
            "Agent" => &["agent"],
            "Tool" => &["tool"],
            "Condition" => &["condition"],
            _ => &["tool", "agent"],
        };
        kinds.iter().find_map(|kind| self.handlers.get(&format!("{kind}:{}", assignment.name)))
    }

    pub(super) fn begin(&mut self, assignment: v1::Assignment, interrupt: CancellationToken) {
        while self.attempts.try_join_next().is_some() {}
        let handler = self.handler_of(&assignment).cloned();
        let (journal, tell, places) = (self.journal.clone(), self.tell_finished.clone(), self.places.clone());
        self.attempts.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            let report = attempt(handler, journal, assignment, interrupt).await;
            // If nobody listens the worker is gone, and with it whoever would report.
            let _ = tell.send(report).await;
        });
    }
}

/// From the first note on disk to the last.
async fn attempt(
    handler: Option<Arc<dyn Handler>>,
    journal: Option<Arc<Journal>>,
    assignment: v1::Assignment,
    interrupt: CancellationToken,
) -> v1::Report {
    let Some(handler) = handler else {
        let message = format!("Expected a name that this worker serves, but found {:?}.", assignment.name);
        return report_of(&assignment, Outcome::Failed { class: "infrastructure".to_owned(), message });
    };
    if let Some(journal) = &journal
        && let Err(error) = on_disk(journal, assignment.clone(), |journal, it| journal.begin(it)).await
    {
        let message = format!("the worker cannot note that it begins: {error}");
        return report_of(&assignment, Outcome::Failed { class: "infrastructure".to_owned(), message });
    }
    let work = Work::new(assignment.clone(), interrupt);
    let seen = work.seen();
    let outcome = outcome_of(handler, work).await;
    let report = v1::Report { observations: seen.take(), ..report_of(&assignment, outcome) };
    if let Some(journal) = &journal
        && let Err(error) = on_disk(journal, report.clone(), |journal, it| journal.finish(it)).await
    {
        // Reported all the same: the outcome is known now, and only a kill in the next moment would forget it.
        tracing::error!(attempt = %report.attempt_id, "the worker cannot note an outcome: {error}");
    }
    report
}

async fn on_disk<T: Send + 'static>(
    journal: &Arc<Journal>,
    value: T,
    write: impl FnOnce(&Journal, &T) -> std::io::Result<()> + Send + 'static,
) -> std::io::Result<()> {
    let journal = journal.clone();
    tokio::task::spawn_blocking(move || write(&journal, &value)).await.unwrap_or_else(|e| Err(std::io::Error::other(e)))
}

async fn outcome_of(handler: Arc<dyn Handler>, work: Work) -> Outcome {
    let doing = AssertUnwindSafe({
        let work = work.clone();
        async move { handler.handle(work).await }
    })
    .catch_unwind();
    let overtime = async {
        match work.timeout {
            // The handler's own bound comes first, since it says more.
            Some(timeout) => tokio::time::sleep(timeout.saturating_add(SETTLE_GRACE)).await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        done = doing => done.unwrap_or_else(|_| work.failed("the handler panicked")),
        () = overtime => Outcome::Failed { class: "timeout".to_owned(), message: "the handler did not end in time".to_owned() },
        () = async { work.interrupted().await; tokio::time::sleep(SETTLE_GRACE).await } => {
            Outcome::Cancelled("interrupted".to_owned())
        }
    };
    match outcome {
        Outcome::Succeeded(text) if text.len() > PAYLOAD_BYTES_MAX => {
            work.failed(format!("Expected at most {PAYLOAD_BYTES_MAX} bytes of output, but found {}.", text.len()))
        }
        outcome => outcome,
    }
}

fn report_of(assignment: &v1::Assignment, outcome: Outcome) -> v1::Report {
    outcome.report(assignment.attempt_id.clone(), assignment.run_id.clone(), assignment.lease_token.clone())
}
