//! A Fanout has branches that stay apart until its Join, and nothing enters them from the side.

use super::Context;
use crate::definition::analysis::{Analysis, FANOUTS_NESTED_MAX};
use crate::definition::document::Kind;
use crate::definition::finding::Finding;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(analysis) = cx.analysis else { return };
    let mut fanouts: Vec<(usize, Option<usize>)> =
        analysis.join_of.iter().map(|(fanout, join)| (*fanout, *join)).collect();
    fanouts.sort_unstable();
    for (fanout, join) in fanouts {
        if analysis.scopes[fanout].len() >= FANOUTS_NESTED_MAX {
            let step = cx.step(fanout);
            let message = format!(
                "Expected at most {FANOUTS_NESTED_MAX} Fanouts inside one another, but `{}` is inside as many",
                step.id.value
            );
            findings.push(Finding::error("too-deep", step.id.spot, step.path.clone(), message));
        }
        branches(cx, fanout, join, findings);
    }
    borders(cx, analysis, findings);
}

fn branches(cx: &Context<'_>, fanout: usize, join: Option<usize>, findings: &mut Vec<Finding>) {
    let step = cx.step(fanout);
    let id = &step.id.value;
    let heads: Vec<usize> = cx.graph.next(fanout).collect();
    let dynamic = step.given.iter().any(|given| given.value == "items");
    if heads.is_empty() {
        let message = format!("Expected an edge from the Fanout `{id}` to each of its branches, but there is none");
        findings.push(Finding::error("fanout-branches", step.id.spot, step.path.clone(), message));
    }
    if dynamic {
        // In a static one it is a branch that has nothing to do, often behind a guard.
        if let Some(join) = join.filter(|join| heads.contains(join)) {
            let message = format!(
                "Expected a step between the Fanout `{id}` and its Join `{}`, but an edge leads straight to it",
                cx.id(join)
            );
            findings.push(Finding::error("fanout-branches", step.id.spot, step.path.clone(), message));
        }
        return;
    }
    let mut branch_of: Vec<Option<usize>> = vec![None; cx.document.steps.len()];
    for (branch, &head) in heads.iter().enumerate() {
        let mut open = vec![head];
        while let Some(step) = open.pop() {
            match branch_of[step] {
                _ if Some(step) == join => {}
                None => {
                    branch_of[step] = Some(branch);
                    open.extend(cx.graph.next(step));
                }
                Some(other) if other != branch => {
                    findings.push(meeting(cx, fanout, [heads[other], head], step));
                    return;
                }
                Some(_) => {}
            }
        }
    }
}

fn meeting(cx: &Context<'_>, fanout: usize, heads: [usize; 2], place: usize) -> Finding {
    let step = cx.step(place);
    let [one, other] = heads.map(|head| cx.id(head));
    let reason = if step.is(Kind::Join) { ", which not every branch reaches" } else { ", which is no Join" };
    let message = format!(
        "Expected the branches of `{}` to meet in a Join that all of them reach, but those of `{one}` and `{other}` meet in `{}`{reason}",
        cx.id(fanout),
        cx.id(place)
    );
    Finding::error("branches-meet", step.id.spot, step.path.clone(), message)
}

/// One finding an edge, for the outermost border that it crosses.
fn borders(cx: &Context<'_>, analysis: &Analysis, findings: &mut Vec<Finding>) {
    for link in cx.graph.links.iter().filter(|link| !link.loop_back) {
        let (from, to) = (&analysis.scopes[link.from], &analysis.scopes[link.to]);
        let outside = |fanout: &usize| *fanout != link.from && !from.contains(fanout);
        // Both lists are in one order, so that of an edge that stays inside is a beginning of the other.
        let entered = if from.starts_with(to) { None } else { to.iter().copied().find(outside) };
        let joined = analysis.fanout_of(link.to).filter(outside);
        if let Some(fanout) = entered.or(joined) {
            let edge = &cx.document.edges[link.edge];
            let message = format!(
                "Expected only the branches of the Fanout `{}` to lead to `{}`, but the edge from `{}` comes from outside",
                cx.id(fanout),
                cx.id(link.to),
                cx.id(link.from)
            );
            findings.push(Finding::error("fanout-border", edge.spot, edge.path.clone(), message));
        }
    }
}
