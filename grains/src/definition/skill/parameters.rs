//! Declared parameters, and the check of an invocation's arguments against them.

use granary_proto::v1::Failure;
use serde_json::{Map, Value};

pub(super) const MISSING: &str = "missing-parameter";
pub(super) const WRONG: &str = "wrong-argument";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
}

impl ParameterType {
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("string", Self::String),
        ("number", Self::Number),
        ("integer", Self::Integer),
        ("boolean", Self::Boolean),
        ("object", Self::Object),
        ("array", Self::Array),
    ];

    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    pub(super) fn fits(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
        }
    }

    /// It can stand inside a longer text.
    pub(super) fn is_plain(self) -> bool {
        !matches!(self, Self::Object | Self::Array)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    pub name: String,
    pub kind: ParameterType,
    pub required: bool,
    pub default: Option<Value>,
    /// Values that it may have; empty = any of its type.
    pub one_of: Vec<Value>,
    pub description: String,
}

/// By name: a stored document does not keep the order of its keys.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Parameters(pub Vec<Parameter>);

impl Parameters {
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.iter().find(|parameter| parameter.name == name)
    }

    /// The arguments with the defaults of those that were left out. JSON text in, JSON text out; empty = no arguments.
    ///
    /// # Errors
    /// Class `missing-parameter` if a required one is not given, else `wrong-argument`. All faults are in the message.
    pub fn check(&self, arguments: &[u8]) -> Result<Vec<u8>, Failure> {
        let given = match arguments {
            b"" | b"null" => Map::new(),
            text => match serde_json::from_slice(text) {
                Ok(Value::Object(given)) => given,
                _ => return Err(failure(WRONG, "Expected an object of arguments, but found something else.".into())),
            },
        };
        let missing: Vec<&str> = self
            .0
            .iter()
            // Null is no value: an expression that read nothing gives it.
            .filter(|p| p.required && given.get(&p.name).is_none_or(Value::is_null))
            .map(|p| p.name.as_str())
            .collect();
        if !missing.is_empty() {
            let message =
                format!("Expected a value for {}, which the skill requires, but there is none.", names(&missing));
            return Err(failure(MISSING, message));
        }
        let mut faults = Vec::new();
        for name in given.keys().filter(|name| self.get(name).is_none()) {
            faults.push(format!("{name:?}, which is none of its parameters"));
        }
        let mut complete = Map::new();
        for parameter in &self.0 {
            match given.get(&parameter.name).filter(|value| !value.is_null()) {
                Some(value) if !parameter.kind.fits(value) => {
                    let kind = parameter.kind.as_str();
                    faults.push(format!("{}, which is not of type {kind}", shown(&parameter.name, value)));
                }
                Some(value) if !parameter.one_of.is_empty() && !parameter.one_of.contains(value) => {
                    let allowed: Vec<String> = parameter.one_of.iter().map(Value::to_string).collect();
                    let allowed = allowed.join(", ");
                    faults.push(format!("{}, which is none of {allowed}", shown(&parameter.name, value)));
                }
                Some(value) => {
                    complete.insert(parameter.name.clone(), value.clone());
                }
                None => {
                    let default = parameter.default.clone().unwrap_or(Value::Null);
                    complete.insert(parameter.name.clone(), default);
                }
            }
        }
        if faults.is_empty() {
            return Ok(Value::Object(complete).to_string().into_bytes());
        }
        let message = format!("Expected arguments that the skill declares, but found {}.", faults.join("; "));
        Err(failure(WRONG, message))
    }
}

fn failure(class: &str, message: String) -> Failure {
    Failure { class: class.to_owned(), message }
}

fn names(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn shown(name: &str, value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 64 { format!("{name}: {text}") } else { format!("{name}: a value of {} bytes", text.len()) }
}
