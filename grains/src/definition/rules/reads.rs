//! Expressions read what can be there: `input`, `vars`, steps that can have run before, and inside a dynamic Fanout `item`
//! and `index`.

use super::{Context, RESERVED};
use crate::condition::Expression;
use crate::condition::kinds::How;
use crate::definition::analysis::Bits;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::{Finding, Spot};
use crate::definition::plan::{Guard, Wait};
use crate::definition::tree::quote;

/// Where an expression stands.
struct Reader<'a> {
    path: String,
    spot: Spot,
    expression: &'a Expression,
    /// The step whose scope it has.
    step: usize,
    /// The step itself has run (a guard of its outgoing edge).
    after: bool,
    /// `scene` and `world` are the run's observations (a condition of kind `jsonlogic`).
    observes: bool,
}

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    // Kept beside the document: a condition is made of its parameters anew.
    let asked: Vec<_> = (cx.document.steps.iter().enumerate())
        .filter_map(|(ix, step)| {
            let question = step.condition.as_ref()?;
            match cx.env.conditions.condition(&question.kind.value, &question.parameters) {
                Ok(How::Here(condition)) => Some((ix, question.spot_of("rule"), condition)),
                _ => None,
            }
        })
        .collect();
    let mut readers = Vec::new();
    for (ix, spot, condition) in &asked {
        if let Some(expression) = condition.rule() {
            let path = format!("{}.rule", cx.step(*ix).field("condition"));
            readers.push(Reader { path, spot: *spot, expression, step: *ix, after: false, observes: true });
        }
    }
    for (ix, step) in cx.document.steps.iter().enumerate() {
        let waits = [("delay", &step.delay), ("until", &step.until)].map(|(field, wait)| match wait {
            Some(wait) => match &wait.value {
                Wait::Computed(expression) => Some((field, wait.spot, expression)),
                _ => None,
            },
            None => None,
        });
        let plain = [("inputMapping", &step.input_mapping), ("expression", &step.expression), ("items", &step.items)]
            .map(|(field, expression)| expression.as_ref().map(|found| (field, found.spot, &found.value)));
        for (field, spot, expression) in plain.into_iter().chain(waits).flatten() {
            readers.push(Reader { path: step.field(field), spot, expression, step: ix, after: false, observes: false });
        }
    }
    for edge in &cx.document.edges {
        if let (Guard::Rule(expression), Some(&step)) = (&edge.guard, cx.graph.by_id.get(&edge.from.value)) {
            let path = format!("{}.guard", edge.path);
            readers.push(Reader { path, spot: edge.guard_spot, expression, step, after: true, observes: false });
        }
    }
    for reader in readers {
        roots(cx, &reader, findings);
        lint(cx, &reader, findings);
    }
}

fn roots(cx: &Context<'_>, reader: &Reader<'_>, findings: &mut Vec<Finding>) {
    let mut before: Option<Bits> = None;
    for root in reader.expression.roots() {
        let fault = match root.as_str() {
            "input" | "vars" => None,
            "scene" | "world" if reader.observes => None,
            "item" | "index" => outside_of_items(cx, reader, root),
            name => match cx.graph.by_id.get(name) {
                None => {
                    let observed = if reader.observes { ", scene, world" } else { "" };
                    let known = RESERVED.join(", ");
                    let message = format!("Expected {known}{observed} or the id of a step, but found {}", quote(name));
                    Some(("unknown-root", message))
                }
                Some(&read) => step_fault(cx, reader, read, &mut before),
            },
        };
        if let Some((code, message)) = fault {
            findings.push(Finding::error(code, reader.spot, reader.path.clone(), message));
        }
    }
}

type Fault = Option<(&'static str, String)>;

fn outside_of_items(cx: &Context<'_>, reader: &Reader<'_>, root: &str) -> Fault {
    let analysis = cx.analysis?;
    // The items of a compensated step are at hand when its compensation runs.
    if cx.step(reader.step).is(Kind::Compensation)
        || analysis.scopes[reader.step].iter().any(|fanout| is_dynamic(cx, *fanout))
    {
        return None;
    }
    Some((
        "unknown-root",
        format!("Expected `{root}` only inside a Fanout with `items`, but `{}` is not inside one", cx.id(reader.step)),
    ))
}

fn step_fault(cx: &Context<'_>, reader: &Reader<'_>, read: usize, before: &mut Option<Bits>) -> Fault {
    let name = cx.id(read);
    if cx.step(read).is(Kind::Compensation) {
        return Some((
            "reads-later-step",
            format!("Expected a step of the forward graph, but `{name}` is a Compensation step"),
        ));
    }
    let analysis = cx.analysis?;
    if cx.step(reader.step).is(Kind::Compensation) || (reader.after && read == reader.step) {
        return None;
    }
    let before = before.get_or_insert_with(|| analysis.before(reader.step));
    if !before.has(read) {
        let message = format!("Expected a step that can have run before `{}`, but `{name}` cannot", cx.id(reader.step));
        return Some(("reads-later-step", message));
    }
    let apart = analysis.scopes[read].iter().find(|fanout| !analysis.scopes[reader.step].contains(fanout))?;
    let message = format!(
        "Expected a step outside of the Fanout `{}`, but `{name}` is inside, where each branch has its own output; read the Join instead",
        cx.id(*apart)
    );
    Some(("reads-branch-step", message))
}

fn is_dynamic(cx: &Context<'_>, fanout: usize) -> bool {
    cx.step(fanout).given.iter().any(|given| given.value == "items")
}

fn lint(cx: &Context<'_>, reader: &Reader<'_>, findings: &mut Vec<Finding>) {
    if cx.mode == Mode::Stored {
        return;
    }
    let mut warn =
        |code, message: &str| findings.push(Finding::warning(code, reader.spot, reader.path.clone(), message));
    if reader.expression.uses("missing") || reader.expression.uses("missing_some") {
        warn(
            "missing-counts-empty",
            "Expected a test that tells empty text from absent, but `missing` counts both as missing; compare with null where that matters",
        );
    }
    let decides = reader.after || reader.path.ends_with(".expression");
    if decides && reader.expression.literal().is_some() {
        warn("constant-condition", "Expected an expression that reads something, but it always gives the same");
    }
}
