//! The library's use of `grains::definition`: what a document is judged against, and how a stored release becomes a plan.

use super::Compiled;
use crate::config::Config;
use grain_contract::{Code, Rejection};
use grains::condition::kinds::ConditionKinds;
use grains::definition::skill::{FLOW_TEMPLATE, Skill};
use grains::definition::{Environment, Finding, SKILL_PREFIX, Schema, StepKind, compile_stored, is_builtin};
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Findings named in one message.
const NAMED_MAX: usize = 3;

pub fn environment(
    config: &Config,
    schemas: BTreeMap<String, String>,
    sub_workflows: HashMap<String, Vec<String>>,
) -> Environment {
    let engine = config.workflows.engine.options();
    Environment {
        schemas,
        action_classes: config.policy.known_action_classes.clone(),
        max_loop_iterations: engine.default_max_loop_iterations,
        step_timeout_ms: engine.default_step_timeout_ms,
        sub_workflows,
        conditions: Arc::new(conditions(config)),
        ..Environment::default()
    }
}

/// The built-in condition kinds, and those that workers serve.
fn conditions(config: &Config) -> ConditionKinds {
    let served = &config.workflows.condition_kinds.served;
    served.iter().fold(ConditionKinds::default(), |kinds, name| kinds.serve(name.clone()))
}

/// # Errors
/// `Invalid`: this build cannot read what was stored; the message names the first findings.
pub fn stored(config: &Config, put: &calls::PutRelease) -> Result<Compiled, Rejection> {
    if put.definition_id.starts_with(SKILL_PREFIX) {
        return skill(config, put);
    }
    let schemas: BTreeMap<String, String> = put.schemas.clone().into_iter().collect();
    let environment = environment(config, schemas, HashMap::new());
    let mut plan = compile_stored(&put.document, &put.release_id, put.draft, &environment).map_err(|findings| {
        let why = sentence(&findings.iter().map(v1::Finding::from).collect::<Vec<_>>());
        Rejection::new(Code::Invalid, format!("Expected release {:?} to compile, but: {why}", put.release_id))
    })?;
    plan.release_id.clone_from(&put.release_id);
    let input_schema = InputSchema::of(&plan.input_schema_ref, &environment.schemas)?;
    Ok(Compiled { plan: Arc::new(plan), input_schema })
}

/// A skill as it is stored.
pub fn stored_skill(config: &Config, put: &calls::PutRelease) -> Result<Skill, Rejection> {
    let environment = environment(config, BTreeMap::new(), HashMap::new());
    grains::definition::skill::stored_skill(&put.document, &environment).map_err(|findings| {
        let why = sentence(&findings.iter().map(v1::Finding::from).collect::<Vec<_>>());
        Rejection::new(Code::Invalid, format!("Expected skill {:?} to compile, but: {why}", put.release_id))
    })
}

fn skill(config: &Config, put: &calls::PutRelease) -> Result<Compiled, Rejection> {
    let skill = stored_skill(config, put)?;
    let environment = environment(config, BTreeMap::new(), HashMap::new());
    let plan = skill.plan(&put.release_id, &put.graph_hash, &environment).ok_or_else(|| {
        let message = format!(
            "Expected a skill of kind {FLOW_TEMPLATE}, but {} is of kind {}, which cannot be run.",
            skill.name, skill.kind
        );
        Rejection::new(Code::Invalid, message)
    })?;
    Ok(Compiled { plan: Arc::new(plan), input_schema: None })
}

/// What a run's input must look like.
pub enum InputSchema {
    /// `builtin:object`
    Object,
    Schema(Box<Schema>),
}

impl InputSchema {
    /// A reference that does not resolve takes any value: publication refused it, a draft was warned.
    fn of(reference: &str, schemas: &BTreeMap<String, String>) -> Result<Option<Self>, Rejection> {
        match schemas.get(reference) {
            _ if reference == "builtin:object" => Ok(Some(Self::Object)),
            Some(text) if !is_builtin(reference) => {
                let unusable = |why| {
                    Rejection::new(Code::Invalid, format!("Expected schema {reference:?} to compile, but {why}."))
                };
                Ok(Some(Self::Schema(Box::new(Schema::compile(text).map_err(unusable)?))))
            }
            _ => Ok(None),
        }
    }

    /// # Errors
    /// `Invalid` at the first place that does not fit; all faults are in the message.
    pub fn check(&self, input: Option<&Json>) -> Result<(), Rejection> {
        let value = match input {
            Some(json) => json.value().map_err(|e| {
                Rejection::new(Code::Invalid, format!("Expected one JSON value, but: {e}.")).at("input")
            })?,
            None => serde_json::Value::Null,
        };
        let faults: Vec<(String, String)> = match self {
            Self::Object if value.is_object() => Vec::new(),
            Self::Object => vec![(String::new(), "it is not an object".to_owned())],
            Self::Schema(schema) => schema.check(&value).into_iter().map(|f| (f.path, f.message)).collect(),
        };
        let Some((first, _)) = faults.first() else { return Ok(()) };
        let field = format!("input{}", first.replace('/', "."));
        let named: Vec<String> = faults
            .iter()
            .take(NAMED_MAX)
            .map(|(path, why)| if path.is_empty() { why.clone() } else { format!("{path}: {why}") })
            .collect();
        let more = faults.len().saturating_sub(NAMED_MAX);
        let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
        let message = format!("Expected an input that fits the definition's schema, but {}{tail}.", named.join("; "));
        Err(Rejection::new(Code::Invalid, message).at(field))
    }
}

/// The classes that policy is asked about.
pub fn action_classes(plan: &grains::definition::Plan) -> Vec<v1::StepActionClass> {
    let steps = plan.steps.iter().filter(|s| !s.action_class.is_empty());
    steps
        .map(|step| v1::StepActionClass {
            step_id: step.id.clone(),
            kind: step.kind.as_str().to_owned(),
            name: step.kind.queue().unwrap_or_default(),
            action_class: step.action_class.clone(),
        })
        .collect()
}

/// The definitions that a stored plan starts as sub-workflows.
pub fn sub_workflows(plan: &grains::definition::Plan) -> Vec<String> {
    let of = plan.steps.iter().filter_map(|step| match &step.kind {
        StepKind::SubWorkflow { definition_id, .. } => Some(definition_id.clone()),
        _ => None,
    });
    of.collect()
}

/// The first errors, in one line for a message.
pub fn sentence(findings: &[v1::Finding]) -> String {
    let errors: Vec<&v1::Finding> = findings.iter().filter(|f| f.severity == "error").collect();
    let mut parts: Vec<String> = errors.iter().take(NAMED_MAX).map(|f| place(f)).collect();
    if errors.len() > NAMED_MAX {
        parts.push(format!("and {} more", errors.len() - NAMED_MAX));
    }
    parts.join("; ")
}

fn place(finding: &v1::Finding) -> String {
    let at = if finding.line > 0 { format!(" at {}:{}", finding.line, finding.column) } else { String::new() };
    format!("{}{at}: {}", finding.code, finding.message)
}

pub fn to_wire(findings: &[Finding]) -> Vec<v1::Finding> {
    findings.iter().map(v1::Finding::from).collect()
}
