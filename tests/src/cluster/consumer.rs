//! A reader of all events with a durable named cursor, who goes to another node whenever the stream ends, and now and then by
//! itself.

use super::client::Clients;
use anyhow::Result;
use granary_proto::v1;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;

/// Between two subscriptions.
const PAUSE: Duration = Duration::from_millis(100);
/// After so long it says good-bye to a node that is well, to try the next.
const MOVE_EVERY: Duration = Duration::from_secs(7);
/// A node that takes the subscription but sends nothing while others would is left after this.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Faults remembered; more say nothing new.
const FAULTS_MAX: usize = 50;

/// What came of one run.
#[derive(Clone, Default, Debug)]
pub struct Heard {
    /// Event ids and types in the order of their numbers, from 1.
    pub events: Vec<(String, String)>,
    /// Deliveries of what was delivered before.
    pub again: u32,
}

#[derive(Default)]
struct Notes {
    runs: HashMap<String, Heard>,
    faults: Vec<String>,
    sessions: u32,
}

impl Notes {
    /// Holds order, gaps and repeats against what was heard before.
    fn hear(&mut self, run_id: &str, sequence: u64, id: &str, kind: &str) {
        let heard = self.runs.entry(run_id.to_owned()).or_default();
        let known = heard.events.len() as u64;
        let fault = if sequence == known + 1 {
            heard.events.push((id.to_owned(), kind.to_owned()));
            None
        } else if sequence > known + 1 {
            Some(format!("run {run_id}: event {sequence} ({kind}) came behind event {known}"))
        } else {
            heard.again += 1;
            let before = sequence.checked_sub(1).and_then(|at| heard.events.get(at as usize));
            (before != Some(&(id.to_owned(), kind.to_owned())))
                .then(|| format!("run {run_id}: event {sequence} was {before:?} and came again as {id} ({kind})"))
        };
        if let Some(fault) = fault.filter(|_| self.faults.len() < FAULTS_MAX) {
            self.faults.push(fault);
        }
    }
}

/// A consumer that reads in the background until it is dropped.
pub struct Consumer {
    notes: Arc<Mutex<Notes>>,
    work: JoinHandle<()>,
}

impl Consumer {
    /// Reads everything from the earliest event on, first from node `first`.
    pub fn start(clients: Clients, name: &str, first: usize) -> Self {
        Self::start_of(clients, None, name, first)
    }

    /// As [`Consumer::start`], of another tenant than ours.
    pub fn start_of(clients: Clients, tenant: Option<&'static str>, name: &str, first: usize) -> Self {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let (given, name) = (notes.clone(), name.to_owned());
        let work = tokio::spawn(async move {
            for n in first.. {
                // Whatever ended the stream, the answer is the next node.
                let _ = tokio::time::timeout(MOVE_EVERY, read(&clients, n, tenant, &name, &given)).await;
                lock(&given).sessions += 1;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { notes, work }
    }

    /// Whether the run's last event has come.
    pub fn has_end_of(&self, run_id: &str) -> bool {
        lock(&self.notes).runs.get(run_id).is_some_and(|heard| heard.events.iter().any(|(_, kind)| is_end(kind)))
    }

    pub fn heard_of(&self, run_id: &str) -> Heard {
        lock(&self.notes).runs.get(run_id).cloned().unwrap_or_default()
    }

    /// Runs of which anything was heard.
    pub fn runs(&self) -> usize {
        lock(&self.notes).runs.len()
    }

    /// Everything that was wrong with the order of what came, as sentences.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.notes).faults.clone()
    }

    /// Streams so far, and events that came more than once.
    pub fn figures(&self) -> (u32, u64) {
        let notes = lock(&self.notes);
        (notes.sessions, notes.runs.values().map(|heard| u64::from(heard.again)).sum())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.work.abort();
    }
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an event of this type is a run's last.
pub fn is_end(kind: &str) -> bool {
    matches!(kind.rsplit('.').next(), Some("workflow-run-completed" | "workflow-run-failed" | "workflow-run-cancelled"))
}

async fn read(
    clients: &Clients,
    n: usize,
    tenant: Option<&'static str>,
    name: &str,
    notes: &Mutex<Notes>,
) -> Result<()> {
    let (requests, outgoing) = mpsc::channel(16);
    let subscribe = v1::Subscribe { cursor_name: name.to_owned(), from: "earliest".to_owned(), ..Default::default() };
    let first = v1::subscribe_events_request::Request::Subscribe(subscribe);
    requests.send(v1::SubscribeEventsRequest { request: Some(first) }).await?;
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    if let Some(tenant) = tenant {
        request.metadata_mut().insert(granary::tenant::TENANT_HEADER, MetadataValue::from_static(tenant));
    }
    let mut stream = clients.engine(n).subscribe_events(request).await?.into_inner();
    while let Some(response) = tokio::time::timeout(SILENCE_MAX, stream.message()).await?? {
        {
            let mut notes = lock(notes);
            for event in response.events.iter().filter(|event| is_of_a_run(&event.r#type)) {
                let run_id = event.subject.rsplit('/').next().unwrap_or_default();
                notes.hear(run_id, event.sequence, &event.id, &event.r#type);
            }
        }
        let Some(last) = response.events.last() else { continue };
        let done = v1::subscribe_events_request::Request::Acknowledge(last.cursor.clone());
        requests.send(v1::SubscribeEventsRequest { request: Some(done) }).await?;
    }
    Ok(())
}

fn is_of_a_run(kind: &str) -> bool {
    kind.rsplit('.').next() != Some("workflow-definition-loaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_a_changed_repeat_are_faults_and_an_exact_repeat_is_none() {
        let mut notes = Notes::default();
        notes.hear("r", 1, "x", "t.workflow-run-started");
        notes.hear("r", 2, "y", "t.step-ready");
        notes.hear("r", 1, "x", "t.workflow-run-started");
        assert_eq!((notes.faults.len(), notes.runs["r"].again), (0, 1));
        notes.hear("r", 4, "z", "t.step-ready");
        assert_eq!(notes.faults, ["run r: event 4 (t.step-ready) came behind event 2"]);
        notes.hear("r", 2, "other", "t.step-ready");
        assert_eq!(notes.faults.len(), 2);
    }

    #[test]
    fn only_three_types_are_an_end() {
        assert!(is_end("a.b.v1.workflow-run-completed") && !is_end("a.b.v1.step-ready"));
    }
}
