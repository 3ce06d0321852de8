//! `{kind: step_result_success, step: open}`: the step ended and succeeded. A step that failed, was skipped, or has not ended
//! is not a success.

use super::{Condition, ConditionKind, Facts, Fault, Parameters, Verdict};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct StepResultSuccess;

/// Its name: the compiler asks for it, since a step whose result is asked for may fail without ending the run.
pub(crate) const NAME: &str = "step_result_success";

#[derive(Debug)]
struct Succeeded {
    step: String,
}

impl ConditionKind for StepResultSuccess {
    fn name(&self) -> &str {
        NAME
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        let mut faults = parameters.only(&["step"]);
        match parameters.text("step") {
            Ok(step) if faults.is_empty() => Ok(Arc::new(Succeeded { step })),
            Ok(_) => Err(faults),
            Err(fault) => {
                faults.push(fault);
                Err(faults)
            }
        }
    }
}

impl Condition for Succeeded {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        Ok(Verdict::of(facts.succeeded(&self.step) == Some(true)))
    }

    fn steps(&self) -> Vec<String> {
        vec![self.step.clone()]
    }
}
