//! What a test sees of the world: runs, graphs, journals, events, open work.

use crate::world::World;
use grain_contract::{GrainId, Rejection};
use grains::kinds::methods::run;
use granary_proto::{storage, v1};
use prost::Message as _;
use uuid::Uuid;

impl World {
    /// The attempt that is open for this step.
    pub fn attempt_of(&self, step: &str) -> Uuid {
        let mut found = self.work.iter().filter(|(_, w)| w.assignment.step_id == step).map(|(id, _)| *id);
        let id = found.next().unwrap_or_else(|| panic!("an open attempt of {step}; open are {:?}", self.open_steps()));
        assert_eq!(found.next(), None, "one attempt of {step}");
        id
    }

    pub fn open_steps(&self) -> Vec<String> {
        let mut steps: Vec<_> = self.work.values().map(|w| w.assignment.step_id.clone()).collect();
        steps.sort();
        steps
    }

    pub fn get(&mut self, run: &GrainId) -> Result<v1::Run, Rejection> {
        let request = v1::GetRunRequest { run_id: run.key.to_string() };
        self.call(run, run::GET, &request)
    }

    pub fn graph(&mut self, run: &GrainId) -> v1::RunGraph {
        let request = v1::GetRunGraphRequest { run_id: run.key.to_string(), ..Default::default() };
        self.call(run, run::GRAPH, &request).expect("a graph")
    }

    /// The journal, checked for gaps.
    pub fn journal(&self, run: &GrainId) -> Vec<v1::JournalEntry> {
        let rows = self.stored[run].rows.iter().filter(|(key, _)| key.table == run::table::JOURNAL);
        let mut entries = Vec::new();
        for (key, value) in rows {
            let row = storage::JournalRow::decode(value.as_slice()).expect("a journal row");
            let first = row.entries.first().map_or(0, |e| e.number);
            assert_eq!(key.key, first.to_be_bytes(), "the key is the first entry's number");
            entries.extend(row.entries);
        }
        let numbers: Vec<u64> = entries.iter().map(|e| e.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "the journal has no gap");
        let facts: Vec<u64> = entries.iter().map(|e| e.sequence).filter(|s| *s > 0).collect();
        assert_eq!(facts, (1..=facts.len() as u64).collect::<Vec<_>>(), "the facts have no gap");
        entries
    }

    /// Type and step of each journal entry.
    pub fn told(&self, run: &GrainId) -> Vec<String> {
        let line = |e: v1::JournalEntry| format!("{} {}{}", e.r#type, e.step_id, e.outcome).trim_end().to_owned();
        self.journal(run).into_iter().map(line).collect()
    }

    /// Short forms of the events of a run.
    pub fn published(&self, run: &GrainId) -> Vec<String> {
        self.events.iter().filter(|e| e.subject == *run.key).map(short).collect()
    }

    pub fn index_of(&self, name: &str) -> Vec<String> {
        self.index.keys().filter(|(index, _, _)| *index == name).map(|(_, _, id)| id.key.to_string()).collect()
    }
}

pub fn is_terminal(event: &v1::Event) -> bool {
    use v1::event::Payload::{RunCancelled, RunCompleted, RunFailed};
    matches!(event.payload, Some(RunCompleted(_) | RunFailed(_) | RunCancelled(_)))
}

fn short(event: &v1::Event) -> String {
    use v1::event::Payload;
    match event.payload.as_ref().expect("a payload") {
        Payload::DefinitionLoaded(e) => format!("loaded {}", e.release_id),
        Payload::RunStarted(_) => "started".into(),
        Payload::StepReady(e) if e.ask.is_empty() => format!("ready {} {}", e.step_id, e.attempt),
        Payload::StepReady(e) => format!("ask {} {} {}", e.step_id, e.ask, e.attempt),
        Payload::StepRunStateChanged(e) => format!("{} {}", e.step_id, e.to_state),
        Payload::TimerFired(_) => "timer".into(),
        Payload::CompensationStarted(e) => format!("compensating {}", e.entries),
        Payload::RunCompleted(_) => "completed".into(),
        Payload::RunFailed(e) => format!("failed {} {} {}", e.failed_step_id, e.failure_class, e.compensated),
        Payload::RunCancelled(e) => format!("cancelled {}", e.open_step_runs),
    }
}
