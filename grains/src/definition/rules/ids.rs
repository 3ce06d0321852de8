//! Names: of the workflow, of its steps, of agents and tools.

use super::{Context, RESERVED};
use crate::definition::document::Placed;
use crate::definition::finding::Finding;
use crate::definition::tree::quote;
use grain_contract::limits::NAME_BYTES_MAX;
use std::collections::HashMap;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    // `.` is fine in the id of a definition, which no expression names.
    name(cx.document.workflow.as_ref(), "workflow", "._-", findings);
    name(cx.document.version.as_ref(), "version", "._-+", findings);
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (ix, step) in cx.document.steps.iter().enumerate() {
        let id = step.id.value.as_str();
        let path = step.field("id");
        name(Some(&step.id), &path, "_-", findings);
        if RESERVED.contains(&id) {
            let message = format!(
                "Expected a step id other than {}, which expressions use, but found `{id}`",
                RESERVED.join(", ")
            );
            findings.push(Finding::error("reserved-id", step.id.spot, path.clone(), message));
        }
        if let Some(other) = first.insert(id, ix) {
            let line = cx.step(other).id.spot.line;
            let message = format!(
                "Expected each step id once, but `{id}` of line {line} is here again, in line {}",
                step.id.spot.line
            );
            findings.push(Finding::error("doubled-step", step.id.spot, path, message));
        }
        for (field, value) in [("agent", &step.agent), ("tool", &step.tool)] {
            name(value.as_ref(), &step.field(field), "._-/:@", findings);
        }
    }
}

fn name(name: Option<&Placed<String>>, path: &str, also: &str, findings: &mut Vec<Finding>) {
    let Some(Placed { value, spot }) = name else { return };
    if value.len() <= NAME_BYTES_MAX && value.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c)) {
        return;
    }
    let signs: Vec<String> = also.chars().map(|c| format!("`{c}`")).collect();
    let message = format!(
        "Expected a name of at most {NAME_BYTES_MAX} letters, digits and {}, but found {}",
        signs.join(" "),
        quote(value)
    );
    findings.push(Finding::error("bad-name", *spot, path, message));
}
