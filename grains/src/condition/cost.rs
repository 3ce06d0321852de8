//! What an evaluation may cost, before it runs.
//!
//! The evaluator cannot be stopped once it runs, so the cost is bounded from above beforehand: from the rule, and from the
//! size of what its reads found. Unit: one value touched or copied, 32 bytes of text count as one. The bound is loose where
//! elements differ much in size, never too low.

use super::template::Rule;
use super::{COST_MAX, ITEMS_MAX, operators};
use serde_json::Value;

/// Upper bounds of one value.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// The whole of it.
    weight: u64,
    /// Elements, if it is a list.
    length: u64,
    /// Its greatest element.
    item: u64,
}

impl Size {
    const SCALAR: Size = Size { weight: 1, length: 0, item: 1 };

    fn of(value: &Value) -> Self {
        match value {
            Value::Array(elements) => {
                let mut size = Size { weight: 1, length: elements.len() as u64, item: 1 };
                for element in elements {
                    let weight = weight(element);
                    size.weight += weight;
                    size.item = size.item.max(weight);
                }
                size
            }
            other => Size { weight: weight(other), length: 0, item: weight(other) },
        }
    }

    /// Something inside of what weighs this much.
    fn inside(weight: u64) -> Self {
        Size { weight, length: weight, item: weight }
    }

    fn max(self, other: Self) -> Self {
        Size {
            weight: self.weight.max(other.weight),
            length: self.length.max(other.length),
            item: self.item.max(other.item),
        }
    }
}

fn weight(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 32,
        Value::Array(elements) => 1 + elements.iter().map(weight).sum::<u64>(),
        Value::Object(fields) => {
            1 + fields.iter().map(|(key, value)| key.len() as u64 / 32 + weight(value)).sum::<u64>()
        }
        _ => 1,
    }
}

/// What `var` sees.
#[derive(Clone, Copy)]
enum Scope<'a> {
    View { sizes: &'a [Size], weight: u64 },
    Item(Size),
    Reduce { current: Size, accumulator: Size },
}

/// What the evaluation costs at most.
///
/// # Errors
/// It could cost more than is left.
pub(super) fn check(rule: &Rule, slots: &[Option<Value>], left: u64) -> Result<u64, String> {
    let sizes: Vec<Size> = slots.iter().map(|slot| slot.as_ref().map_or(Size::SCALAR, Size::of)).collect();
    let view = Scope::View { sizes: &sizes, weight: 1 + sizes.iter().map(|size| size.weight).sum::<u64>() };
    let mut walk = Walk { longest: 0 };
    let (cost, _) = walk.rule(&rule.rule, view);
    if walk.longest > ITEMS_MAX {
        return Err(format!("Expected at most {ITEMS_MAX} elements in an iterator, but found up to {}", walk.longest));
    }
    if cost > left {
        return Err(format!(
            "Expected an evaluation that costs at most {COST_MAX}, but it could cost more on these values"
        ));
    }
    Ok(cost)
}

struct Walk {
    longest: u64,
}

impl Walk {
    /// Cost, and the size of the result.
    fn rule(&mut self, rule: &Value, scope: Scope<'_>) -> (u64, Size) {
        let Some((name, arguments)) = rule.as_object().and_then(|fields| fields.iter().next()) else {
            let size = Size::of(rule);
            return (size.weight, size);
        };
        let arguments: &[Value] = arguments.as_array().map_or(std::slice::from_ref(arguments), Vec::as_slice);
        match name.as_str() {
            "var" => var(arguments, scope),
            "map" => {
                let (cost, list) = self.list(&arguments[0], scope);
                let (each, result) = self.rule(&arguments[1], Scope::Item(Size::inside(list.item)));
                let result = Size {
                    weight: 1u64.saturating_add(list.length.saturating_mul(result.weight)),
                    length: list.length,
                    item: result.weight,
                };
                (cost.saturating_add(list.length.saturating_mul(each)).saturating_add(result.weight), result)
            }
            "filter" => {
                let (cost, list) = self.list(&arguments[0], scope);
                let (each, _) = self.rule(&arguments[1], Scope::Item(Size::inside(list.item)));
                (cost.saturating_add(list.length.saturating_mul(each)).saturating_add(list.weight), list)
            }
            "reduce" => self.reduce(arguments, scope),
            _ => self.plain(name, arguments, rule, scope),
        }
    }

    fn list(&mut self, rule: &Value, scope: Scope<'_>) -> (u64, Size) {
        let (cost, list) = self.rule(rule, scope);
        self.longest = self.longest.max(list.length);
        (cost, list)
    }

    fn reduce(&mut self, arguments: &[Value], scope: Scope<'_>) -> (u64, Size) {
        let (list_cost, list) = self.list(&arguments[0], scope);
        let (first_cost, first) = self.rule(&arguments[2], scope);
        let current = Size::inside(list.item);
        let accumulator = if is_scalar(&arguments[1]) {
            Size::inside(first.weight)
        } else {
            // `accumulator` appears once in the body, so each element adds at most what the body gives without it.
            let (_, growth) = self.rule(&arguments[1], Scope::Reduce { current, accumulator: Size::SCALAR });
            Size::inside(first.weight.saturating_add(list.length.saturating_mul(growth.weight)))
        };
        let (each, _) = self.rule(&arguments[1], Scope::Reduce { current, accumulator });
        (list_cost.saturating_add(first_cost).saturating_add(list.length.saturating_mul(each)), accumulator)
    }

    fn plain(&mut self, name: &str, arguments: &[Value], rule: &Value, scope: Scope<'_>) -> (u64, Size) {
        let lazy = matches!(name, "if" | "?:" | "and" | "or");
        // A lazy operator copies its arguments before it evaluates them.
        let mut cost = if lazy { weight(rule) } else { 1 };
        let mut greatest = Size::SCALAR;
        let mut sum = Size { weight: 1, length: 0, item: 1 };
        for argument in arguments {
            let (argument_cost, size) = self.rule(argument, scope);
            cost = cost.saturating_add(argument_cost).saturating_add(size.weight);
            greatest = greatest.max(size);
            sum.weight = sum.weight.saturating_add(size.weight);
            sum.length = sum.length.saturating_add(size.length.max(1));
            sum.item = sum.item.max(size.item);
        }
        let result = match name {
            _ if lazy || name == "substr" => greatest,
            "merge" | "cat" => sum,
            _ if operators::gives_scalar(name) => Size::SCALAR,
            _ => sum,
        };
        (cost, result)
    }
}

fn var(arguments: &[Value], scope: Scope<'_>) -> (u64, Size) {
    let key = arguments.first().and_then(Value::as_str).unwrap_or_default();
    match scope {
        Scope::View { sizes, weight } => {
            let found = key.parse::<usize>().ok().and_then(|slot| sizes.get(slot).copied());
            (1u64.saturating_add(weight), found.unwrap_or(Size::SCALAR))
        }
        Scope::Item(item) => (1u64.saturating_add(item.weight), item),
        Scope::Reduce { current, accumulator } => {
            let cost = 3u64.saturating_add(current.weight).saturating_add(accumulator.weight);
            let size = if key.starts_with("accumulator") {
                accumulator
            } else if key.starts_with("current") {
                current
            } else {
                Size::inside(cost)
            };
            (cost, size)
        }
    }
}

/// The rule gives a number or a boolean, whatever it is applied to.
fn is_scalar(rule: &Value) -> bool {
    let Some((name, arguments)) = rule.as_object().and_then(|fields| fields.iter().next()) else {
        return !rule.is_array() && !rule.is_string();
    };
    let each = || arguments.as_array().is_some_and(|arguments| arguments.iter().all(is_scalar));
    match name.as_str() {
        "if" | "?:" => arguments
            .as_array()
            .is_some_and(|arguments| arguments.iter().skip(1).step_by(2).chain(arguments.iter().last()).all(is_scalar)),
        "and" | "or" => each(),
        name => operators::gives_scalar(name),
    }
}
