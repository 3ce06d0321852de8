//! The guard's part on `map`, `filter`, `reduce`, `all`, `some` and `none`.

use super::ITERATORS_NESTED_MAX;
use super::guard::{Checked, CompileError, Guard, Place, Scope};
use super::operators::Operator;
use serde_json::{Value, json};

impl Guard {
    pub(super) fn iterator(&mut self, operator: Operator, arguments: &[&Value], at: &str, inside: Place) -> Checked {
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

    pub(super) fn reduce(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
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
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(nodes).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}
