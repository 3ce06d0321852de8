//! One step.

use super::question::POLL_MS_MIN;
use super::{ATTEMPTS_MAX, Shaper};
use crate::definition::document::{Kind, Placed, Retry, Step};
use crate::definition::duration::{duration_of_seconds, parse_duration};
use crate::definition::plan::{Ask, FailurePolicy, Losers, Quorum};
use crate::definition::tree::{Data, Node, quote};
use grain_contract::limits::{BACKOFF_MS_MAX, NAME_BYTES_MAX, STEPS_MAX};
use serde_json::{Map, Value};

const KEYS: [&str; 28] = [
    "id",
    "kind",
    "name",
    "agent",
    "tool",
    "workflow",
    "actionClass",
    "failurePolicy",
    "maxAttempts",
    "timeoutMinutes",
    "compensation",
    "inputMapping",
    "expression",
    "delay",
    "until",
    "items",
    "quorum",
    "losers",
    "retry",
    "ask",
    "goal",
    "skill",
    "arguments",
    "condition",
    "timeout",
    "pollInterval",
    "onTrue",
    "onFalse",
];

pub(in crate::definition) const POLICIES: [(&str, FailurePolicy); 5] = [
    ("Fail", FailurePolicy::Fail),
    ("Retry", FailurePolicy::Retry),
    ("Escalate", FailurePolicy::Escalate),
    ("Compensate", FailurePolicy::Compensate),
    ("Route", FailurePolicy::Route),
];

/// Delays grow at most so fast.
const FACTOR_MAX: f64 = 100.0;

impl Shaper<'_> {
    /// A step without an id has no place in the graph: `None`, with its finding.
    pub(super) fn step(&mut self, node: &Node, path: String) -> (Option<Step>, Value) {
        let mut canonical = Map::new();
        let Some(entries) = self.map(node, &path) else { return (None, Value::Null) };
        let nothing = Placed { value: String::new(), spot: node.spot };
        let mut step = Step {
            path: path.clone(),
            id: nothing,
            kind: None,
            name: None,
            agent: None,
            tool: None,
            workflow: None,
            action_class: None,
            failure_policy: None,
            max_attempts: None,
            timeout_ms: None,
            compensation: None,
            ask: None,
            input_mapping: None,
            expression: None,
            items: None,
            delay: None,
            until: None,
            quorum: None,
            losers: None,
            retry: Retry::default(),
            goal: None,
            skill: None,
            arguments: None,
            condition: None,
            wait_ms: None,
            poll_ms: None,
            on_true: None,
            on_false: None,
            is_asked_about: false,
            given: Vec::new(),
        };
        let mut id = None;
        for entry in entries {
            let at = format!("{path}.{}", entry.key);
            let value = &entry.value;
            let normal = match entry.key.as_str() {
                "id" => self.text(value, &at, &mut id),
                "kind" => self.kind(value, &at, &mut step.kind),
                "name" => self.text(value, &at, &mut step.name),
                "agent" => self.text(value, &at, &mut step.agent),
                "tool" => self.text(value, &at, &mut step.tool),
                "workflow" => self.text(value, &at, &mut step.workflow),
                "actionClass" => self.text(value, &at, &mut step.action_class),
                "failurePolicy" => self.word(value, &at, &POLICIES, &mut step.failure_policy),
                "maxAttempts" => self.whole(value, &at, 1, ATTEMPTS_MAX, &mut step.max_attempts),
                "timeoutMinutes" => self.minutes(value, &at, &mut step.timeout_ms),
                "compensation" => self.text(value, &at, &mut step.compensation),
                "inputMapping" => self.mapping(value, &at, &mut step.input_mapping),
                "expression" => self.rule(value, &at, &mut step.expression),
                "delay" => self.delay(value, &at, &mut step.delay),
                "until" => self.until(value, &at, &mut step.until),
                "items" => self.items(value, &at, &mut step.items),
                "quorum" => self.quorum(value, &at, &mut step.quorum),
                "losers" => {
                    self.word(value, &at, &[("cancel", Losers::Cancel), ("keep", Losers::Keep)], &mut step.losers)
                }
                "ask" => self.word(value, &at, &[("approval", Ask::Approval), ("input", Ask::Input)], &mut step.ask),
                "retry" => self.retry(value, &at, &mut step.retry),
                "goal" => self.text(value, &at, &mut step.goal),
                "skill" => self.text(value, &at, &mut step.skill),
                "arguments" => self.mapping(value, &at, &mut step.arguments),
                "condition" => self.question(value, &at, &mut step.condition),
                "timeout" => self.duration(value, &at, 0, &mut step.wait_ms),
                "pollInterval" => self.duration(value, &at, POLL_MS_MIN, &mut step.poll_ms),
                "onTrue" => self.text(value, &at, &mut step.on_true),
                "onFalse" => self.text(value, &at, &mut step.on_false),
                _ => {
                    self.unknown_key(entry, &at, &KEYS);
                    continue;
                }
            };
            step.given.push(Placed { value: entry.key.clone(), spot: entry.spot });
            if let Some(normal) = normal {
                canonical.insert(entry.key.clone(), normal);
            }
        }
        let given = |key: &str| step.given.iter().any(|given| given.value == key);
        for key in ["id", "kind"] {
            if !given(key) {
                let message = format!("Expected `{key}` in each step, but it is not there");
                self.error("missing-field", node.spot, &format!("{path}.{key}"), message);
            }
        }
        let step = id.map(|id| Step { id, ..step });
        (step, Value::Object(canonical))
    }

    fn kind(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Kind>>) -> Option<Value> {
        let found = match &node.data {
            Data::Text(text) => Kind::ALL.into_iter().find(|kind| kind.as_str() == text),
            _ => None,
        };
        let Some(kind) = found else {
            let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            let message = format!("Expected one of the kinds {}, but found {}", all.join(", "), node.describe());
            self.error("unknown-kind", node.spot, path, message);
            return None;
        };
        *slot = Some(Placed { value: kind, spot: node.spot });
        Some(Value::from(kind.as_str()))
    }

    fn quorum(&mut self, node: &Node, path: &str, slot: &mut Option<Placed<Quorum>>) -> Option<Value> {
        if let Data::Number { .. } = node.data {
            let mut count = None;
            let normal = self.whole(node, path, 1, STEPS_MAX as u32, &mut count);
            *slot = count.map(|count| Placed { value: Quorum::Count(count.value), spot: count.spot });
            return normal;
        }
        match &node.data {
            Data::Text(text) if text == "all" => *slot = Some(Placed { value: Quorum::All, spot: node.spot }),
            Data::Text(text) if text == "any" => *slot = Some(Placed { value: Quorum::Any, spot: node.spot }),
            _ => return self.wrong(node, path, "`all`, `any` or a number of branches"),
        }
        Some(node.to_json())
    }

    fn retry(&mut self, node: &Node, path: &str, retry: &mut Retry) -> Option<Value> {
        let mut canonical = Map::new();
        for entry in self.map(node, path)? {
            let at = format!("{path}.{}", entry.key);
            match entry.key.as_str() {
                "initial" => retry.initial_ms = self.backoff_time(&entry.value, &at),
                "max" => retry.max_ms = self.backoff_time(&entry.value, &at),
                "factor" => retry.factor = self.factor(&entry.value, &at),
                _ => {
                    self.unknown_key(entry, &at, &["initial", "factor", "max"]);
                    continue;
                }
            }
            canonical.insert(entry.key.clone(), entry.value.to_json());
        }
        if let (Some(initial), Some(max)) = (retry.initial_ms, retry.max_ms)
            && initial > max
        {
            let message = format!("Expected `max` to be at least `initial`, but found {max} ms and {initial} ms");
            self.error("number-range", node.spot, path, message);
        }
        Some(Value::Object(canonical))
    }

    fn backoff_time(&mut self, node: &Node, path: &str) -> Option<u64> {
        let found = match &node.data {
            Data::Number { number, .. } => duration_of_seconds(number.as_f64().unwrap_or(-1.0)),
            Data::Text(text) => parse_duration(text),
            _ => return self.wrong(node, path, "a duration"),
        };
        match found {
            Ok(milliseconds) if milliseconds <= BACKOFF_MS_MAX => Some(milliseconds),
            Ok(_) => {
                self.error(
                    "bad-time",
                    node.spot,
                    path,
                    format!("Expected a delay of at most a day, but found {}", node.describe()),
                );
                None
            }
            Err(message) => {
                self.error("bad-time", node.spot, path, message);
                None
            }
        }
    }

    fn factor(&mut self, node: &Node, path: &str) -> Option<f64> {
        let found = match &node.data {
            Data::Number { number, .. } => number.as_f64(),
            _ => None,
        };
        match found {
            Some(factor) if (1.0..=FACTOR_MAX).contains(&factor) => Some(factor),
            _ => {
                let message = format!("Expected a factor from 1 to {FACTOR_MAX}, but found {}", node.describe());
                self.error("number-range", node.spot, path, message);
                None
            }
        }
    }
}

/// `id` or `id@version`.
///
/// # Errors
/// "Expected …, but …"
pub(in crate::definition) fn workflow_reference(text: &str) -> Result<(String, Option<String>), String> {
    let refuse = || format!("Expected the id of a definition, or `id@version`, but found {}", quote(text));
    match text.split_once('@') {
        None => Ok((text.to_owned(), None)),
        Some((id, version)) if !id.is_empty() && !version.is_empty() && !version.contains('@') => {
            Ok((id.to_owned(), Some(version.to_owned())))
        }
        Some(_) => Err(refuse()),
    }
}

/// `name` or `name@version` of a skill.
///
/// # Errors
/// "Expected …, but …"
pub(in crate::definition) fn skill_reference(text: &str) -> Result<(String, Option<String>), String> {
    let refuse = |_| format!("Expected the name of a skill, or `name@version`, but found {}", quote(text));
    let (name, version) = workflow_reference(text).map_err(refuse)?;
    let is_plain = |part: &str| {
        part.len() <= NAME_BYTES_MAX && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c))
    };
    if !name.is_empty() && is_plain(&name) && version.as_deref().is_none_or(is_plain) {
        return Ok((name, version));
    }
    Err(refuse(String::new()))
}
