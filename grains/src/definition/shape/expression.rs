//! JsonLogic in a document: a JSON string or native YAML, both end as one native form.

use super::Shaper;
use crate::condition::{CompileError, Expression};
use crate::definition::document::Placed;
use crate::definition::duration::{duration_of_seconds, parse_duration, parse_moment};
use crate::definition::plan::Wait;
use crate::definition::tree::{Data, Node};
use serde_json::Value;

/// A literal that says nothing: a condition that was forgotten.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

impl Shaper<'_> {
    /// `expression`: an empty one is refused, whatever truth it would have.
    pub(super) fn rule(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Expression>>) -> Option<Value> {
        let value = self.native(node, path)?;
        if is_empty(&value) {
            return self.wrong(node, path, "a JsonLogic expression");
        }
        self.compiled(node, path, &value, Expression::compile(&value), slot)
    }

    /// `items`: an expression that gives a list, or a literal list, which may be empty.
    pub(super) fn items(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Expression>>) -> Option<Value> {
        let value = self.native(node, path)?;
        if value.is_array() {
            return self.compiled(node, path, &value, Expression::compile_template(&value), slot);
        }
        if !value.is_object() {
            return self.wrong(node, path, "a list or a JsonLogic expression that gives one");
        }
        self.compiled(node, path, &value, Expression::compile(&value), slot)
    }

    /// `inputMapping`: an object or a rule. Texts inside are literals.
    pub(super) fn mapping(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Expression>>) -> Option<Value> {
        let value = self.native(node, path)?;
        if !value.is_object() {
            return self.wrong(node, path, "an object whose values are JsonLogic");
        }
        self.compiled(node, path, &value, Expression::compile_template(&value), slot)
    }

    fn compiled(
        &mut self,
        node: &Node,
        path: &str,
        value: &Value,
        result: Result<Expression, CompileError>,
        slot: &mut Option<Placed<Expression>>,
    ) -> Option<Value> {
        match result {
            Ok(expression) => {
                *slot = Some(Placed { value: expression, spot: node.spot });
                Some(text_form(value))
            }
            Err(error) => {
                self.error("bad-expression", node.spot, path, error.to_string());
                None
            }
        }
    }

    /// The JSON value of an expression. A text holds JSON, always: so a literal text is written `"\"x\""`.
    pub(super) fn native(&mut self, node: &Node, path: &str) -> Option<Value> {
        let Data::Text(text) = &node.data else { return Some(node.to_json()) };
        if text.trim().is_empty() {
            return self.wrong(node, path, "a JsonLogic expression");
        }
        match serde_json::from_str::<Value>(text) {
            // The JSON reader lets the last of two equal keys win without a word; ours does not.
            Ok(value) => {
                let mut inside = Vec::new();
                let read = super::super::read::tree(text, &mut inside);
                match inside.into_iter().next() {
                    Some(finding) => {
                        self.error(finding.code, node.spot, path, format!("{} (inside the text)", finding.message));
                        None
                    }
                    None => Some(read.map_or(value, |node| node.to_json())),
                }
            }
            Err(error) => {
                self.error(
                    "bad-expression",
                    node.spot,
                    path,
                    format!(
                        "Expected JsonLogic as JSON text or as native YAML, but found {} ({error})",
                        node.describe()
                    ),
                );
                None
            }
        }
    }

    /// `delay`: seconds, a duration, or an expression that gives one of them.
    pub(super) fn delay(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Wait>>) -> Option<Value> {
        let wait = match &node.data {
            Data::Number { number, .. } => duration_of_seconds(number.as_f64().unwrap_or(-1.0)),
            Data::Text(text) if !is_json_object(text) => parse_duration(text),
            _ => return self.computed(node, path, slot),
        };
        self.wait(node, path, wait.map(Wait::For), slot)
    }

    /// `until`: an RFC 3339 moment, or an expression that gives one.
    pub(super) fn until(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Wait>>) -> Option<Value> {
        match &node.data {
            Data::Text(text) if !is_json_object(text) => {
                self.wait(node, path, parse_moment(text).map(Wait::Until), slot)
            }
            Data::Map(_) | Data::Text(_) => self.computed(node, path, slot),
            _ => self.wrong(node, path, "a moment such as `2026-12-24T18:00:00Z` or a JsonLogic expression"),
        }
    }

    fn wait(
        &mut self,
        node: &Node,
        path: &str,
        wait: Result<Wait, String>,
        slot: &mut Option<Placed<Wait>>,
    ) -> Option<Value> {
        match wait {
            Ok(value) => {
                *slot = Some(Placed { value, spot: node.spot });
                Some(node.to_json())
            }
            Err(message) => {
                self.error("bad-time", node.spot, path, message);
                None
            }
        }
    }

    fn computed(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Wait>>) -> Option<Value> {
        let value = self.native(node, path)?;
        if !value.is_object() {
            return self.wrong(node, path, "a duration or a JsonLogic expression");
        }
        let mut expression = None;
        let normal = self.compiled(node, path, &value, Expression::compile(&value), &mut expression);
        *slot = expression.map(|found| Placed { value: Wait::Computed(found.value), spot: found.spot });
        normal
    }
}

/// The form that reads back as itself.
pub(super) fn text_form(value: &Value) -> Value {
    match value {
        Value::String(_) => Value::String(value.to_string()),
        other => other.clone(),
    }
}

pub(super) fn is_json_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}
