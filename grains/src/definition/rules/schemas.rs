//! Input and output name schemas that are at hand and are schemas.

use super::Context;
use crate::definition::environment::Mode;
use crate::definition::finding::{Finding, Spot};
use crate::definition::schema;
use crate::definition::tree::quote;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    if cx.mode == Mode::Stored {
        return;
    }
    for (field, reference) in [("input", &cx.document.input), ("output", &cx.document.output)] {
        let Some(reference) = reference else {
            let message =
                format!("Expected the reference of a schema in `{field}`, but there is none; a draft takes any value");
            cx.undeclared(findings, "undeclared-schema", Spot::default(), field.to_owned(), message);
            continue;
        };
        if schema::is_builtin(&reference.value) {
            continue;
        }
        match cx.env.schemas.get(&reference.value) {
            None => {
                let message = format!(
                    "Expected a schema called {}, but it was not handed in; a draft takes any value",
                    quote(&reference.value)
                );
                cx.undeclared(findings, "unknown-schema", reference.spot, field.to_owned(), message);
            }
            Some(text) => {
                if let Err(reason) = schema::Schema::compile(text) {
                    let message = format!("Expected a JSON Schema in {}, but {reason}", quote(&reference.value));
                    findings.push(Finding::error("bad-schema", reference.spot, field, message));
                }
            }
        }
    }
}
