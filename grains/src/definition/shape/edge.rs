//! One edge.

use super::Shaper;
use super::expression::is_json_object;
use crate::definition::document::{Edge, Placed};
use crate::definition::plan::Guard;
use crate::definition::tree::{Data, Node};
use serde_json::{Map, Value};

const KEYS: [&str; 4] = ["from", "to", "guard", "isLoopBack"];

impl Shaper<'_> {
    /// An edge without both ends has no place in the graph: `None`, with its finding.
    pub(super) fn edge(&mut self, node: &Node, path: String) -> (Option<Edge>, Value) {
        let mut canonical = Map::new();
        let Some(entries) = self.map(node, &path) else { return (None, Value::Null) };
        let (mut from, mut to) = (None, None);
        let (mut guard, mut guard_spot, mut is_loop_back) = (Guard::Always, node.spot, false);
        for entry in entries {
            let at = format!("{path}.{}", entry.key);
            let normal = match entry.key.as_str() {
                "from" => self.text(&entry.value, &at, &mut from),
                "to" => self.text(&entry.value, &at, &mut to),
                "guard" => {
                    guard_spot = entry.value.spot;
                    self.guard(&entry.value, &at, &mut guard)
                }
                "isLoopBack" => {
                    is_loop_back = self.boolean(&entry.value, &at).unwrap_or_default();
                    is_loop_back.then_some(Value::Bool(true))
                }
                _ => {
                    self.unknown_key(entry, &at, &KEYS);
                    None
                }
            };
            if let Some(normal) = normal {
                canonical.insert(entry.key.clone(), normal);
            }
        }
        for key in ["from", "to"] {
            if !entries.iter().any(|entry| entry.key == key) {
                let message = format!("Expected `{key}` in each edge, but it is not there");
                self.error("missing-field", node.spot, &format!("{path}.{key}"), message);
            }
        }
        let guard_text = canonical.get("guard").map(Value::to_string).unwrap_or_default();
        let edge = match (from, to) {
            (Some(from), Some(to)) => Some(Edge {
                path,
                is_implied: false,
                spot: node.spot,
                from,
                to,
                guard,
                guard_text,
                guard_spot,
                is_loop_back,
            }),
            _ => None,
        };
        (edge, Value::Object(canonical))
    }

    fn guard(&mut self, node: &Node, path: &str, guard: &mut Guard) -> Option<Value> {
        let word = match &node.data {
            Data::Bool(true) => "true",
            Data::Bool(false) => "false",
            Data::Text(text) if !is_json_object(text) => text,
            Data::Text(_) | Data::Map(_) => {
                let mut rule: Option<Placed<_>> = None;
                let normal = self.rule(node, path, &mut rule);
                if let Some(rule) = rule {
                    *guard = Guard::Rule(rule.value);
                }
                return normal;
            }
            _ => return self.wrong(node, path, GUARDS),
        };
        *guard = match word {
            "true" => Guard::IsTrue,
            "false" => Guard::IsFalse,
            "failed" => Guard::Failed,
            "succeeded" => Guard::Succeeded,
            _ => return self.wrong(node, path, GUARDS),
        };
        Some(Value::from(word))
    }
}

const GUARDS: &str = "`true`, `false`, `failed`, `succeeded` or a JsonLogic expression";
