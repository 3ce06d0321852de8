//! A loop-back leads back: every way to its source passes its target. Loops lie inside or beside one another.

use super::Context;
use crate::definition::analysis::{LOOPS_MAX, LoopBack};
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
    overlaps(cx, &analysis.loops, findings);
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

/// Two loops that share some steps, and neither holds the other: when one of them goes back, half of the other starts anew
/// while its other half still belongs to the round before. Two with the same steps would each reset the other's bound. One
/// finding a loop-back, against the first loop in its way.
fn overlaps(cx: &Context<'_>, loops: &[LoopBack], findings: &mut Vec<Finding>) {
    for (at, back) in loops.iter().enumerate() {
        let nested = |other: &&LoopBack| other.members.holds(&back.members) != back.members.holds(&other.members);
        let meets = |other: &&LoopBack| other.members.meets(&back.members);
        let Some(other) = loops[..at].iter().find(|other| meets(other) && !nested(other)) else { continue };
        let names = [back.source, back.head, other.source, other.head].map(|step| cx.id(step));
        let found = if back.members.holds(&other.members) {
            "are around the same steps; one loop-back with both guards says that"
        } else {
            "share some of their steps only; let the paths meet in one step before the loop-back"
        };
        let message = format!(
            "Expected loops to lie inside or beside one another, but that from `{}` to `{}` and that from `{}` to `{}` {found}",
            names[0], names[1], names[2], names[3]
        );
        let edge = &cx.document.edges[back.edge];
        findings.push(Finding::error("loop-overlap", edge.spot, edge.path.clone(), message));
    }
}
