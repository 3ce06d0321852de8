//! An ordered list of steps as a graph: the edges that follow from the order and from the Branches.
//!
//! Without the key `edges` each step leads to the next one of the list; Compensation steps stand outside of it. A Branch
//! leads to its two targets instead, in a graph with written edges too. A target that stands at or before its Branch is a
//! loop-back, bounded like any other.
//!
//! A failed step ends the run. But if the next step is a Branch that asks whether that very step succeeded, the failure is its
//! answer: the step leads there either way.

use super::document::{Document, Edge, Kind, Placed, Question, Step};
use super::plan::Guard;
use crate::condition::kinds::STEP_RESULT_SUCCESS;
use std::collections::HashMap;

/// Adds the implied edges behind the written ones.
pub(super) fn complete(document: &mut Document) {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (ix, step) in document.steps.iter().enumerate() {
        places.entry(step.id.value.clone()).or_insert(ix);
    }
    if places.len() < document.steps.len() {
        return; // An id stands there twice, which is a finding; edges would lead to the wrong one of them.
    }
    let listed: Vec<usize> =
        (0..document.steps.len()).filter(|ix| !document.steps[*ix].is(Kind::Compensation)).collect();
    for (place, &ix) in listed.iter().enumerate() {
        if document.steps[ix].is(Kind::Branch) {
            document.edges.extend(branches(&document.steps[ix], ix, &places));
            continue;
        }
        let Some(&next) = listed.get(place + 1).filter(|_| !document.has_edges) else { continue };
        let is_asked_about = asks_about(&document.steps[next], &document.steps[ix]);
        document.steps[ix].is_asked_about = is_asked_about;
        let (from, to) = (&document.steps[ix], &document.steps[next]);
        let mut edges = vec![default_edge(from, to, Guard::Always)];
        if is_asked_about {
            edges.push(default_edge(from, to, Guard::Failed));
        }
        document.edges.extend(edges);
    }
}

fn branches(branch: &Step, ix: usize, places: &HashMap<String, usize>) -> Vec<Edge> {
    let roads = [("onTrue", &branch.on_true, Guard::IsTrue), ("onFalse", &branch.on_false, Guard::IsFalse)];
    let edge = |(field, target, guard): (&str, &Option<Placed<String>>, Guard)| {
        let to = target.clone()?;
        Some(Edge {
            path: branch.field(field),
            is_implied: true,
            spot: to.spot,
            from: branch.id.clone(),
            is_loop_back: places.get(&to.value).is_some_and(|target| *target <= ix),
            guard_text: field.to_owned(),
            guard_spot: to.spot,
            to,
            guard,
        })
    };
    roads.into_iter().filter_map(edge).collect()
}

fn default_edge(from: &Step, to: &Step, guard: Guard) -> Edge {
    Edge {
        path: from.path.clone(),
        is_implied: true,
        spot: from.id.spot,
        from: from.id.clone(),
        to: to.id.clone(),
        guard_text: format!("{guard:?}"),
        guard,
        guard_spot: from.id.spot,
        is_loop_back: false,
    }
}

fn asks_about(next: &Step, step: &Step) -> bool {
    let asked = |question: &Question| {
        question.kind.value == STEP_RESULT_SUCCESS
            && question.parameters.get("step").and_then(serde_json::Value::as_str) == Some(step.id.value.as_str())
    };
    next.is(Kind::Branch) && next.condition.as_ref().is_some_and(asked)
}
