//! A Fanout has branches that stay apart until its Join, and nothing enters them from the side.

use super::Context;
use crate::definition::document::Kind;
use crate::definition::finding::Finding;
use crate::definition::graph::Analysis;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(analysis) = cx.analysis else { return };
    let mut fanouts: Vec<(usize, Option<usize>)> =
        analysis.join_of.iter().map(|(fanout, join)| (*fanout, *join)).collect();
    fanouts.sort_unstable();
    for (fanout, join) in fanouts {
        branches(cx, fanout, join, findings);
        borders(cx, analysis, fanout, join, findings);
    }
}

fn branches(cx: &Context<'_>, fanout: usize, join: Option<usize>, findings: &mut Vec<Finding>) {
    let step = cx.step(fanout);
    let id = &step.id.value;
    let heads: Vec<usize> = cx.graph.next(fanout).collect();
    let dynamic = step.given.iter().any(|given| given.value == "items");
    let wanted =
        if dynamic { "exactly one edge, to the first step of each branch," } else { "an edge for each branch" };
    if heads.is_empty() || (dynamic && heads.len() != 1) {
        let message = format!("Expected {wanted} from the Fanout `{id}`, but found {}", heads.len());
        findings.push(Finding::error("fanout-branches", step.id.spot, step.path.clone(), message));
    }
    if let Some(join) = join
        && heads.contains(&join)
    {
        let message = format!(
            "Expected a step between the Fanout `{id}` and its Join `{}`, but an edge leads straight to it",
            cx.id(join)
        );
        findings.push(Finding::error("fanout-branches", step.id.spot, step.path.clone(), message));
    }
    if dynamic {
        return;
    }
    let mut branch_of: Vec<Option<usize>> = vec![None; cx.document.steps.len()];
    for (branch, &head) in heads.iter().enumerate() {
        for reached in cx.graph.reach([head], join) {
            match branch_of[reached] {
                Some(other) if other != branch => {
                    findings.push(meeting(cx, fanout, [heads[other], head], reached));
                    return;
                }
                _ => branch_of[reached] = Some(branch),
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

fn borders(cx: &Context<'_>, analysis: &Analysis, fanout: usize, join: Option<usize>, findings: &mut Vec<Finding>) {
    let inside = |step: usize| analysis.scopes[step].contains(&fanout);
    for link in cx.graph.links.iter().filter(|link| !link.loop_back) {
        let enters = inside(link.to) && !inside(link.from) && link.from != fanout;
        let joins = Some(link.to) == join && !inside(link.from) && link.from != fanout;
        if enters || joins {
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
