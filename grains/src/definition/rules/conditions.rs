//! Conditions of registered kinds: the kind takes these parameters, and the steps it reads exist.
//!
//! A kind that nobody registered is a warning: it may be registered by the time the step runs, and if not the step fails.

use super::Context;
use crate::condition::kinds::How;
use crate::definition::document::{Question, Step};
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::tree::quote;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    for step in &cx.document.steps {
        let Some(question) = &step.condition else { continue };
        match cx.env.conditions.condition(&question.kind.value, &question.parameters) {
            Ok(How::Here(condition)) => {
                for read in condition.steps() {
                    if !cx.graph.by_id.contains_key(&read) {
                        let message =
                            format!("Expected the id of a step, but found {}, which no step has", quote(&read));
                        findings.push(fault(step, question, "step", "unknown-step", message));
                    }
                }
            }
            Ok(How::Served) => {}
            Ok(How::Unknown) if cx.mode == Mode::Stored => {}
            Ok(How::Unknown) => {
                let (kind, path) = (&question.kind, format!("{}.kind", step.field("condition")));
                let message = format!(
                    "Expected one of the condition kinds {}, but found {}; unless it is registered by then, the step fails",
                    cx.env.conditions.names().join(", "),
                    quote(&kind.value)
                );
                findings.push(Finding::warning("unknown-condition-kind", kind.spot, path, message));
            }
            Err(faults) => {
                let bad = faults.into_iter().map(|bad| fault(step, question, &bad.field, "bad-condition", bad.message));
                findings.extend(bad);
            }
        }
    }
}

fn fault(step: &Step, question: &Question, field: &str, code: &'static str, message: String) -> Finding {
    Finding::error(code, question.spot_of(field), format!("{}.{field}", step.field("condition")), message)
}
