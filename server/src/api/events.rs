//! Events on their way to consumers: from outbox rows to CloudEvents, filtered, with a cursor each.
//!
//! One row holds all events of a turn, and a cursor stands behind a whole row. So an event that is not the last of its row
//! carries the cursor of the row before: who goes on from there sees the row again, with the same ids.

use super::{Api, check};
use crate::tenant::Caller;
use cluster::{DeliveredEvent, EventReader, ReadEvents, ReadFrom, Scope};
use grain_contract::{Code, GrainId, Rejection, TenantId, limits};
use granary_proto::v1::event::Payload;
use granary_proto::{v1, wire};
use prost::Message as _;
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// The nine types of S1: short name and topic.
pub const TYPES: [(&str, &str); 9] = [
    ("workflow-definition-loaded", "workflows.definitions.v1.workflow-definition-loaded"),
    ("workflow-run-started", "workflows.runs.v1.workflow-run-started"),
    ("step-ready", "workflows.runs.v1.step-ready"),
    ("step-run-state-changed", "workflows.runs.v1.step-run-state-changed"),
    ("timer-fired", "workflows.runs.v1.timer-fired"),
    ("compensation-started", "workflows.runs.v1.compensation-started"),
    ("workflow-run-completed", "workflows.runs.v1.workflow-run-completed"),
    ("workflow-run-failed", "workflows.runs.v1.workflow-run-failed"),
    ("workflow-run-cancelled", "workflows.runs.v1.workflow-run-cancelled"),
];

/// Events in one message.
const EVENTS_AT_ONCE: usize = 512;

/// What a consumer wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// One bit a type, by its place in [`TYPES`]; 0 = all.
    types: u16,
    run_id: String,
}

/// One consumer's way through the events of its tenant.
pub struct Subscription {
    reader: EventReader,
    wanted: Wanted,
    named: bool,
    /// Cursor of the last row that was read whole.
    read_to: String,
    /// Cursors of the events given out and not acknowledged yet, in order; kept for a named cursor only.
    open: VecDeque<String>,
    /// Read and not handed out yet: one row may hold more events than fit into a message.
    pending: VecDeque<v1::EventEnvelope>,
}

impl Api {
    pub async fn subscribe(&self, caller: &Caller, request: &v1::Subscribe) -> Result<Subscription, Rejection> {
        check::optional_name(&request.cursor_name, "cursorName")?;
        let wanted = Wanted::of(&request.types, &request.run_id)?;
        let from = match request.from.as_str() {
            "" if request.cursor_name.is_empty() => ReadFrom::Latest,
            "" | "earliest" => ReadFrom::Earliest,
            "latest" => ReadFrom::Latest,
            cursor => ReadFrom::Cursor(cursor.to_owned()),
        };
        let start = match &from {
            ReadFrom::Cursor(cursor) => cursor.clone(),
            ReadFrom::Earliest | ReadFrom::Latest => String::new(),
        };
        let named = !request.cursor_name.is_empty();
        let read = ReadEvents {
            tenant: Some(caller.tenant.clone()),
            cursor_name: named.then(|| request.cursor_name.clone()),
            from,
            scope: Scope::Cluster,
        };
        let reader = self.inner.silo.events(read).await?;
        Ok(Subscription { reader, wanted, named, read_to: start, open: VecDeque::new(), pending: VecDeque::new() })
    }
}

impl Subscription {
    /// Whether more may be read: a named cursor waits for acknowledgements, others for the connection alone.
    pub fn may_read(&self) -> bool {
        self.open.len() < limits::SUBSCRIBER_WINDOW_MAX
    }

    /// The next events that are wanted; waits for them. Rows without any move the cursor all the same, so that a filter
    /// never holds back what may be trimmed (FR-120).
    pub async fn next(&mut self) -> Result<Vec<v1::EventEnvelope>, Rejection> {
        while self.pending.is_empty() {
            for row in self.reader.next_batch().await? {
                self.convert(row)?;
            }
            if self.named && self.pending.is_empty() && self.open.is_empty() {
                self.reader.acknowledge(&self.read_to)?;
            }
        }
        let many = self.pending.len().min(EVENTS_AT_ONCE);
        let found: Vec<v1::EventEnvelope> = self.pending.drain(..many).collect();
        if self.named {
            self.open.extend(found.iter().map(|e| e.cursor.clone()));
        }
        Ok(found)
    }

    /// Everything up to this cursor is done with.
    pub fn acknowledge(&mut self, cursor: &str) -> Result<(), Rejection> {
        if !self.named {
            return Err(check::invalid(
                "acknowledge",
                "Expected a named cursor to acknowledge, but this one has no name.",
            ));
        }
        if let Some(place) = self.open.iter().rposition(|c| c == cursor) {
            self.open.drain(..=place);
        }
        // Once nothing is open, what was read behind it and not wanted is done with as well.
        let done = if self.open.is_empty() && self.pending.is_empty() { self.read_to.as_str() } else { cursor };
        self.reader.acknowledge(done)
    }

    fn convert(&mut self, row: DeliveredEvent) -> Result<(), Rejection> {
        if !self.wanted.run_id.is_empty() && *row.grain.key != *self.wanted.run_id {
            self.read_to = row.cursor;
            return Ok(());
        }
        let batch = v1::EventBatch::decode(row.body.as_slice()).map_err(|e| {
            Rejection::new(Code::Quarantined, format!("Expected events that this build reads, but: {e}."))
        })?;
        let last = batch.events.len().saturating_sub(1);
        for (i, event) in batch.events.into_iter().enumerate() {
            let Some(payload) = &event.payload else { continue };
            let place = type_of(payload);
            if self.wanted.types != 0 && self.wanted.types & (1 << place) == 0 {
                continue;
            }
            let cursor = if i == last { row.cursor.clone() } else { self.read_to.clone() };
            self.pending.push_back(envelope(&row.grain, &event, payload, place, cursor));
        }
        self.read_to = row.cursor;
        Ok(())
    }
}

impl Wanted {
    fn of(types: &[String], run_id: &str) -> Result<Self, Rejection> {
        let mut bits = 0;
        for name in types {
            let Some(place) = TYPES.iter().position(|(short, topic)| name == short || name == topic) else {
                let known: Vec<&str> = TYPES.iter().map(|(short, _)| *short).collect();
                let message = format!("Expected one of {}, but found {}.", known.join(", "), check::shown(name));
                return Err(check::invalid("types", message));
            };
            bits |= 1 << place;
        }
        let run_id = if run_id.is_empty() { String::new() } else { check::id(run_id, "runId")?.to_string() };
        Ok(Self { types: bits, run_id })
    }
}

/// Place in [`TYPES`].
fn type_of(payload: &Payload) -> usize {
    match payload {
        Payload::DefinitionLoaded(_) => 0,
        Payload::RunStarted(_) => 1,
        Payload::StepReady(_) => 2,
        Payload::StepRunStateChanged(_) => 3,
        Payload::TimerFired(_) => 4,
        Payload::CompensationStarted(_) => 5,
        Payload::RunCompleted(_) => 6,
        Payload::RunFailed(_) => 7,
        Payload::RunCancelled(_) => 8,
    }
}

fn envelope(grain: &GrainId, event: &v1::Event, payload: &Payload, place: usize, cursor: String) -> v1::EventEnvelope {
    v1::EventEnvelope {
        // Subject and number in it: the same on every delivery, and unique within the source.
        id: format!("{}.{}", event.subject, event.sequence),
        source: source(&grain.tenant),
        r#type: TYPES[place].1.to_owned(),
        subject: event.subject.clone(),
        time: Some(wire::Timestamp::from_millis(event.at_ms)),
        data: Some(wire::Json::of(&data(payload))),
        cursor,
        tenant_id: grain.tenant.to_string(),
        sequence: event.sequence,
    }
}

fn source(tenant: &TenantId) -> String {
    format!("/granary/{tenant}")
}

/// The payload as S1 lists it: fields that are not required there, and ours beside them, are left out when empty.
fn data(payload: &Payload) -> Value {
    let value = match payload {
        Payload::DefinitionLoaded(p) => serde_json::to_value(p),
        Payload::RunStarted(p) => serde_json::to_value(p),
        Payload::StepReady(p) => serde_json::to_value(p),
        Payload::StepRunStateChanged(p) => serde_json::to_value(p),
        Payload::TimerFired(p) => serde_json::to_value(p),
        Payload::CompensationStarted(p) => serde_json::to_value(p),
        Payload::RunCompleted(p) => serde_json::to_value(p),
        Payload::RunFailed(p) => serde_json::to_value(p),
        Payload::RunCancelled(p) => serde_json::to_value(p),
    };
    const OPTIONAL: [&str; 7] = ["actionClass", "inputRef", "outputRef", "queue", "ask", "options", "reason"];
    let mut fields = match value {
        Ok(Value::Object(fields)) => fields,
        // Plain structs of text and numbers always become objects.
        _ => Map::new(),
    };
    fields.retain(|key, value| {
        let empty = value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
        !(empty && OPTIONAL.contains(&key.as_str()))
    });
    Value::Object(fields)
}

/// The envelope as CloudEvents 1.0 writes it in JSON (structured mode).
pub fn cloud_event(event: &v1::EventEnvelope) -> Value {
    let data = event.data.as_ref().and_then(|d| d.value().ok()).unwrap_or(Value::Null);
    serde_json::json!({
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.r#type,
        "subject": event.subject,
        "time": event.time.map(|t| t.to_string()),
        "datacontenttype": "application/json",
        "tenantid": event.tenant_id,
        "sequence": format!("{:020}", event.sequence),
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [V1] Payload fields are S1's; those that S1 does not require are absent when empty.
    #[test]
    fn payloads_have_the_fields_of_the_document() {
        let ready = Payload::StepReady(v1::StepReady {
            run_id: "r".into(),
            tenant_id: "t".into(),
            step_run_id: "s".into(),
            step_id: "classify".into(),
            kind: "Agent".into(),
            attempt: 1,
            ..v1::StepReady::default()
        });
        let wanted = serde_json::json!({
            "runId": "r", "tenantId": "t", "stepRunId": "s", "stepId": "classify", "kind": "Agent", "attempt": 1
        });
        assert_eq!(data(&ready), wanted);
        let failed = Payload::RunFailed(v1::WorkflowRunFailed::default());
        let keys: Vec<String> = data(&failed).as_object().expect("object").keys().cloned().collect();
        assert_eq!(keys, ["compensated", "failedStepId", "failureClass", "runId", "tenantId"]);
    }

    #[test]
    fn unknown_types_are_refused_by_name() {
        assert!(Wanted::of(&["step-ready".into(), TYPES[6].1.into()], "").is_ok());
        let refusal = Wanted::of(&["step-redy".into()], "").expect_err("refused");
        assert!(refusal.message.contains("step-redy") && refusal.message.contains("timer-fired"));
        assert_eq!(Wanted::of(&[], "x").err().map(|r| r.field), Some("runId".to_owned()));
    }

    /// [V1]
    #[test]
    fn an_envelope_is_a_cloud_event() {
        let payload = Payload::RunCompleted(v1::WorkflowRunCompleted { run_id: "r".into(), ..Default::default() });
        let event = v1::Event { sequence: 7, at_ms: 1_000, subject: "r".into(), payload: Some(payload.clone()) };
        let grain = super::super::grain(&"acme".into(), "run", "r");
        let made = envelope(&grain, &event, &payload, type_of(&payload), "c".into());
        let json = cloud_event(&made);
        assert_eq!(json["specversion"], "1.0");
        assert_eq!((json["id"].as_str(), json["source"].as_str()), (Some("r.7"), Some("/granary/acme")));
        assert_eq!(json["type"], "workflows.runs.v1.workflow-run-completed");
        assert_eq!(json["data"]["runId"], "r");
    }
}
