//! Follows the committed events of this node and counts them.

use super::Figures;
use super::census::definition_of;
use cluster::{DeliveredEvent, ReadEvents, ReadFrom, Scope, Silo};
use grain_contract::{GrainId, Rejection};
use granary_proto::v1;
use granary_proto::v1::event::Payload;
use opentelemetry::KeyValue;
use prost::Message as _;
use shard::{Host, ShardId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Steps whose StepReady was seen and whose end was not; beyond that their latency goes unrecorded.
const STEPS_MAX: usize = 200_000;
/// Runs whose definition is remembered; beyond that it is read from the rows.
const RUNS_MAX: usize = 100_000;
const PAUSE: Duration = Duration::from_secs(1);

struct Follower {
    figures: Arc<Figures>,
    host: Host,
    steps: HashMap<Uuid, Ready>,
    runs: HashMap<Uuid, Arc<str>>,
}

struct Ready {
    at_ms: i64,
    kind: String,
}

/// Runs until the silo ends. Reads from now on: what was committed before the node started was counted by its last life.
pub async fn follow(silo: Silo, host: Host, figures: Arc<Figures>) {
    let mut follower = Follower { figures, host, steps: HashMap::new(), runs: HashMap::new() };
    loop {
        if let Err(refusal) = follower.read(&silo).await {
            tracing::debug!(%refusal, "the reader of events for metrics begins anew");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Follower {
    async fn read(&mut self, silo: &Silo) -> Result<(), Rejection> {
        let request = ReadEvents { tenant: None, cursor_name: None, from: ReadFrom::Latest, scope: Scope::Led };
        let mut reader = silo.events(request).await?;
        loop {
            for row in reader.next_batch().await? {
                self.row(&row);
            }
        }
    }

    fn row(&mut self, row: &DeliveredEvent) {
        let Ok(batch) = v1::EventBatch::decode(row.body.as_slice()) else { return };
        for event in batch.events {
            let at_ms = event.at_ms;
            if let Some(payload) = event.payload {
                self.event(&row.grain, row.shard, at_ms, payload);
            }
        }
    }

    fn event(&mut self, grain: &GrainId, shard: u32, at_ms: i64, payload: Payload) {
        match payload {
            Payload::RunStarted(p) => {
                let definition = self.definition(grain, shard, &p.definition_release_id);
                self.count_run(grain, &definition, "started");
            }
            Payload::StepReady(p) => {
                if self.steps.len() < STEPS_MAX
                    && let Ok(id) = Uuid::try_parse(&p.step_run_id)
                {
                    // Of several attempts the first counts: the step was ready then.
                    self.steps.entry(id).or_insert(Ready { at_ms, kind: p.kind });
                }
            }
            Payload::StepRunStateChanged(p) => self.step_changed(grain, shard, at_ms, &p),
            Payload::CompensationStarted(_) => self.count_compensation(grain, shard, "started"),
            Payload::RunCompleted(_) => self.run_ended(grain, shard, "completed"),
            Payload::RunCancelled(_) => self.run_ended(grain, shard, "cancelled"),
            Payload::RunFailed(p) => {
                if p.compensated {
                    self.count_compensation(grain, shard, "compensated");
                } else if p.failure_class == "compensation" {
                    self.count_compensation(grain, shard, "failed");
                }
                self.run_ended(grain, shard, "failed");
            }
            Payload::DefinitionLoaded(_) | Payload::TimerFired(_) => {}
        }
    }

    fn step_changed(&mut self, grain: &GrainId, shard: u32, at_ms: i64, p: &v1::StepRunStateChanged) {
        if !matches!(p.to_state.as_str(), "Succeeded" | "Failed" | "Skipped" | "Cancelled") {
            return;
        }
        let Some(ready) = Uuid::try_parse(&p.step_run_id).ok().and_then(|id| self.steps.remove(&id)) else { return };
        let definition = self.definition(grain, shard, "");
        let labels = [
            KeyValue::new("tenant", grain.tenant.to_string()),
            KeyValue::new("definition", definition),
            KeyValue::new("stepKind", ready.kind),
        ];
        let seconds = at_ms.saturating_sub(ready.at_ms).max(0) as f64 / 1_000.0;
        self.figures.step_latency.record(seconds, &labels);
    }

    fn run_ended(&mut self, grain: &GrainId, shard: u32, what: &'static str) {
        let definition = self.definition(grain, shard, "");
        self.count_run(grain, &definition, what);
        if let Ok(id) = Uuid::try_parse(&grain.key) {
            self.runs.remove(&id);
        }
    }

    fn count_run(&self, grain: &GrainId, definition: &Arc<str>, what: &'static str) {
        let labels = [
            KeyValue::new("tenant", grain.tenant.to_string()),
            KeyValue::new("definition", Arc::clone(definition)),
            KeyValue::new("event", what),
        ];
        self.figures.runs.add(1, &labels);
    }

    fn count_compensation(&mut self, grain: &GrainId, shard: u32, outcome: &'static str) {
        let labels = [
            KeyValue::new("tenant", grain.tenant.to_string()),
            KeyValue::new("definition", self.definition(grain, shard, "")),
            KeyValue::new("outcome", outcome),
        ];
        self.figures.compensations.add(1, &labels);
    }

    fn definition(&mut self, grain: &GrainId, shard: u32, release_id: &str) -> Arc<str> {
        let id = Uuid::try_parse(&grain.key).ok();
        if let Some(known) = id.and_then(|id| self.runs.get(&id)) {
            return Arc::clone(known);
        }
        let found = match self.host.shard(ShardId(shard)) {
            Some(shard) => definition_of(&shard, grain, release_id),
            None => Arc::from(release_id),
        };
        if let Some(id) = id
            && self.runs.len() < RUNS_MAX
        {
            self.runs.insert(id, Arc::clone(&found));
        }
        found
    }
}
