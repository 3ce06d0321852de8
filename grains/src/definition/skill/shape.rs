//! From the tree to the [`Skill`]: keys, types, names. All faults come back at once.

use super::parameters::{Parameter, ParameterType, Parameters};
use super::{CALLS_MAX, FLOW_TEMPLATE, PARAMETERS_MAX, Skill, placeholders};
use crate::condition::Expression;
use crate::definition::duration::DURATION_MS_MAX;
use crate::definition::environment::Environment;
use crate::definition::finding::{Finding, Spot};
use crate::definition::plan::FailurePolicy;
use crate::definition::shape::POLICIES;
use crate::definition::tree::{Data, Entry, Node, quote};
use grain_contract::limits::NAME_BYTES_MAX;
use std::collections::HashSet;

const KEYS: [&str; 6] = ["skill", "version", "kind", "description", "parameters", "steps"];
const PARAMETER_KEYS: [&str; 5] = ["type", "required", "default", "description", "enum"];
const CALL_KEYS: [&str; 7] =
    ["id", "tool", "arguments", "actionClass", "failurePolicy", "maxAttempts", "timeoutMinutes"];
const ATTEMPTS_MAX: u32 = 1_000;

/// One tool call.
#[derive(Debug)]
pub(super) struct Call {
    pub id: String,
    pub tool: String,
    pub input: Expression,
    pub action_class: String,
    pub failure_policy: FailurePolicy,
    pub max_attempts: Option<u32>,
    pub timeout_ms: Option<u64>,
}

pub(super) fn skill(root: &Node, env: &Environment, findings: &mut Vec<Finding>) -> Option<Skill> {
    let mut reader = Reader { env, findings };
    let entries = reader.map(root, "")?;
    let top = |key: &str| entries.iter().find(|entry| entry.key == key);
    let name = reader.name(root, top("skill"), "skill", "._-");
    let version = match top("version").map(|entry| &entry.value.data) {
        Some(Data::Number { written, .. }) => Some(written.clone()),
        _ => reader.name(root, top("version"), "version", "._-+"),
    };
    let kind = reader.text(root, top("kind"), "kind");
    let description = top("description").and_then(|_| reader.text(root, top("description"), "description"));
    let (mut parameters, mut calls) = (Parameters::default(), Vec::new());
    // What another kind of skill holds is its own affair.
    if kind.as_deref() == Some(FLOW_TEMPLATE) {
        reader.only(entries, "", &KEYS);
        parameters = top("parameters").map(|entry| reader.parameters(&entry.value)).unwrap_or_default();
        calls = reader.calls(root, top("steps"), &parameters);
    }
    Some(Skill {
        name: name?,
        version: version?,
        kind: kind?,
        description: description.unwrap_or_default(),
        parameters,
        calls,
    })
}

struct Reader<'a> {
    env: &'a Environment,
    findings: &'a mut Vec<Finding>,
}

impl Reader<'_> {
    fn error(&mut self, code: &'static str, spot: Spot, path: &str, message: String) {
        self.findings.push(Finding::error(code, spot, path, message));
    }

    fn wrong<T>(&mut self, node: &Node, path: &str, wanted: &str) -> Option<T> {
        self.error("wrong-type", node.spot, path, format!("Expected {wanted}, but found {}", node.describe()));
        None
    }

    fn map<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Entry]> {
        match &node.data {
            Data::Map(entries) => Some(entries),
            _ => self.wrong(node, path, "an object"),
        }
    }

    fn only(&mut self, entries: &[Entry], path: &str, known: &[&str]) {
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let at = join(path, &entry.key);
            let message = format!("Expected one of {}, but found {}", known.join(", "), quote(&entry.key));
            self.error("unknown-key", entry.spot, &at, message);
        }
    }

    fn text(&mut self, parent: &Node, entry: Option<&Entry>, path: &str) -> Option<String> {
        let Some(entry) = entry else {
            self.error("missing-field", parent.spot, path, format!("Expected `{path}`, but it is not there"));
            return None;
        };
        match &entry.value.data {
            Data::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            Data::Text(_) => self.wrong(&entry.value, path, "a text that is not empty"),
            _ => self.wrong(&entry.value, path, "a text"),
        }
    }

    fn name(&mut self, parent: &Node, entry: Option<&Entry>, path: &str, also: &str) -> Option<String> {
        let text = self.text(parent, entry, path)?;
        let is_name =
            text.len() <= NAME_BYTES_MAX && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c));
        if is_name {
            return Some(text);
        }
        let spot = entry.map_or(parent.spot, |entry| entry.value.spot);
        let message =
            format!("Expected a name of at most {NAME_BYTES_MAX} plain characters, but found {}", quote(&text));
        self.error("bad-name", spot, path, message);
        None
    }

    fn parameters(&mut self, node: &Node) -> Parameters {
        let Some(entries) = self.map(node, "parameters") else { return Parameters::default() };
        if entries.len() > PARAMETERS_MAX {
            let message = format!("Expected at most {PARAMETERS_MAX} parameters, but found {}", entries.len());
            self.error("too-large", node.spot, "parameters", message);
            return Parameters::default();
        }
        let mut parameters: Vec<Parameter> = entries.iter().filter_map(|entry| self.parameter(entry)).collect();
        parameters.sort_by(|a, b| a.name.cmp(&b.name));
        Parameters(parameters)
    }

    fn parameter(&mut self, entry: &Entry) -> Option<Parameter> {
        let path = format!("parameters.{}", entry.key);
        let is_name = !entry.key.is_empty() && entry.key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || entry.key.len() > NAME_BYTES_MAX {
            let message = format!("Expected a name of letters, digits and `_`, but found {}", quote(&entry.key));
            self.error("bad-name", entry.spot, &path, message);
        }
        let fields = self.map(&entry.value, &path)?;
        self.only(fields, &path, &PARAMETER_KEYS);
        let field = |key: &str| fields.iter().find(|field| field.key == key).map(|field| &field.value);
        let kind = match field("type") {
            Some(node) => self.word(node, &format!("{path}.type"), &ParameterType::ALL),
            None => {
                let message = format!("Expected `type` in the parameter `{}`, but it is not there", entry.key);
                self.error("missing-field", entry.spot, &format!("{path}.type"), message);
                None
            }
        };
        let required = match field("required").map(|node| (&node.data, node)) {
            None => Some(false),
            Some((Data::Bool(required), _)) => Some(*required),
            Some((_, node)) => self.wrong(node, &format!("{path}.required"), "true or false"),
        };
        let one_of = match field("enum").map(|node| (&node.data, node)) {
            None => Some(Vec::new()),
            Some((Data::List(values), _)) if !values.is_empty() => Some(values.iter().map(Node::to_json).collect()),
            Some((_, node)) => self.wrong(node, &format!("{path}.enum"), "a list of values that is not empty"),
        };
        let default = field("default").map(Node::to_json);
        let description = match field("description").map(|node| (&node.data, node)) {
            None => Some(String::new()),
            Some((Data::Text(text), _)) => Some(text.clone()),
            Some((_, node)) => self.wrong(node, &format!("{path}.description"), "a text"),
        };
        let (kind, required, one_of, description) = (kind?, required?, one_of?, description?);
        for (what, value) in one_of.iter().map(|value| ("enum", value)).chain(default.iter().map(|v| ("default", v))) {
            if !kind.fits(value) {
                let message = format!("Expected values of type {} in `{what}`, but found {value}", kind.as_str());
                self.error("wrong-type", field(what)?.spot, &format!("{path}.{what}"), message);
            }
        }
        if default.as_ref().is_some_and(|default| !one_of.is_empty() && !one_of.contains(default)) {
            let message = "Expected the default to be one of `enum`, but it is not".to_owned();
            self.error("unknown-word", field("default")?.spot, &format!("{path}.default"), message);
        }
        Some(Parameter { name: entry.key.clone(), kind, required, default, one_of, description })
    }

    fn word<T: Copy>(&mut self, node: &Node, path: &str, words: &[(&str, T)]) -> Option<T> {
        let found = match &node.data {
            Data::Text(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("Expected one of {}, but found {}", words.join(", "), node.describe());
            self.error("unknown-word", node.spot, path, message);
        }
        found.map(|(_, value)| *value)
    }

    fn calls(&mut self, root: &Node, entry: Option<&Entry>, parameters: &Parameters) -> Vec<Call> {
        let nodes = match entry.map(|entry| (&entry.value.data, &entry.value)) {
            Some((Data::List(nodes), node)) => {
                let (code, wanted) = match nodes.len() {
                    0 => ("no-steps", "at least one tool call".to_owned()),
                    1..=CALLS_MAX => ("", String::new()),
                    _ => ("too-large", format!("at most {CALLS_MAX} tool calls")),
                };
                if !code.is_empty() {
                    let message = format!("Expected {wanted} in `steps`, but found {}", nodes.len());
                    self.error(code, node.spot, "steps", message);
                    return Vec::new();
                }
                nodes
            }
            Some((_, node)) => {
                return self.wrong::<Vec<Call>>(node, "steps", "a list of tool calls").unwrap_or_default();
            }
            None => {
                let message = "Expected a list of tool calls in `steps`, but it is not there".to_owned();
                self.error("missing-field", root.spot, "steps", message);
                return Vec::new();
            }
        };
        let mut ids = HashSet::new();
        nodes.iter().enumerate().filter_map(|(ix, node)| self.call(node, ix, parameters, &mut ids)).collect()
    }

    fn call(&mut self, node: &Node, ix: usize, parameters: &Parameters, ids: &mut HashSet<String>) -> Option<Call> {
        let path = format!("steps[{ix}]");
        let fields = self.map(node, &path)?;
        self.only(fields, &path, &CALL_KEYS);
        let field = |key: &str| fields.iter().find(|field| field.key == key);
        let id = match field("id") {
            Some(_) => self.name(node, field("id"), &format!("{path}.id"), "_-"),
            None => Some(format!("call-{}", ix + 1)),
        };
        if let Some(id) = id.as_ref().filter(|id| !ids.insert((*id).clone())) {
            let spot = field("id").map_or(node.spot, |entry| entry.value.spot);
            let message = format!("Expected each id once, but {} is here again", quote(id));
            self.error("doubled-step", spot, &format!("{path}.id"), message);
        }
        let tool = self.name(node, field("tool"), &format!("{path}.tool"), "._-/:@");
        let action_class = self.text(node, field("actionClass"), &format!("{path}.actionClass"));
        if let (Some(class), Some(entry)) = (&action_class, field("actionClass"))
            && !self.env.action_classes.contains(class)
        {
            let known = self.env.action_classes.join(", ");
            let message = format!("Expected one of the action classes {known}, but found {}", quote(class));
            self.error("unknown-action-class", entry.value.spot, &format!("{path}.actionClass"), message);
        }
        let failure_policy = match field("failurePolicy") {
            Some(entry) => self.word(&entry.value, &format!("{path}.failurePolicy"), &POLICIES),
            None => Some(FailurePolicy::Fail),
        };
        let max_attempts = match field("maxAttempts") {
            Some(entry) => self.whole(&entry.value, &format!("{path}.maxAttempts")).map(Some),
            None => Some(None),
        };
        let timeout_ms = match field("timeoutMinutes") {
            Some(entry) => self.minutes(&entry.value, &format!("{path}.timeoutMinutes")).map(Some),
            None => Some(None),
        };
        let input = self.input(field("arguments"), &format!("{path}.arguments"), parameters);
        Some(Call {
            id: id?,
            tool: tool?,
            input: input?,
            action_class: action_class?,
            failure_policy: failure_policy?,
            max_attempts: max_attempts?,
            timeout_ms: timeout_ms?,
        })
    }

    fn input(&mut self, entry: Option<&Entry>, path: &str, parameters: &Parameters) -> Option<Expression> {
        let Some(entry) = entry else { return Some(Expression::fields(Vec::new())) };
        if !matches!(entry.value.data, Data::Map(_)) {
            return self.wrong(&entry.value, path, "an object of arguments");
        }
        let mut faults = Vec::new();
        let input = placeholders::expression(&entry.value, parameters, path, &mut faults);
        for fault in faults {
            self.error("bad-placeholder", fault.spot, &fault.path, fault.message);
        }
        Some(input)
    }

    fn whole(&mut self, node: &Node, path: &str) -> Option<u32> {
        let found = match &node.data {
            Data::Number { number, .. } => number.as_u64().and_then(|n| u32::try_from(n).ok()),
            _ => None,
        };
        match found {
            Some(value) if (1..=ATTEMPTS_MAX).contains(&value) => Some(value),
            _ => self.wrong(node, path, &format!("a whole number from 1 to {ATTEMPTS_MAX}")),
        }
    }

    fn minutes(&mut self, node: &Node, path: &str) -> Option<u64> {
        let found = match &node.data {
            Data::Number { number, .. } => number.as_f64().map(|minutes| (minutes * 60_000.0).ceil()),
            _ => None,
        };
        match found {
            Some(ms) if ms >= 1.0 && ms <= DURATION_MS_MAX as f64 => Some(ms as u64),
            _ => self.wrong(node, path, "a number of minutes above 0 and below ten years"),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
