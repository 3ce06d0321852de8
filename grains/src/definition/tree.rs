//! The text as a tree of values that know their place.
//!
//! Not typed reading by serde: that stops at the first fault, and does not tell where a key stands.

use super::finding::Spot;
use serde_json::{Map, Number, Value};

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub spot: Spot,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Null,
    Bool(bool),
    /// As written, too: `version: 1.10` is the text `1.10`.
    Number {
        number: Number,
        written: String,
    },
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub spot: Spot,
    pub value: Node,
}

impl Node {
    pub(super) fn to_json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number { number, .. } => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(elements) => elements.iter().map(Node::to_json).collect(),
            Data::Map(entries) => Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// A stored document: no places, no doubled keys, depth bounded by the JSON reader.
    pub(super) fn from_json(value: &Value) -> Self {
        let data = match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => Data::Number { number: number.clone(), written: number.to_string() },
            Value::String(text) => Data::Text(text.clone()),
            Value::Array(elements) => Data::List(elements.iter().map(Node::from_json).collect()),
            Value::Object(fields) => Data::Map(
                fields
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        spot: Spot::default(),
                        value: Node::from_json(value),
                    })
                    .collect(),
            ),
        };
        Node { spot: Spot::default(), data }
    }

    /// For "…, but found …".
    pub(super) fn describe(&self) -> String {
        match &self.data {
            Data::Null => "nothing (null)".into(),
            Data::Bool(value) => format!("the boolean {value}"),
            Data::Number { written, .. } => format!("the number {written}"),
            Data::Text(text) if text.is_empty() => "an empty text".into(),
            Data::Text(text) => format!("the text {}", quote(text)),
            Data::List(_) => "a list".into(),
            Data::Map(_) => "an object".into(),
        }
    }
}

/// A name in a message: shortened, and on one line.
pub(super) fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}
