//! Bounded JsonLogic: conditions, guards, mappings.
//!
//! An [`Expression`] is compiled once, when a definition is read, and evaluated on recorded values only. What it reads is
//! known before it runs, what it may cost is known before it runs, and data never becomes a rule. The evaluator below is
//! `jsonlogic-rs`; nothing of it is visible outside of this module, and it never sees a rule that `guard` has not
//! checked and rewritten.
//!
//! # The pinned meaning
//!
//! The public JsonLogic table (`public-table.json`, 275 cases) holds without exception. Where it is silent, the tests in
//! `tests.rs` are the table. The points that surprise people:
//!
//! * `<`, `<=`, `>`, `>=` are false when a value they read is null or absent: a missing score is in no range. (JavaScript
//!   would count it as 0. Where 0 is meant, say so: `{"var":["a.score",0]}`.)
//! * `missing` counts null and empty text as missing, as the reference does.
//! * A dot separates the parts of a `var` path; `\.` is a dot inside a key: `{"var":"probe.cpu\\.total"}` in JSON text. A path
//!   with an empty part is refused.
//! * `all` of an empty list is false; `some`, `all`, `none` and `in` on null are false, false, true and false; on another
//!   value that is not a list they fail.
//! * Whole numbers beyond ±(2^53 - 1) cannot be compared or computed with. A rule that holds one is refused, an evaluation
//!   that meets one in its data fails. They pass through untouched where they are only handed on.
//! * An operator inside a literal list (`{"in":[5,[{"var":"x"}]]}`) is refused: the evaluator would take it for data.

mod cost;
mod evaluate;
mod guard;
mod iterators;
pub mod kinds;
mod operators;
mod path;
mod reads;
mod template;
#[cfg(test)]
mod tests;

pub use guard::CompileError;

use serde_json::Value;
use template::Template;

/// Nesting of a rule.
pub const RULE_DEPTH_MAX: usize = 32;
/// Values and operators in one rule.
pub const RULE_NODES_MAX: usize = 500;
/// The same after the guard's rewriting.
pub const REWRITTEN_NODES_MAX: usize = 10_000;
/// Iterators (`map`, `filter`, `reduce`, `all`, `some`, `none`) inside one another.
pub const ITERATORS_NESTED_MAX: usize = 2;
/// Elements that one iterator may see.
pub const ITEMS_MAX: u64 = 10_000;
/// Estimated cost of one evaluation, in values touched. A million is some hundred milliseconds at the very worst.
pub const COST_MAX: u64 = 1_000_000;
/// The greatest whole number that a 64-bit float can tell from its neighbours.
pub const SAFE_INTEGER_MAX: i64 = 9_007_199_254_740_991;

/// A checked expression, ready to evaluate.
#[derive(Debug, Clone)]
pub struct Expression {
    template: Template,
    roots: Vec<String>,
}

/// Gives the evaluator the roots that a rule names (`input`, `vars`, `item`, `index`, step ids), so that only those are built.
pub trait View {
    /// `None` = absent, which reads as null.
    fn root(&self, name: &str) -> Option<Value>;
}

/// The evaluation failed: the step fails with class `condition`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    pub message: String,
}

impl Expression {
    /// Compiles a rule: a literal, a list of literals, or an object with one operator.
    ///
    /// # Errors
    /// Says what was expected, what was found, and where inside the rule.
    pub fn compile(rule: &Value) -> Result<Self, CompileError> {
        Template::rule(rule, "").map(Self::of)
    }

    /// Compiles a mapping: an object whose only key is an operator is a rule, any other object or list is a literal whose
    /// values are templates again.
    ///
    /// # Errors
    /// As [`Expression::compile`].
    pub fn compile_template(template: &Value) -> Result<Self, CompileError> {
        Template::of(template, "", 0).map(Self::of)
    }

    /// Always this value.
    pub fn constant(value: Value) -> Self {
        Self::of(Template::Literal(value))
    }

    /// The value of a root.
    pub fn of_root(name: &str) -> Self {
        Self::of(Template::Read(template::Read { parts: vec![name.to_owned()], numeric: false }))
    }

    /// The value at a path; the first part is the root.
    pub fn of_path(parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        Self::of(Template::Read(template::Read { parts, numeric: false }))
    }

    /// A list of the values of other expressions.
    pub fn list(values: Vec<Expression>) -> Self {
        Self::of(Template::List(values.into_iter().map(|value| value.template).collect()))
    }

    /// An object of the values of other expressions, by name.
    pub fn fields(fields: Vec<(String, Expression)>) -> Self {
        Self::of(Template::Object(fields.into_iter().map(|(name, value)| (name, value.template)).collect()))
    }

    /// An object of the values of other expressions.
    pub fn object<const N: usize>(fields: [(&str, Expression); N]) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.template));
        Self::of(Template::Object(fields.collect()))
    }

    fn of(template: Template) -> Self {
        let mut roots = Vec::new();
        template.collect_roots(&mut roots);
        roots.sort();
        roots.dedup();
        Self { template, roots }
    }

    /// Root names that the rule reads, sorted, without repetition.
    pub fn roots(&self) -> &[String] {
        &self.roots
    }

    /// The value of an expression that reads nothing and computes nothing.
    pub fn literal(&self) -> Option<&Value> {
        match &self.template {
            Template::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// Does the author's rule use this operator?
    pub fn uses(&self, operator: &str) -> bool {
        self.template.uses(operator)
    }

    /// # Errors
    /// The rule does not fit the values it met (a wrong type, a number out of range), or it would cost too much.
    pub fn evaluate(&self, view: &dyn View) -> Result<Value, EvalError> {
        evaluate::expression(&self.template, &self.roots, view)
    }
}

/// JsonLogic's truth: false, null, 0, "" and [] are false.
pub fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(_) => true,
    }
}

/// A number that the evaluator, which counts in 64-bit floats, would not keep apart from its neighbours.
pub(crate) fn is_unsafe_number(value: &Value) -> bool {
    let Value::Number(number) = value else { return false };
    match (number.as_i64(), number.as_u64()) {
        (Some(n), _) => !(-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n),
        (None, Some(_)) => true,
        (None, None) => number.as_f64().is_none_or(|n| n.abs() > SAFE_INTEGER_MAX as f64),
    }
}
