//! Evaluation: build the view, check the cost, run, check the result.

use super::template::{Read, Rule, Template};
use super::{COST_MAX, EvalError, SAFE_INTEGER_MAX, View, cost, guard, is_unsafe_number, operators, path};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Text of the evaluator that goes into a message; it may quote data.
const QUOTE_CHARS_MAX: usize = 300;

type Roots = HashMap<String, Value>;

/// What is left for the whole of an expression. A mapping holds many rules and reads, so the parts share it.
struct Budget {
    bytes: usize,
    cost: u64,
}

pub(super) fn expression(template: &Template, names: &[String], view: &dyn View) -> Result<Value, EvalError> {
    let roots: Roots = names.iter().filter_map(|name| Some((name.clone(), view.root(name)?))).collect();
    let mut budget = Budget { bytes: PAYLOAD_BYTES_MAX, cost: COST_MAX };
    of(template, &roots, &mut budget)
}

fn of(template: &Template, roots: &Roots, budget: &mut Budget) -> Result<Value, EvalError> {
    match template {
        Template::Literal(value) => {
            budget.take(value)?;
            Ok(value.clone())
        }
        Template::Read(read) => match found(read, roots) {
            Some(value) => {
                // Before the copy: a mapping may name a large value many times.
                budget.take(&value)?;
                Ok(value.into_owned())
            }
            None => Ok(Value::Null),
        },
        Template::Rule(rule) => {
            let slots = rule.reads.iter().map(|read| found(read, roots).map(Cow::into_owned)).collect();
            let value = run(rule, slots, budget)?;
            budget.take(&value)?;
            Ok(value)
        }
        Template::List(elements) => {
            elements.iter().map(|element| of(element, roots, budget)).collect::<Result<_, _>>().map(Value::Array)
        }
        Template::Object(fields) => {
            let mut object = Map::new();
            for (key, field) in fields {
                budget.bytes = budget.bytes.saturating_sub(key.len());
                object.insert(key.clone(), of(field, roots, budget)?);
            }
            Ok(Value::Object(object))
        }
    }
}

impl Budget {
    fn take(&mut self, value: &Value) -> Result<(), EvalError> {
        let size = size(value);
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| {
            failed(format!(
                "Expected a result of at most {PAYLOAD_BYTES_MAX} bytes, but a value of {size} bytes goes beyond that"
            ))
        })?;
        Ok(())
    }
}

fn found<'a>(read: &Read, roots: &'a Roots) -> Option<Cow<'a, Value>> {
    path::resolve(roots.get(&read.parts[0])?, &read.parts[1..])
}

fn run(rule: &Rule, mut slots: Vec<Option<Value>>, budget: &mut Budget) -> Result<Value, EvalError> {
    for (read, slot) in rule.reads.iter().zip(&mut slots) {
        let Some(value) = slot else { continue };
        refuse_unsafe(rule, read, value)?;
        if rule.counts_from_end && !is_ascii(value) {
            return Err(failed(format!(
                "Expected ASCII text where `substr` counts from the end, but `{}` has other characters",
                read.parts.join(".")
            )));
        }
        // The evaluator's `in` holds 1 and 1.0 for two values.
        if rule.operators.iter().any(|name| name == "in") {
            make_whole(value);
        }
    }
    budget.cost -= cost::check(rule, &slots, budget.cost).map_err(failed)?;
    let data: Map<String, Value> =
        slots.into_iter().enumerate().filter_map(|(slot, value)| Some((slot.to_string(), value?))).collect();
    apply(rule, &Value::Object(data))
}

/// The only place that calls the evaluator.
pub(super) fn apply(rule: &Rule, data: &Value) -> Result<Value, EvalError> {
    // The guard refuses every rule that is known to make the evaluator panic. This catches the one that is not known; the
    // state it could leave half done is its own.
    let result = catch_unwind(AssertUnwindSafe(|| jsonlogic_rs::apply(&rule.rule, data)))
        .map_err(|_| failed("Expected the evaluator to give a value, but it broke off".into()))?;
    let value = result.map_err(|error| {
        let said: String = error.to_string().chars().take(QUOTE_CHARS_MAX).collect();
        failed(format!("Expected values that the rule can be applied to, but the evaluator said: {said}"))
    })?;
    let computed =
        rule.rule.as_object().and_then(|fields| fields.keys().next()).is_some_and(|name| operators::computes(name));
    if computed && is_unsafe_number(&value) {
        return Err(failed(format!("Expected a number within ±{SAFE_INTEGER_MAX}, but the result is beyond it")));
    }
    Ok(value)
}

fn refuse_unsafe(rule: &Rule, read: &Read, value: &Value) -> Result<(), EvalError> {
    let refuse = |number: &Value| {
        failed(format!(
            "Expected a number within ±{SAFE_INTEGER_MAX} in `{}`, but found {number}; compare such a number as text",
            read.parts.join(".")
        ))
    };
    if read.numeric && is_unsafe_number(value) {
        return Err(refuse(value));
    }
    let Value::Array(elements) = value else { return Ok(()) };
    if read.numeric
        && let Some(number) = elements.iter().find(|element| is_unsafe_number(element))
    {
        return Err(refuse(number));
    }
    for element in elements {
        for parts in &rule.item_reads {
            if let Some(number) = path::resolve(element, parts).filter(|found| is_unsafe_number(found)) {
                return Err(refuse(&number));
            }
        }
    }
    Ok(())
}

fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = guard::whole(number.as_f64()) {
                *value = whole;
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

fn is_ascii(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_ascii(),
        Value::Array(elements) => elements.iter().all(is_ascii),
        Value::Object(fields) => fields.values().all(is_ascii),
        _ => true,
    }
}

fn size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("a JSON value is always writable, and counting cannot fail");
    count.0
}

fn failed(message: String) -> EvalError {
    EvalError { message }
}
