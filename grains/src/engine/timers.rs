//! Timers: durable because they are in the step run's row; at most one of each purpose a step run.
//!
//! Ending a step run, or its attempt, removes what was set for it, so a timer never meets a step that moved on.

use super::fanout::kind_of;
use super::ids;
use super::state::{Due, Projection, Purpose, RunIx, StepState, Timer};
use super::turn::Turn;
use crate::definition::Wait;
use granary_proto::v1::Failure;
use serde_json::Value;

/// Of a value in a message.
const SHOWN_BYTES_MAX: usize = 200;

impl Turn<'_> {
    pub(super) fn set_timer(&mut self, ix: RunIx, purpose: Purpose, due_ms: i64) {
        let run = self.p.run(ix);
        let id = ids::timer_id(run.id, purpose.as_str(), run.attempt);
        self.p.run_mut(ix).timers.push(Timer { id, purpose, due_ms, fired: false, late_ms: 0 });
        self.p.due.insert((due_ms, Due::Step(ix, purpose)));
    }

    /// What has fired of a Timer step stays, to be seen; all else goes.
    pub(super) fn clear_timers(&mut self, ix: RunIx) {
        let open = self.p.run(ix).timers.iter().filter(|timer| !timer.fired);
        let keys: Vec<_> = open.map(|timer| (timer.due_ms, Due::Step(ix, timer.purpose))).collect();
        if keys.is_empty() {
            return;
        }
        for key in &keys {
            self.p.due.remove(key);
        }
        self.p.run_mut(ix).timers.retain(|timer| timer.fired);
    }

    pub(super) fn start_timer(&mut self, ix: RunIx, wait: &Wait) {
        let due = match wait {
            Wait::For(ms) => Ok(self.now.plus_ms(*ms).0),
            Wait::Until(at) => Ok(*at),
            Wait::Computed(rule) => self.evaluate(ix, rule, "mapping").and_then(|value| self.due_from(&value)),
        };
        match due {
            Ok(due) => {
                self.p.run_mut(ix).failure = None;
                self.enter(ix, StepState::WaitingForTimer);
                self.set_timer(ix, Purpose::Step, due);
            }
            Err(failure) => self.fail_step(ix, failure, false),
        }
    }

    fn due_from(&self, value: &Value) -> Result<i64, Failure> {
        let found = match value {
            Value::Number(n) => n.as_f64().filter(|s| s.is_finite() && *s >= 0.0).map(|s| self.in_ms(s * 1_000.0)),
            Value::String(text) => self.due_from_text(text),
            _ => None,
        };
        found.ok_or_else(|| Failure {
            class: "mapping".into(),
            message: format!(
                "Expected a number of seconds, an ISO 8601 duration or an RFC 3339 moment, but found {}.",
                shown(value)
            ),
        })
    }

    fn due_from_text(&self, text: &str) -> Option<i64> {
        if let Ok(at) = text.parse::<jiff::Timestamp>() {
            return Some(at.as_millisecond());
        }
        let span: jiff::Span = text.parse().ok()?;
        let duration = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
        (!duration.is_negative()).then(|| self.in_ms(duration.as_millis_f64()))
    }

    fn in_ms(&self, ms: f64) -> i64 {
        // `as` saturates, and so does `plus_ms`.
        self.now.plus_ms(ms.ceil() as u64).0
    }
}

/// A value as it may stand in a message, which is no place for a megabyte.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > SHOWN_BYTES_MAX => format!("a text of {} bytes", text.len()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
        Value::Array(_) | Value::Object(_) => kind_of(value).to_owned(),
    }
}

impl Projection {
    pub(super) fn timer_mut(&mut self, ix: RunIx, purpose: Purpose) -> Option<&mut Timer> {
        self.run_mut(ix).timers.iter_mut().find(|timer| timer.purpose == purpose && !timer.fired)
    }
}
