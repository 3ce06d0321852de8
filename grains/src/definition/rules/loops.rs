//! A loop-back leads back: every way to its source passes its target.

use super::Context;
use crate::definition::analysis::LOOPS_MAX;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::plan::Guard;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let all: Vec<_> = cx.graph.links.iter().filter(|link| link.loop_back).collect();
    if let Some(first) = all.get(LOOPS_MAX) {
        let edge = &cx.document.edges[first.edge];
        let message = format!("Expected at most {LOOPS_MAX} loop-backs, but found {}", all.len());
        findings.push(Finding::error("too-large", edge.spot, edge.path.clone(), message));
    }
    let Some(analysis) = cx.analysis else { return };
    for back in &analysis.loops {
        let edge = &cx.document.edges[back.edge];
        let (from, to) = (cx.id(back.source), cx.id(back.head));
        let mut error = |code, message| findings.push(Finding::error(code, edge.spot, edge.path.clone(), message));
        if back.body.is_empty() {
            error(
                "loop-not-back",
                format!(
                    "Expected a loop-back to lead to a step that every way to `{from}` passes, but `{to}` is not such a step"
                ),
            );
            continue;
        }
        if cx.step(back.head).is(Kind::Join) {
            error(
                "loop-into-join",
                format!(
                    "Expected a loop-back to lead to a step that can start again, but `{to}` is a Join, whose branches would not"
                ),
            );
        }
        if analysis.scopes[back.source] != analysis.scopes[back.head] {
            error(
                "fanout-border",
                format!(
                    "Expected a loop to stay inside or outside of a Fanout, but the edge from `{from}` to `{to}` crosses its border"
                ),
            );
        }
        if matches!(edge.guard, Guard::Always) && cx.mode != Mode::Stored {
            let message = format!(
                "Expected a guard on the loop-back from `{from}` to `{to}`, but there is none: it is taken each time, until the bound fails the step"
            );
            findings.push(Finding::warning("loop-without-guard", edge.spot, edge.path.clone(), message));
        }
    }
}
