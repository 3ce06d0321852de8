//! `compensation` names a Compensation step. In a draft a name that no step has is taken for a tool.

use super::{Context, RESERVED};
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::tree::quote;
use grain_contract::limits::NAME_BYTES_MAX;
use std::collections::HashSet;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut used = HashSet::new();
    for step in &cx.document.steps {
        let Some(target) = &step.compensation else { continue };
        let path = step.field("compensation");
        used.insert(target.value.as_str());
        match cx.graph.by_id.get(&target.value).map(|ix| cx.step(*ix)) {
            None if !is_tool_name(&target.value) => {
                let message = format!("Expected the id of a Compensation step, but found {}", quote(&target.value));
                findings.push(Finding::error("unknown-step", target.spot, path, message));
            }
            None => {
                let message = format!(
                    "Expected the id of a Compensation step, but no step is called {0}; a draft takes it for the tool {0}",
                    quote(&target.value)
                );
                cx.undeclared(findings, "undeclared-compensation", target.spot, path, message);
            }
            Some(other) if other.kind.is_some() && !other.is(Kind::Compensation) => {
                let kind = other.kind.map_or("", |kind| kind.value.as_str());
                let message =
                    format!("Expected the id of a Compensation step, but `{}` is a step of kind {kind}", target.value);
                findings.push(Finding::error("bad-compensation", target.spot, path, message));
            }
            Some(_) => {}
        }
    }
    for step in cx.document.steps.iter().filter(|step| step.is(Kind::Compensation)) {
        if !used.contains(step.id.value.as_str()) && cx.mode != Mode::Stored {
            let message = format!("Expected a step that names `{}` as its compensation, but none does", step.id.value);
            findings.push(Finding::warning("unused-compensation", step.id.spot, step.path.clone(), message));
        }
    }
}

fn is_tool_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && !RESERVED.contains(&name)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
