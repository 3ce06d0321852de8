//! The parameters of a condition, as its kind reads them.

use serde_json::{Map, Value};

/// One thing that is wrong with a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The parameter's name.
    pub field: String,
    /// "Expected …, but …"
    pub message: String,
}

impl Fault {
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

/// What stands beside `kind` in a condition.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a>(pub &'a Map<String, Value>);

impl Parameters<'_> {
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// A fault for each parameter that is not one of these.
    pub fn only(&self, known: &[&str]) -> Vec<Fault> {
        let unknown = self.0.keys().filter(|key| !known.contains(&key.as_str()));
        unknown.map(|key| Fault::new(key, format!("Expected only {}, but found `{key}`", known.join(", ")))).collect()
    }

    /// A text that is not empty.
    ///
    /// # Errors
    /// It is absent, empty or no text.
    pub fn text(&self, field: &str) -> Result<String, Fault> {
        match self.get(field) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            found => Err(Fault::new(field, format!("Expected a text in `{field}`, but found {}", described(found)))),
        }
    }

    /// `false` where it is absent.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn flag(&self, field: &str) -> Result<bool, Fault> {
        match self.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            found => {
                Err(Fault::new(field, format!("Expected true or false in `{field}`, but found {}", described(found))))
            }
        }
    }
}

/// A value as a message may name it.
pub(super) fn described(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::Null) => "null".to_owned(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::String(text)) if text.len() <= 64 => format!("{text:?}"),
        Some(Value::String(text)) => format!("a text of {} bytes", text.len()),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
    }
}
