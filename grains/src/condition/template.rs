//! What an expression is made of: literals, plain reads, rules, and objects and lists of them.

use super::guard::{CompileError, Guard};
use super::{RULE_DEPTH_MAX, operators};
use serde_json::{Map, Value};

#[derive(Debug, Clone)]
pub(super) enum Template {
    Literal(Value),
    /// `{"var": path}` alone, by far the most frequent rule: needs no evaluator.
    Read(Read),
    Rule(Box<Rule>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

/// A constant path into the view; the first part is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub parts: Vec<String>,
    /// It is compared or computed with, so a number that a float cannot hold is an error.
    pub numeric: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// Rewritten; the n-th read is `{"var":"n"}`.
    pub rule: Value,
    pub reads: Vec<Read>,
    /// Paths into elements that are compared or computed with inside an iterator.
    pub item_reads: Vec<Vec<String>>,
    /// Names of all operators the author used, sorted.
    pub operators: Vec<String>,
    /// It holds a `substr` that counts from the end, which the evaluator does in bytes.
    pub counts_from_end: bool,
}

impl Template {
    /// A rule, strictly: no literal object.
    pub(super) fn rule(value: &Value, at: &str) -> Result<Self, CompileError> {
        Guard::check(value, at).map(Self::simplest)
    }

    pub(super) fn of(value: &Value, at: &str, depth: usize) -> Result<Self, CompileError> {
        if depth > RULE_DEPTH_MAX {
            return Err(CompileError::new(
                at,
                format!("Expected at most {RULE_DEPTH_MAX} levels, but it is nested deeper"),
            ));
        }
        match value {
            Value::Object(fields) if is_rule(fields) => Self::rule(value, at),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), Self::of(value, &format!("{at}.{key}"), depth + 1)?)))
                .collect::<Result<Vec<_>, _>>()
                .map(Self::object),
            Value::Array(values) => values
                .iter()
                .enumerate()
                .map(|(ix, value)| Self::of(value, &format!("{at}[{ix}]"), depth + 1))
                .collect::<Result<Vec<_>, _>>()
                .map(Self::list),
            literal => Ok(Self::Literal(literal.clone())),
        }
    }

    fn simplest(rule: Rule) -> Self {
        if rule.operators.is_empty() {
            return Self::Literal(rule.rule);
        }
        match (rule.rule.get("var").and_then(Value::as_str), rule.reads.as_slice()) {
            (Some(_), [read]) => Self::Read(read.clone()),
            _ => Self::Rule(Box::new(rule)),
        }
    }

    fn object(fields: Vec<(String, Template)>) -> Self {
        let mut literal = Map::new();
        for (key, template) in &fields {
            let Self::Literal(value) = template else { return Self::Object(fields) };
            literal.insert(key.clone(), value.clone());
        }
        Self::Literal(Value::Object(literal))
    }

    fn list(elements: Vec<Template>) -> Self {
        let mut literal = Vec::new();
        for template in &elements {
            let Self::Literal(value) = template else { return Self::List(elements) };
            literal.push(value.clone());
        }
        Self::Literal(Value::Array(literal))
    }

    pub(super) fn collect_roots(&self, roots: &mut Vec<String>) {
        match self {
            Self::Literal(_) => {}
            Self::Read(read) => roots.push(read.parts[0].clone()),
            Self::Rule(rule) => roots.extend(rule.reads.iter().map(|read| read.parts[0].clone())),
            Self::List(elements) => elements.iter().for_each(|element| element.collect_roots(roots)),
            Self::Object(fields) => fields.iter().for_each(|(_, field)| field.collect_roots(roots)),
        }
    }

    pub(super) fn uses(&self, operator: &str) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Read(_) => operator == "var",
            Self::Rule(rule) => rule.operators.iter().any(|used| used == operator),
            Self::List(elements) => elements.iter().any(|element| element.uses(operator)),
            Self::Object(fields) => fields.iter().any(|(_, field)| field.uses(operator)),
        }
    }
}

/// One key that is an operator, or that can only be a mistyped one: `=>`, `<>`. The latter is sent to the guard for its
/// refusal, since as a literal object it would silently be true.
fn is_rule(fields: &Map<String, Value>) -> bool {
    let mut keys = fields.keys();
    match (keys.next(), keys.next()) {
        (Some(key), None) => {
            operators::find(key).is_some()
                || key == "log"
                || (!key.is_empty() && key.chars().all(|character| character.is_ascii_punctuation()))
        }
        _ => false,
    }
}
