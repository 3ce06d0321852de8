//! A Join has branches to wait for, and a quorum they can reach.

use super::Context;
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
            let message = format!(
                "Expected a Fanout or at least two branches that lead to the Join `{id}`, but only one step does"
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
