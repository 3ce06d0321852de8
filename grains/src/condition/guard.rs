//! The guard: what may reach the evaluator, and in which form.
//!
//! It walks a rule once, refuses what the evaluator would answer silently wrong or not bound, and rewrites:
//!
//! * `some`, `all`, `none` to `filter`, because the evaluator parses each *element* of those as a rule, so that data could
//!   become a rule;
//! * `missing` and `missing_some` to comparisons, because the evaluator does not count null and empty text as missing;
//! * `var` with a default, because the evaluator keeps a null that the reference replaces; and a `var` inside `cat`, because
//!   it would write "null";
//! * `<`, `<=`, `>`, `>=` on a `var`, so that they are false on null;
//! * each outer `var` to a numbered slot, so that the view holds only what is read. The evaluator copies the whole view for
//!   every `var`.

use super::is_unsafe_number;
use super::operators::{self, Operator, Shape};
use super::template::{Read, Rule};
use super::{REWRITTEN_NODES_MAX, RULE_DEPTH_MAX, RULE_NODES_MAX, SAFE_INTEGER_MAX};
use serde_json::{Value, json};

/// Why an expression is refused, and where inside it (`if[1].==`; empty = the whole).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", if .path.is_empty() { String::new() } else { format!(" (at {path})") })]
pub struct CompileError {
    pub path: String,
    pub message: String,
}

impl CompileError {
    pub(super) fn new(path: &str, message: String) -> Self {
        Self { path: path.trim_start_matches('.').to_owned(), message }
    }
}

/// Whose fields a `var` reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    View,
    Item,
    Reduce,
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub scope: Scope,
    pub depth: usize,
    pub iterators: usize,
    /// The value here is compared or computed with.
    pub numeric: bool,
}

pub(super) struct Guard {
    nodes: usize,
    rewritten: usize,
    pub reads: Vec<Read>,
    pub item_reads: Vec<Vec<String>>,
    operators: Vec<String>,
    pub accumulators: usize,
    counts_from_end: bool,
    /// Reads stay as they are: for the public table, whose data is not a set of named roots.
    #[cfg_attr(not(test), allow(dead_code))]
    pub keep_reads: bool,
}

pub(super) type Checked = Result<Value, CompileError>;

impl Guard {
    pub(super) fn check(rule: &Value, at: &str) -> Result<Rule, CompileError> {
        Self::run(rule, at, false)
    }

    /// For the public table: a `var` may compute its path or read the whole of the data.
    #[cfg(test)]
    pub(super) fn check_on_any_data(rule: &Value) -> Result<Rule, CompileError> {
        Self::run(rule, "", true)
    }

    fn run(rule: &Value, at: &str, keep_reads: bool) -> Result<Rule, CompileError> {
        let mut guard = Self {
            nodes: 0,
            rewritten: 0,
            reads: Vec::new(),
            item_reads: Vec::new(),
            operators: Vec::new(),
            accumulators: 0,
            counts_from_end: false,
            keep_reads,
        };
        let rule = guard.rule(rule, at, Place { scope: Scope::View, depth: 0, iterators: 0, numeric: false })?;
        guard.operators.sort();
        guard.operators.dedup();
        let Self { reads, item_reads, operators, counts_from_end, .. } = guard;
        Ok(Rule { rule, reads, item_reads, operators, counts_from_end })
    }

    pub(super) fn rule(&mut self, value: &Value, at: &str, place: Place) -> Checked {
        self.count(at, place.depth)?;
        match value {
            Value::Object(fields) => {
                let mut fields = fields.iter();
                match (fields.next(), fields.next()) {
                    (Some((name, arguments)), None) => self.operation(name, arguments, at, place),
                    (None, _) => Err(CompileError::new(
                        at,
                        "Expected an object with one operator, but found an empty object".into(),
                    )),
                    (Some((first, _)), Some((second, _))) => Err(CompileError::new(
                        at,
                        format!("Expected an object with one operator, but found the keys `{first}` and `{second}`"),
                    )),
                }
            }
            literal => self.literal(literal, at, place.depth),
        }
    }

    pub(super) fn literal(&mut self, value: &Value, at: &str, depth: usize) -> Checked {
        match value {
            Value::Number(number) if is_unsafe_number(value) => Err(CompileError::new(
                at,
                format!("Expected a number within ±{SAFE_INTEGER_MAX}, but found {number}; compare such a number as text"),
            )),
            // 1.0 and 1 are one number, but not to the evaluator's `in`.
            Value::Number(number) => Ok(whole(number.as_f64()).unwrap_or_else(|| value.clone())),
            Value::Array(elements) => {
                let mut checked = Vec::with_capacity(elements.len());
                for (ix, element) in elements.iter().enumerate() {
                    let at = format!("{at}[{ix}]");
                    self.count(&at, depth + 1)?;
                    checked.push(self.literal(element, &at, depth + 1)?);
                }
                Ok(Value::Array(checked))
            }
            Value::Object(_) => Err(CompileError::new(
                at,
                "Expected plain values inside a literal list, but found an object; the evaluator would take an operator there for data"
                    .into(),
            )),
            scalar => Ok(scalar.clone()),
        }
    }

    fn operation(&mut self, name: &str, arguments: &Value, at: &str, place: Place) -> Checked {
        let at = format!("{at}.{name}");
        let Some(operator) = operators::find(name) else {
            return Err(CompileError::new(&at, format!("Expected one of JsonLogic's operators, but found `{name}`")));
        };
        let arguments: Vec<&Value> = match arguments {
            Value::Array(arguments) => arguments.iter().collect(),
            one if operator.arguments_min <= 1 => vec![one],
            _ => {
                return Err(CompileError::new(
                    &at,
                    format!("Expected a list of arguments for `{name}`, but found one value"),
                ));
            }
        };
        if !(operator.arguments_min..=operator.arguments_max).contains(&arguments.len()) {
            return Err(CompileError::new(
                &at,
                format!("Expected {} arguments for `{name}`, but found {}", operator.arguments(), arguments.len()),
            ));
        }
        self.operators.push(name.to_owned());
        let inside = Place { depth: place.depth + 1, ..place };
        match operator.shape {
            Shape::Var => self.var(&arguments, &at, place),
            Shape::Missing => self.missing(&arguments, &at, inside),
            Shape::MissingSome => self.missing_some(&arguments, &at, inside),
            Shape::Iterator => self.iterator(operator, &arguments, &at, inside),
            Shape::Reduce => self.reduce(&arguments, &at, inside),
            Shape::Lazy => self.plain(operator, &arguments, &at, inside),
            Shape::Numeric => self.plain(operator, &arguments, &at, Place { numeric: true, ..inside }),
            Shape::Plain => self.plain(operator, &arguments, &at, Place { numeric: false, ..inside }),
        }
    }

    fn plain(&mut self, operator: Operator, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        let mut checked = Vec::with_capacity(arguments.len());
        for (ix, argument) in arguments.iter().enumerate() {
            let value = self.rule(argument, &format!("{at}[{ix}]"), inside)?;
            checked.push(if operator.name == "cat" { self.without_null(value)? } else { value });
        }
        if operator.name == "substr" && checked[1..].iter().any(|n| n.as_i64().is_none_or(|n| n < 0)) {
            self.counts_from_end = true;
        }
        if matches!(operator.name, "<" | "<=" | ">" | ">=") {
            return self.not_null(operator.name, checked, at);
        }
        Ok(json!({ operator.name: checked }))
    }

    /// A comparison with a value that is not there is false. The reference counts null as 0 there, the evaluator does so
    /// only on one side; neither may let a missing score pass for one in range.
    fn not_null(&mut self, name: &str, arguments: Vec<Value>, at: &str) -> Checked {
        if arguments.iter().any(Value::is_null) {
            return Ok(json!(false));
        }
        let mut all: Vec<Value> = arguments
            .iter()
            .filter(|read| read.get("var").is_some())
            .map(|read| json!({"!==": [read, null]}))
            .collect();
        let comparison = json!({ name: arguments });
        if all.is_empty() {
            return Ok(comparison);
        }
        self.grow(at, 4 * all.len() + 1)?;
        all.push(comparison);
        Ok(json!({ "and": all }))
    }

    /// `cat` leaves a missing value out, as the reference does.
    fn without_null(&mut self, value: Value) -> Checked {
        if value.is_null() {
            return Ok(json!(""));
        }
        if value.get("var").is_none() {
            return Ok(value);
        }
        self.grow("", 5)?;
        Ok(json!({"if": [{"===": [value, null]}, "", value]}))
    }

    pub(super) fn count(&mut self, at: &str, depth: usize) -> Result<(), CompileError> {
        self.nodes += 1;
        if depth > RULE_DEPTH_MAX {
            return Err(CompileError::new(
                at,
                format!("Expected at most {RULE_DEPTH_MAX} levels, but the rule is deeper"),
            ));
        }
        if self.nodes > RULE_NODES_MAX {
            return Err(CompileError::new(
                at,
                format!("Expected at most {RULE_NODES_MAX} values in a rule, but it has more"),
            ));
        }
        self.grow(at, 1)
    }

    pub(super) fn grow(&mut self, at: &str, by: usize) -> Result<(), CompileError> {
        self.rewritten += by;
        if self.rewritten > REWRITTEN_NODES_MAX {
            return Err(CompileError::new(at, "Expected a simpler rule: its iterators over iterators multiply".into()));
        }
        Ok(())
    }
}

/// A whole number written as a float, as a whole number.
pub(super) fn whole(number: Option<f64>) -> Option<Value> {
    number.filter(|n| n.fract() == 0.0 && n.abs() <= SAFE_INTEGER_MAX as f64).map(|n| Value::from(n as i64))
}
