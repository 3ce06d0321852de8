//! No definition starts itself, also not by way of others.

use super::Context;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::shape::workflow_reference;
use std::collections::{HashMap, VecDeque};

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(own) = cx.document.workflow.as_ref().map(|id| id.value.as_str()) else { return };
    if cx.mode == Mode::Stored {
        return;
    }
    for step in cx.document.steps.iter().filter(|step| step.is(Kind::SubWorkflow)) {
        let Some(reference) = &step.workflow else { continue };
        let Ok((child, _)) = workflow_reference(&reference.value) else { continue };
        if let Some(chain) = chain(cx, &child, own) {
            let names: Vec<String> =
                std::iter::once(own).chain(chain.iter().map(String::as_str)).map(|id| format!("`{id}`")).collect();
            let message = format!("Expected no definition that starts itself, but found {}", names.join(" → "));
            findings.push(Finding::error("sub-workflow-cycle", reference.spot, step.field("workflow"), message));
        }
    }
}

/// The shortest way from one definition to another, both named.
fn chain(cx: &Context<'_>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut came_from: HashMap<&str, &str> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(here) = queue.pop_front() {
        if here == to {
            let mut chain = vec![here.to_owned()];
            let mut at = here;
            while at != from {
                at = came_from[at];
                chain.push(at.to_owned());
            }
            chain.reverse();
            return Some(chain);
        }
        for next in cx.env.sub_workflows.get(here).into_iter().flatten() {
            if next != from && !came_from.contains_key(next.as_str()) {
                came_from.insert(next, here);
                queue.push_back(next);
            }
        }
    }
    None
}
