//! Every step is connected. A step without any edge would run at once, beside the others: hardly ever what was meant. In an
//! ordered list that is never meant: there only the first step is one that nothing leads to.

use super::Context;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    if cx.graph.steps().nth(1).is_none() {
        return;
    }
    if !cx.document.has_edges {
        return in_order(cx, findings);
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

/// A step behind a Branch is reached by a Branch, or by nobody.
fn in_order(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    // What is stored was taken by a build that may not have looked here, and its runs go on as they began.
    if cx.mode == Mode::Stored || cx.graph.by_id.len() < cx.document.steps.len() {
        return; // Ids that stand there twice have no edges, and their own finding.
    }
    let is_step = |id: &str| cx.graph.by_id.contains_key(id);
    let leads_astray = |ix: usize| {
        let targets = [&cx.step(ix).on_true, &cx.step(ix).on_false];
        cx.step(ix).is(Kind::Branch) && !targets.into_iter().flatten().all(|target| is_step(&target.value))
    };
    // A target that does not exist has its finding, and may be what should have led here.
    if cx.graph.steps().any(leads_astray) {
        return;
    }
    for ix in cx.graph.steps().skip(1).filter(|ix| cx.graph.previous(*ix).next().is_none()) {
        let id = &cx.step(ix).id;
        let message =
            format!("Expected a step that leads to `{}`, but it stands behind a Branch that leads elsewhere", id.value);
        findings.push(Finding::error("unreachable-step", id.spot, cx.step(ix).path.clone(), message));
    }
}
