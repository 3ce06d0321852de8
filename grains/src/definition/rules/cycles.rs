//! Forward edges form no cycle. The finding names all its steps, in order, with their lines.

use super::Context;
use crate::definition::finding::Finding;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    if cx.analysis.is_some() {
        return;
    }
    for cycle in cx.graph.cycles() {
        let mut names: Vec<String> =
            cycle.iter().map(|step| format!("`{}` (line {})", cx.id(*step), cx.step(*step).id.spot.line)).collect();
        names.push(format!("`{}`", cx.id(cycle[0])));
        let message =
            format!("Expected no cycle of edges that are not marked `isLoopBack`, but found {}", names.join(" → "));
        let first = cx.step(cycle[0]);
        findings.push(Finding::error("cycle", first.id.spot, first.path.clone(), message));
    }
}
