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

use super::operators::{self, Operator, Shape};
use super::template::{Read, Rule};
use super::{ITERATORS_NESTED_MAX, REWRITTEN_NODES_MAX, RULE_DEPTH_MAX, RULE_NODES_MAX, SAFE_INTEGER_MAX};
use super::{is_unsafe_number, path};
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
enum Scope {
    View,
    Item,
    Reduce,
}

#[derive(Clone, Copy)]
struct Place {
    scope: Scope,
    depth: usize,
    iterators: usize,
    /// The value here is compared or computed with.
    numeric: bool,
}

pub(super) struct Guard {
    nodes: usize,
    rewritten: usize,
    reads: Vec<Read>,
    item_reads: Vec<Vec<String>>,
    operators: Vec<String>,
    accumulators: usize,
    counts_from_end: bool,
    /// Reads stay as they are: for the public table, whose data is not a set of named roots.
    #[cfg_attr(not(test), allow(dead_code))]
    keep_reads: bool,
}

type Checked = Result<Value, CompileError>;

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

    fn rule(&mut self, value: &Value, at: &str, place: Place) -> Checked {
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

    fn literal(&mut self, value: &Value, at: &str, depth: usize) -> Checked {
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

    fn var(&mut self, arguments: &[&Value], at: &str, place: Place) -> Checked {
        let default = match arguments.get(1) {
            None => None,
            Some(Value::Array(_) | Value::Object(_)) => {
                return Err(CompileError::new(
                    at,
                    "Expected a plain value as the default of `var`, but found a list or an object".into(),
                ));
            }
            Some(default) => Some(self.literal(default, at, place.depth)?),
        };
        let key = match arguments.first() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(key)) => key.clone(),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => number.to_string(),
            Some(rule @ Value::Object(_)) if self.keep_reads => {
                let key =
                    self.rule(rule, &format!("{at}[0]"), Place { depth: place.depth + 1, numeric: false, ..place })?;
                return Ok(json!({"var": [key]}));
            }
            Some(Value::Object(_)) => {
                return Err(CompileError::new(
                    at,
                    "Expected a constant path, but found a computed one; what an expression reads must be known beforehand".into(),
                ));
            }
            Some(other) => {
                return Err(CompileError::new(at, format!("Expected a path, but found {other}")));
            }
        };
        let read = self.read(&key, at, place)?;
        match default {
            // The whole of the data has no default.
            Some(default) if !key.is_empty() => {
                self.grow(at, 6)?;
                Ok(json!({"if": [{"!==": [read, null]}, read, default]}))
            }
            _ => Ok(read),
        }
    }

    /// `{"var": key}` in its final form.
    fn read(&mut self, key: &str, at: &str, place: Place) -> Checked {
        if key.is_empty() {
            if place.scope == Scope::View && !self.keep_reads {
                return Err(CompileError::new(
                    at,
                    "Expected a path that begins with `input`, `vars` or a step, but found an empty one".into(),
                ));
            }
            if place.scope != Scope::View && place.numeric {
                self.item_reads.push(Vec::new());
            }
            return Ok(json!({"var": ""}));
        }
        let parts = path::split(key).map_err(|message| CompileError::new(at, message))?;
        match place.scope {
            Scope::View if !self.keep_reads => {
                let slot = match self.reads.iter().position(|read| read.parts == parts) {
                    Some(slot) => slot,
                    None => {
                        self.reads.push(Read { parts, numeric: false });
                        self.reads.len() - 1
                    }
                };
                self.reads[slot].numeric |= place.numeric;
                return Ok(json!({"var": slot.to_string()}));
            }
            Scope::View => {}
            Scope::Item => {
                if place.numeric {
                    self.item_reads.push(parts);
                }
            }
            Scope::Reduce => {
                if parts[0] == "accumulator" {
                    self.accumulators += 1;
                }
                if place.numeric && parts[0] == "current" {
                    self.item_reads.push(parts[1..].to_vec());
                }
            }
        }
        Ok(json!({"var": key}))
    }

    /// Each key as a `var`, or `None` if the keys are computed.
    fn keys<'a>(
        &mut self,
        keys: &[&'a Value],
        at: &str,
        place: Place,
    ) -> Result<Option<Vec<(&'a Value, Value)>>, CompileError> {
        let mut reads = Vec::new();
        for (ix, key) in keys.iter().enumerate() {
            let at = format!("{at}[{ix}]");
            self.count(&at, place.depth)?;
            let name = match key {
                Value::String(name) if !name.is_empty() => name.clone(),
                Value::Number(number) if number.is_i64() => number.to_string(),
                Value::Object(_) if self.keep_reads => return Ok(None),
                other => return Err(CompileError::new(&at, format!("Expected a constant path, but found {other}"))),
            };
            let read = self.read(&name, &at, Place { numeric: false, ..place })?;
            self.grow(&at, 12)?;
            reads.push((*key, read));
        }
        Ok(Some(reads))
    }

    fn missing(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        // As the reference: a list as first argument is the list of keys.
        let keys: Vec<&Value> = match arguments.first() {
            Some(Value::Array(keys)) => keys.iter().collect(),
            _ => arguments.to_vec(),
        };
        let Some(keys) = self.keys(&keys, at, inside)? else {
            let rule = self.rule(arguments[0], at, inside)?;
            return Ok(json!({"missing": rule}));
        };
        Ok(missing_of(&keys))
    }

    fn missing_some(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        let (Value::Number(needed), Value::Array(keys)) = (arguments[0], arguments[1]) else {
            return Err(CompileError::new(at, "Expected a number and a list of paths for `missing_some`".into()));
        };
        let keys: Vec<&Value> = keys.iter().collect();
        let Some(keys) = self.keys(&keys, at, inside)? else {
            return Err(CompileError::new(at, "Expected constant paths, but found computed ones".into()));
        };
        let present: Vec<Value> = keys.iter().map(|(_, read)| json!({"if": [is_present(read), 1, 0]})).collect();
        Ok(json!({"if": [{">=": [{"+": present}, needed]}, [], missing_of(&keys)]}))
    }

    fn iterator(&mut self, operator: Operator, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        let list = self.rule(arguments[0], &format!("{at}[0]"), Place { numeric: false, ..inside })?;
        let body_at = format!("{at}[1]");
        let body = self.rule(arguments[1], &body_at, self.body(&body_at, inside, Scope::Item)?)?;
        Ok(match operator.name {
            "some" => json!({"!!": [{"filter": [list, body]}]}),
            "none" => json!({"!": [{"filter": [list, body]}]}),
            "all" => {
                self.grow(at, nodes(&list))?;
                json!({"and": [{"!!": [list]}, {"!": [{"filter": [list, {"!": [body]}]}]}]})
            }
            name => json!({ name: [list, body] }),
        })
    }

    fn reduce(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        let list = self.rule(arguments[0], &format!("{at}[0]"), Place { numeric: false, ..inside })?;
        let before = std::mem::take(&mut self.accumulators);
        let body_at = format!("{at}[1]");
        let body = self.rule(arguments[1], &body_at, self.body(&body_at, inside, Scope::Reduce)?)?;
        if std::mem::replace(&mut self.accumulators, before) > 1 {
            return Err(CompileError::new(
                &body_at,
                "Expected `accumulator` at most once in the body of `reduce`, but found it more often; its size could double with each element"
                    .into(),
            ));
        }
        let first = self.rule(arguments[2], &format!("{at}[2]"), inside)?;
        Ok(json!({"reduce": [list, body, first]}))
    }

    fn body(&self, at: &str, inside: Place, scope: Scope) -> Result<Place, CompileError> {
        let iterators = inside.iterators + 1;
        if iterators > ITERATORS_NESTED_MAX {
            return Err(CompileError::new(
                at,
                format!("Expected at most {ITERATORS_NESTED_MAX} iterators inside one another, but found {iterators}"),
            ));
        }
        Ok(Place { scope, iterators, numeric: false, ..inside })
    }

    fn count(&mut self, at: &str, depth: usize) -> Result<(), CompileError> {
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

    fn grow(&mut self, at: &str, by: usize) -> Result<(), CompileError> {
        self.rewritten += by;
        if self.rewritten > REWRITTEN_NODES_MAX {
            return Err(CompileError::new(at, "Expected a simpler rule: its iterators over iterators multiply".into()));
        }
        Ok(())
    }
}

fn is_present(read: &Value) -> Value {
    json!({"and": [{"!==": [read, null]}, {"!==": [read, ""]}]})
}

fn missing_of(keys: &[(&Value, Value)]) -> Value {
    let each: Vec<Value> = keys.iter().map(|(key, read)| json!({"if": [is_present(read), [], [key]]})).collect();
    json!({ "merge": each })
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(nodes).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// A whole number written as a float, as a whole number.
pub(super) fn whole(number: Option<f64>) -> Option<Value> {
    number.filter(|n| n.fract() == 0.0 && n.abs() <= SAFE_INTEGER_MAX as f64).map(|n| Value::from(n as i64))
}
