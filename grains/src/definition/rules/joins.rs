//! A Join has branches to wait for, and a quorum they can reach.

use super::Context;
use crate::definition::analysis::Analysis;
use crate::definition::document::Kind;
use crate::definition::finding::Finding;
use crate::definition::plan::Quorum;
use std::collections::HashSet;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    for ix in cx.graph.steps().filter(|ix| cx.step(*ix).is(Kind::Join)) {
        let step = cx.step(ix);
        let id = &step.id.value;
        // Two edges of one step are one branch.
        let incoming = cx.graph.previous(ix).collect::<HashSet<_>>().len();
        if incoming == 0 {
            let message =
                format!("Expected at least one branch that leads to the Join `{id}`, but nothing leads to it");
            findings.push(Finding::error("join-of-nothing", step.id.spot, step.path.clone(), message));
            continue;
        }
        // Without an analysis (a cycle) nobody can say which Fanout it belongs to.
        let Some(analysis) = cx.analysis else { continue };
        let fanout = analysis.fanout_of(ix);
        if fanout.is_none() && incoming == 1 {
            let taken = ended_before(cx, analysis, ix).map_or_else(String::new, |(fanout, join)| {
                format!(
                    "; the Fanout `{}` has ended in `{}` before, the first Join that every way from it passes, so let paths inside a branch meet in a step of another kind",
                    cx.id(fanout),
                    cx.id(join)
                )
            });
            let message = format!(
                "Expected a Fanout or at least two branches that lead to the Join `{id}`, but only one step does{taken}"
            );
            findings.push(Finding::error("join-of-nothing", step.id.spot, step.path.clone(), message));
        }
        let branches = match fanout {
            Some(fanout) if cx.step(fanout).given.iter().any(|given| given.value == "items") => None,
            Some(fanout) => Some(cx.graph.next(fanout).count()),
            None => Some(incoming),
        };
        if let (Some(quorum), Some(branches)) = (&step.quorum, branches)
            && let Quorum::Count(count) = quorum.value
            && count as usize > branches
        {
            let message = format!("Expected a quorum of at most {branches}, the number of branches, but found {count}");
            findings.push(Finding::error("quorum-too-large", quorum.spot, step.field("quorum"), message));
        }
    }
}

/// The Join of a Fanout that the only path to this Join passes, and that Fanout.
fn ended_before(cx: &Context<'_>, analysis: &Analysis, join: usize) -> Option<(usize, usize)> {
    let mut here = join;
    // Each turn goes one step back in a graph without cycles.
    loop {
        let mut before = cx.graph.previous(here);
        here = before.next()?;
        if let Some(fanout) = analysis.fanout_of(here) {
            return Some((fanout, here));
        }
        if before.any(|other| other != here) {
            return None;
        }
    }
}
