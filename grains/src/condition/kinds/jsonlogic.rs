//! `{kind: jsonlogic, rule: {">": [{"var": "world.unread"}, 3]}}`: a JsonLogic rule over outputs and variables, as in a
//! Condition step, and over the observed `scene` and `world`. In a document the rule may be JSON text as well; then it has
//! become the native form before it comes here.

use super::parameters::described;
use super::{Condition, ConditionKind, Facts, Fault, Parameters, Verdict};
use crate::condition::{Expression, truthy};
use std::sync::Arc;

pub(crate) const NAME: &str = "jsonlogic";

#[derive(Debug)]
pub(super) struct JsonLogic;

#[derive(Debug)]
struct Rule(Expression);

impl ConditionKind for JsonLogic {
    fn name(&self) -> &str {
        NAME
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        let mut faults = parameters.only(&["rule"]);
        let rule = match parameters.get("rule") {
            Some(rule) if rule.is_object() => Expression::compile(rule).map_err(|error| error.to_string()),
            found => Err(format!("Expected a JsonLogic rule in `rule`, but found {}", described(found))),
        };
        match rule {
            Ok(rule) if faults.is_empty() => Ok(Arc::new(Rule(rule))),
            Ok(_) => Err(faults),
            Err(message) => {
                faults.push(Fault::new("rule", message));
                Err(faults)
            }
        }
    }
}

impl Condition for Rule {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        facts.evaluate(&self.0).map(|value| Verdict::of(truthy(&value)))
    }

    fn rule(&self) -> Option<&Expression> {
        Some(&self.0)
    }
}
