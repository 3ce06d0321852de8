//! Every step is connected. A step without any edge would run at once, beside the others: hardly ever what was meant.

use super::Context;
use crate::definition::finding::Finding;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    // In an ordered list each step leads to the next.
    if cx.graph.steps().nth(1).is_none() || !cx.document.has_edges {
        return;
    }
    // With no edges at all the first step is as good a beginning as any.
    let first = if cx.graph.links.is_empty() { cx.graph.steps().next() } else { None };
    for ix in cx.graph.steps() {
        if Some(ix) == first || !cx.graph.incoming[ix].is_empty() || !cx.graph.outgoing[ix].is_empty() {
            continue;
        }
        let step = cx.step(ix);
        // An edge that names it but whose other end is unknown has its own finding.
        if cx.document.edges.iter().any(|edge| edge.from.value == step.id.value || edge.to.value == step.id.value) {
            continue;
        }
        let message =
            format!("Expected an edge to or from `{}`, but there is none: nothing leads to it", step.id.value);
        findings.push(Finding::error("unreachable-step", step.id.spot, step.path.clone(), message));
    }
}
