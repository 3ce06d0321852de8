//! Skills: flow templates, i.e. a list of tool calls with placeholders for declared parameters (S2).
//!
//! A skill runs as a child run of a plan made from it: one Tool step a call, in the order in which they stand. So each call is
//! durable, has its own record, and is not made again after a crash. The arguments of an invocation are the input of that run;
//! they are checked when it is accepted, before any call.
//!
//! Other kinds of skills can be kept, but not run: a step that invokes one fails with class `step-definition`.

mod compile;
mod parameters;
mod placeholders;
mod shape;
#[cfg(test)]
mod tests;

pub use parameters::{Parameter, ParameterType, Parameters};

use super::environment::Environment;
use super::finding::{Finding, Spot};
use super::plan::Plan;
use super::tree::Node;
use super::{hash, read};
use serde_json::Value;

/// The kind that can be run.
pub const FLOW_TEMPLATE: &str = "flow-template";
/// Calls of one skill.
pub const CALLS_MAX: usize = 200;
/// Parameters of one skill.
pub const PARAMETERS_MAX: usize = 100;

/// What came of a skill's document.
#[derive(Debug, Default)]
pub struct LoadedSkill {
    /// `None` if a finding is an error.
    pub skill: Option<Skill>,
    /// In the order of the text.
    pub findings: Vec<Finding>,
    /// The document as canonical JSON (RFC 8785): what is stored. Empty if it could not be read.
    pub canonical: Vec<u8>,
    /// BLAKE3 of `canonical`, hex; empty as it is.
    pub hash: String,
}

/// A skill without errors.
#[derive(Debug)]
pub struct Skill {
    pub name: String,
    pub version: String,
    pub kind: String,
    pub description: String,
    pub parameters: Parameters,
    calls: Vec<shape::Call>,
}

impl Skill {
    pub fn is_flow_template(&self) -> bool {
        self.kind == FLOW_TEMPLATE
    }

    /// How many tool calls it makes.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The plan that runs it; `None` for a kind that cannot be run.
    pub fn plan(&self, release_id: &str, hash: &str, env: &Environment) -> Option<Plan> {
        self.is_flow_template().then(|| compile::plan(self, release_id, hash, env))
    }
}

/// Reads and judges a skill, YAML or JSON.
pub fn load_skill(text: &str, env: &Environment) -> LoadedSkill {
    let mut findings = Vec::new();
    let mut loaded = match read::tree(text, &mut findings) {
        Some(root) => judge(&root, findings, env),
        None => LoadedSkill { findings, ..LoadedSkill::default() },
    };
    loaded.findings.sort_by_key(|finding| (finding.spot, finding.path.clone(), finding.code));
    loaded
}

/// A stored skill.
///
/// # Errors
/// The findings that keep it from being read: it was stored by another version, or is damaged.
pub fn stored_skill(canonical: &[u8], env: &Environment) -> Result<Skill, Vec<Finding>> {
    let stored: Value = serde_json::from_slice(canonical).map_err(|error| {
        let message = format!("Expected a stored skill to be JSON, but {error}");
        vec![Finding::error("syntax", Spot::default(), "", message)]
    })?;
    let loaded = judge(&Node::from_json(&stored), Vec::new(), env);
    loaded.skill.ok_or(loaded.findings)
}

fn judge(root: &Node, mut findings: Vec<Finding>, env: &Environment) -> LoadedSkill {
    let skill = shape::skill(root, env, &mut findings);
    if findings.iter().any(Finding::is_error) {
        return LoadedSkill { findings, ..LoadedSkill::default() };
    }
    let canonical = hash::canonical(&root.to_json());
    let hash = hash::of(&canonical);
    LoadedSkill { skill, findings, canonical, hash }
}
