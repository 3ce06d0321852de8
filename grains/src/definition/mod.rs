//! Definitions: from the author's text to the plan that the engine runs.
//!
//! [`load`] is the way of a document from outside: it gives all findings at once, and a plan if none of them is an error.
//! [`compile_stored`] is the way of a stored release, on any node.
//!
//! The way inside: `read` (text → tree), `shape` (tree → document and its canonical form), `graph` and `analysis` (names,
//! order, scopes, loops), `rules` (one a file), `compile` (document → plan).

mod analysis;
mod compile;
mod document;
mod duration;
mod environment;
mod finding;
mod graph;
mod hash;
mod ordered;
pub mod plan;
mod read;
mod rules;
mod schema;
mod shape;
pub mod skill;
#[cfg(test)]
mod tests;
mod tree;

pub use duration::{DURATION_MS_MAX, duration_of_seconds, parse_duration, parse_moment};
pub use environment::{Environment, Mode};
pub use finding::{Finding, Severity, Spot};
pub use plan::*;
pub use schema::{Schema, SchemaFault, check_value, is_builtin};

use document::{Document, Kind};
use serde_json::Value;
use tree::Node;

/// A skill runs as a sub-workflow whose definition id is this and the skill's name.
pub const SKILL_PREFIX: &str = "skill:";
/// Findings given back for one document.
const FINDINGS_MAX: usize = 500;

/// What came of a document.
#[derive(Debug, Default)]
pub struct Loaded {
    /// `None` if a finding is an error. Its `release_id` is empty until the caller sets it.
    pub plan: Option<Plan>,
    /// In the order of the text.
    pub findings: Vec<Finding>,
    /// The document as canonical JSON (RFC 8785): what is stored. Empty if keys or values could not be read.
    pub canonical: Vec<u8>,
    /// BLAKE3 of `canonical`, hex; empty as it is.
    pub graph_hash: String,
    /// Empty if it could not be read, as the version.
    pub definition_id: String,
    pub version: String,
    pub step_count: u32,
    /// Definitions that this one starts as sub-workflows, sorted: what `Environment::sub_workflows` wants to know of it.
    pub sub_workflows: Vec<String>,
}

/// Reads and judges a document, YAML or JSON.
pub fn load(text: &str, mode: Mode, env: &Environment) -> Loaded {
    let mut findings = Vec::new();
    let mut loaded = match read::tree(text, &mut findings) {
        Some(root) => judge(&root, findings, mode, env),
        None => Loaded { findings, ..Loaded::default() },
    };
    let place = |finding: &Finding| (finding.spot, finding.path.clone(), finding.code);
    loaded.findings.sort_by_key(place);
    let count = loaded.findings.len();
    if count > FINDINGS_MAX {
        // No warning crowds out an error.
        loaded.findings.sort_by_key(|finding| finding.severity);
        loaded.findings.truncate(FINDINGS_MAX);
        loaded.findings.sort_by_key(place);
        let message = format!("Expected at most {FINDINGS_MAX} findings, but there are {count}; the rest is left out");
        loaded.findings.push(Finding::warning("too-many-findings", Spot::default(), "", message));
    }
    loaded
}

/// The plan of a stored release.
///
/// # Errors
/// The findings that keep it from being run: it was stored by another version, or is damaged.
pub fn compile_stored(
    canonical: &[u8],
    release_id: &str,
    draft: bool,
    env: &Environment,
) -> Result<Plan, Vec<Finding>> {
    let stored: Value = serde_json::from_slice(canonical).map_err(|error| {
        let message = format!("Expected the stored document of release {release_id} to be JSON, but {error}");
        vec![Finding::error("syntax", Spot::default(), "", message)]
    })?;
    let loaded = judge(&Node::from_json(&stored), Vec::new(), Mode::Stored, env);
    let Some(plan) = loaded.plan else { return Err(loaded.findings) };
    Ok(Plan { release_id: release_id.to_owned(), draft, ..plan })
}

fn judge(root: &Node, mut findings: Vec<Finding>, mode: Mode, env: &Environment) -> Loaded {
    let (mut document, canonical) = shape::document(root, &mut findings);
    // With a key or value left out, the canonical form would be that of another document.
    let readable = !findings.iter().any(Finding::is_error);
    let canonical = if readable { hash::canonical(&canonical) } else { Vec::new() };
    let graph_hash = if readable { hash::of(&canonical) } else { String::new() };
    if !document.has_lists {
        return Loaded { findings, ..Loaded::default() };
    }
    ordered::complete(&mut document);
    let graph = graph::Graph::of(&document);
    let analysis = graph.cycles().is_empty().then(|| graph.analyse(&document));
    let cx = rules::Context { document: &document, graph: &graph, analysis: analysis.as_ref(), mode, env };
    rules::check(&cx, &mut findings);
    let text =
        |field: &Option<document::Placed<String>>| field.as_ref().map(|field| field.value.clone()).unwrap_or_default();
    let mut loaded = Loaded {
        plan: None,
        canonical,
        graph_hash,
        definition_id: text(&document.workflow),
        version: text(&document.version),
        step_count: document.steps.len() as u32,
        sub_workflows: sub_workflows(&document),
        findings,
    };
    if let Some(analysis) = analysis
        && !loaded.findings.iter().any(Finding::is_error)
    {
        loaded.plan = compile::plan(document, &graph, &analysis, env).map(|plan| Plan {
            graph_hash: loaded.graph_hash.clone(),
            draft: mode == Mode::Draft,
            ..plan
        });
        if loaded.plan.is_none() {
            let message =
                "Expected the rules to find what keeps this document from a plan, but none did; please report it";
            loaded.findings.push(Finding::error("internal", Spot::default(), "", message));
        }
    }
    loaded
}

fn sub_workflows(document: &Document) -> Vec<String> {
    let mut ids: Vec<String> = document
        .steps
        .iter()
        .filter(|step| step.is(Kind::SubWorkflow))
        .filter_map(|step| Some(shape::workflow_reference(&step.workflow.as_ref()?.value).ok()?.0))
        .collect();
    ids.sort();
    ids.dedup();
    ids
}
