//! Single values: text, numbers, durations, words out of a list.

use super::Shaper;
use crate::definition::document::Placed;
use crate::definition::duration::DURATION_MS_MAX;
use crate::definition::tree::{Data, Node};
use serde_json::Value;

impl Shaper<'_> {
    pub(super) fn text(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<String>>) -> Option<Value> {
        match &node.data {
            Data::Text(text) if !text.trim().is_empty() => {
                *slot = Some(Placed { value: text.clone(), spot: node.spot });
                Some(Value::String(text.clone()))
            }
            Data::Bool(_) | Data::Number { .. } => self.wrong(node, path, "a text (in quotes)"),
            Data::Text(_) => self.wrong(node, path, "a text that is not empty"),
            _ => self.wrong(node, path, "a text"),
        }
    }

    /// A text, or a number as it is written: `1.10` stays `1.10`.
    pub(super) fn version(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<String>>) -> Option<Value> {
        match &node.data {
            Data::Number { written, .. } => {
                *slot = Some(Placed { value: written.clone(), spot: node.spot });
                Some(Value::String(written.clone()))
            }
            _ => self.text(node, path, slot),
        }
    }

    pub(super) fn whole(
        &mut self,
        node: &Node,
        path: &str,
        min: u32,
        max: u32,
        slot: &mut Option<Placed<u32>>,
    ) -> Option<Value> {
        let found = match &node.data {
            Data::Number { number, .. } => number.as_u64().and_then(|n| u32::try_from(n).ok()),
            _ => None,
        };
        match found {
            Some(value) if (min..=max).contains(&value) => {
                *slot = Some(Placed { value, spot: node.spot });
                Some(Value::from(value))
            }
            _ => {
                let message = format!("Expected a whole number from {min} to {max}, but found {}", node.describe());
                self.error("number-range", node.spot, path, message);
                None
            }
        }
    }

    /// Minutes, also fractions of them, in milliseconds.
    pub(super) fn minutes(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<u64>>) -> Option<Value> {
        let found = match &node.data {
            Data::Number { number, .. } => number.as_f64(),
            _ => None,
        };
        match found.map(|minutes| (minutes * 60_000.0).ceil()) {
            Some(value) if value >= 1.0 && value <= DURATION_MS_MAX as f64 => {
                *slot = Some(Placed { value: value as u64, spot: node.spot });
                Some(node.to_json())
            }
            _ => {
                let message =
                    format!("Expected a number of minutes above 0 and below ten years, but found {}", node.describe());
                self.error("number-range", node.spot, path, message);
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, node: &Node, path: &str) -> Option<bool> {
        match node.data {
            Data::Bool(value) => Some(value),
            _ => self.wrong(node, path, "true or false"),
        }
    }

    /// One of a list of words, exactly as they are written.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        path: &str,
        words: &[(&str, T)],
        slot: &mut Option<Placed<T>>,
    ) -> Option<Value> {
        let found = match &node.data {
            Data::Text(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        match found {
            Some((word, value)) => {
                *slot = Some(Placed { value: *value, spot: node.spot });
                Some(Value::from(*word))
            }
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.error(
                    "unknown-word",
                    node.spot,
                    path,
                    format!("Expected one of {}, but found {}", words.join(", "), node.describe()),
                );
                None
            }
        }
    }
}
