//! `{kind: world_variable_equals, variable: battery, value: 80}`: the observed world has the variable with exactly this value.
//!
//! No observed world, or no such variable: not satisfied. Null equals only a variable that is null.

use super::parameters::described;
use super::{Condition, ConditionKind, Facts, Fault, Parameters, Verdict};
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct WorldVariableEquals;

#[derive(Debug)]
struct Equals {
    variable: String,
    value: Value,
}

impl ConditionKind for WorldVariableEquals {
    fn name(&self) -> &str {
        "world_variable_equals"
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        let mut faults = parameters.only(&["variable", "value"]);
        let variable = parameters.text("variable").map_err(|fault| faults.push(fault));
        let value = parameters.get("value").cloned();
        if value.is_none() {
            faults.push(Fault::new("value", format!("Expected a value in `value`, but found {}", described(None))));
        }
        match (variable, value) {
            (Ok(variable), Some(value)) if faults.is_empty() => Ok(Arc::new(Equals { variable, value })),
            _ => Err(faults),
        }
    }
}

impl Condition for Equals {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        let world = facts.world();
        let found = world.as_ref().and_then(|world| world.get(&self.variable));
        Ok(Verdict::of(found.is_some_and(|found| is_same(found, &self.value))))
    }
}

/// 80 and 80.0 are the same number; all else is compared as it is.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
