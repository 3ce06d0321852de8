//! Edges: both ends exist and take part, no edge is there twice, and its guard can be decided.

use super::Context;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::plan::{FailurePolicy, Guard};
use crate::definition::tree::quote;
use std::collections::HashMap;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first = HashMap::new();
    for edge in &cx.document.edges {
        for (end, name) in [("from", &edge.from), ("to", &edge.to)] {
            let path = if edge.is_implied { edge.path.clone() } else { format!("{}.{end}", edge.path) };
            match cx.graph.by_id.get(&name.value) {
                None => {
                    let message =
                        format!("Expected the id of a step, but found {}, which no step has", quote(&name.value));
                    findings.push(Finding::error("unknown-step", name.spot, path, message));
                }
                Some(ix) if !cx.graph.forward[*ix] => {
                    let message = format!(
                        "Expected a step of the forward graph, but `{}` is a Compensation step, which has no edges",
                        name.value
                    );
                    findings.push(Finding::error("compensation-edge", name.spot, path, message));
                }
                Some(_) => {}
            }
        }
        let key = (edge.from.value.as_str(), edge.to.value.as_str(), edge.guard_text.as_str(), edge.is_loop_back);
        if let Some(line) = first.insert(key, edge.spot.line) {
            let message = format!(
                "Expected one edge from `{}` to `{}` with this guard, but that of line {line} is here again",
                edge.from.value, edge.to.value
            );
            findings.push(Finding::error("doubled-edge", edge.spot, edge.path.clone(), message));
        }
        let Some(from) = cx.graph.by_id.get(&edge.from.value).map(|ix| cx.step(*ix)) else { continue };
        if from.is(Kind::Branch) && !edge.is_implied {
            let message = format!(
                "Expected no edge from `{}`, whose ways are its `onTrue` and `onFalse`, but there is one",
                from.id.value
            );
            findings.push(Finding::error("branch-edge", edge.spot, edge.path.clone(), message));
        }
        let path = format!("{}.guard", edge.path);
        match edge.guard {
            Guard::IsTrue | Guard::IsFalse
                if from.kind.is_some() && !from.is(Kind::Condition) && !from.is(Kind::Branch) =>
            {
                let message = format!(
                    "Expected a guard `true` or `false` only after a Condition, but `{}` is none",
                    from.id.value
                );
                findings.push(Finding::error("bad-guard", edge.guard_spot, path, message));
            }
            Guard::Failed
                if cx.mode != Mode::Stored
                    && !from.is_asked_about
                    && from.failure_policy.is_none_or(|p| p.value != FailurePolicy::Route) =>
            {
                let message = format!(
                    "Expected the failure policy `Route` in `{}`, since only then a failure takes an edge, but it has another; this edge is never taken",
                    from.id.value
                );
                findings.push(Finding::warning("guard-never-taken", edge.guard_spot, path, message));
            }
            _ => {}
        }
    }
}
