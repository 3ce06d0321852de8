//! One rule a file. A rule looks at the whole document and pushes its findings; it never stops another one.

mod compensation;
mod conditions;
mod cycles;
mod declared;
mod edges;
mod fanouts;
mod fields;
mod ids;
mod joins;
mod loops;
mod reachable;
mod reads;
mod schemas;
mod sub_workflows;
#[cfg(test)]
mod tests;

use super::analysis::Analysis;
use super::document::{Document, Step};
use super::environment::{Environment, Mode};
use super::finding::{Finding, Spot};
use super::graph::Graph;

/// Names that mean something else in an expression.
pub(super) const RESERVED: [&str; 4] = ["input", "vars", "item", "index"];

pub(super) struct Context<'a> {
    pub document: &'a Document,
    pub graph: &'a Graph,
    /// `None` where the graph has a cycle.
    pub analysis: Option<&'a Analysis>,
    pub mode: Mode,
    pub env: &'a Environment,
}

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    for rule in [
        ids::check,
        fields::check,
        declared::check,
        schemas::check,
        edges::check,
        cycles::check,
        reachable::check,
        loops::check,
        fanouts::check,
        joins::check,
        compensation::check,
        reads::check,
        conditions::check,
        sub_workflows::check,
    ] {
        rule(cx, findings);
    }
}

impl Context<'_> {
    fn step(&self, ix: usize) -> &Step {
        &self.document.steps[ix]
    }

    fn id(&self, ix: usize) -> &str {
        &self.document.steps[ix].id.value
    }

    /// A draft takes a default and is warned, a publication is refused, a stored release was judged before.
    fn undeclared(&self, findings: &mut Vec<Finding>, code: &'static str, spot: Spot, path: String, message: String) {
        match self.mode {
            Mode::Draft => findings.push(Finding::warning(code, spot, path, message)),
            Mode::Publish => findings.push(Finding::error(code, spot, path, message)),
            Mode::Stored => {}
        }
    }
}
