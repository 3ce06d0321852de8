//! Conditions of registered kinds, and how long to wait for them.

use super::Shaper;
use crate::condition::kinds::JSONLOGIC;
use crate::definition::document::{Placed, Question};
use crate::definition::duration::{DURATION_MS_MAX, duration_of_seconds, parse_duration};
use crate::definition::tree::{Data, Node};
use serde_json::{Map, Value};

/// The least time between two looks of a worker at a condition.
pub(super) const POLL_MS_MIN: u64 = 100;

impl Shaper<'_> {
    /// `condition`: an object with `kind`; all else in it are that kind's parameters.
    pub(super) fn question(&mut self, node: &Node, path: &str, slot: &mut Option<Question>) -> Option<Value> {
        let entries = self.map(node, path)?;
        let mut kind = None;
        let (mut parameters, mut spots) = (Map::new(), Vec::new());
        for entry in entries {
            if entry.key == "kind" {
                self.text(&entry.value, &format!("{path}.kind"), &mut kind)?;
            }
        }
        let Some(kind) = kind else {
            let message = "Expected the name of a condition kind in `kind`, but it is not there".to_owned();
            self.error("missing-field", node.spot, &format!("{path}.kind"), message);
            return None;
        };
        let mut canonical = Map::from_iter([("kind".to_owned(), Value::String(kind.value.clone()))]);
        for entry in entries.iter().filter(|entry| entry.key != "kind") {
            // Its rule may be JSON text, like every other expression, and ends as the same native form.
            let value = if kind.value == JSONLOGIC && entry.key == "rule" {
                self.native(&entry.value, &format!("{path}.rule"))?
            } else {
                entry.value.to_json()
            };
            canonical.insert(entry.key.clone(), value.clone());
            parameters.insert(entry.key.clone(), value);
            spots.push((entry.key.clone(), entry.spot));
        }
        *slot = Some(Question { kind, parameters, spots });
        Some(Value::Object(canonical))
    }

    /// Seconds or an ISO 8601 duration, at least `min` milliseconds.
    pub(super) fn duration(
        &mut self,
        node: &Node,
        path: &str,
        min: u64,
        slot: &mut Option<Placed<u64>>,
    ) -> Option<Value> {
        let found = match &node.data {
            Data::Number { number, .. } => duration_of_seconds(number.as_f64().unwrap_or(-1.0)),
            Data::Text(text) => parse_duration(text),
            _ => return self.wrong(node, path, "a number of seconds or a duration"),
        };
        let fault = match found {
            Ok(value) if (min..=DURATION_MS_MAX).contains(&value) => {
                *slot = Some(Placed { value, spot: node.spot });
                return Some(node.to_json());
            }
            Ok(value) => format!("Expected a duration from {min} ms to ten years, but found {value} ms"),
            Err(message) => message,
        };
        self.error("bad-time", node.spot, path, fault);
        None
    }
}
