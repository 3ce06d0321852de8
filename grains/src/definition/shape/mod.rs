//! From the tree to the [`Document`]: keys, types and ranges. What is wrong is a finding, and reading goes on.
//!
//! Beside the document grows its canonical form: the same fields, with each expression in its native form (a JSON string and
//! native YAML are one), `isLoopBack: false` left out, and nothing filled in. So a default of the cluster that changes later
//! does not change the hash of a definition that leaned on it.

mod edge;
mod expression;
mod field;
mod question;
mod step;

pub(super) use step::{POLICIES, skill_reference, workflow_reference};

use super::document::Document;
use super::finding::{Finding, Spot};
use super::tree::{Data, Entry, Node, quote};
use grain_contract::limits::{EDGES_MAX, STEPS_MAX};
use serde_json::{Map, Value};

/// Iterations of one loop that a document may ask for. A run has at most 200,000 step runs anyway.
pub(super) const LOOP_ITERATIONS_MAX: u32 = 100_000;
/// Attempts of one step that a document may ask for.
pub(super) const ATTEMPTS_MAX: u32 = 1_000;

const KEYS: [&str; 9] =
    ["workflow", "version", "input", "output", "steps", "edges", "variables", "maxLoopIterations", "deadlineMinutes"];

pub(super) struct Shaper<'f> {
    findings: &'f mut Vec<Finding>,
}

pub(super) fn document(root: &Node, findings: &mut Vec<Finding>) -> (Document, Value) {
    let mut shaper = Shaper { findings };
    let mut document = Document::default();
    let mut canonical = Map::new();
    let Some(entries) = shaper.map(root, "") else { return (document, Value::Null) };
    document.has_lists = true;
    for entry in entries {
        let Entry { key, value, .. } = entry;
        let path = key.as_str();
        let normal = match path {
            "workflow" => shaper.text(value, path, &mut document.workflow),
            "version" => shaper.version(value, path, &mut document.version),
            "input" => shaper.text(value, path, &mut document.input),
            "output" => shaper.text(value, path, &mut document.output),
            "variables" => shaper.map(value, path).map(|_| {
                let variables = value.to_json();
                document.variables = variables.as_object().cloned().unwrap_or_default();
                variables
            }),
            "maxLoopIterations" => shaper.whole(value, path, 1, LOOP_ITERATIONS_MAX, &mut document.max_loop_iterations),
            "deadlineMinutes" => shaper.minutes(value, path, &mut document.deadline_ms),
            "steps" => shaper.steps(value, &mut document),
            "edges" => {
                document.has_edges = true;
                shaper.edges(value, &mut document)
            }
            _ => {
                shaper.unknown_key(entry, path, &KEYS);
                None
            }
        };
        if let Some(normal) = normal {
            canonical.insert(key.clone(), normal);
        }
    }
    for (key, what) in
        [("workflow", "the name of the workflow"), ("version", "a version"), ("steps", "a list of steps")]
    {
        if !entries.iter().any(|entry| entry.key == key) {
            shaper.error("missing-field", root.spot, key, format!("Expected {what} in `{key}`, but it is not there"));
        }
    }
    (document, Value::Object(canonical))
}

impl Shaper<'_> {
    fn steps(&mut self, node: &Node, document: &mut Document) -> Option<Value> {
        let Some(nodes) = self.list(node, "steps", STEPS_MAX) else {
            document.has_lists = false;
            return None;
        };
        if nodes.is_empty() {
            self.error("no-steps", node.spot, "steps", "Expected at least one step, but the list is empty".into());
        }
        let mut canonical = Vec::with_capacity(nodes.len());
        for (ix, node) in nodes.iter().enumerate() {
            let (step, normal) = self.step(node, format!("steps[{ix}]"));
            document.steps.extend(step);
            canonical.push(normal);
        }
        Some(Value::Array(canonical))
    }

    fn edges(&mut self, node: &Node, document: &mut Document) -> Option<Value> {
        let Some(nodes) = self.list(node, "edges", EDGES_MAX) else {
            document.has_lists = false;
            return None;
        };
        let mut canonical = Vec::with_capacity(nodes.len());
        for (ix, node) in nodes.iter().enumerate() {
            let (edge, normal) = self.edge(node, format!("edges[{ix}]"));
            document.edges.extend(edge);
            canonical.push(normal);
        }
        Some(Value::Array(canonical))
    }

    fn list<'n>(&mut self, node: &'n Node, path: &str, max: usize) -> Option<&'n [Node]> {
        match &node.data {
            Data::List(elements) if elements.len() > max => {
                let message = format!("Expected at most {max} {path}, but found {}", elements.len());
                self.error("too-large", node.spot, path, message);
                None
            }
            Data::List(elements) => Some(elements),
            _ => self.wrong(node, path, "a list"),
        }
    }

    fn map<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Entry]> {
        match &node.data {
            Data::Map(entries) => Some(entries),
            _ => self.wrong(node, path, "an object"),
        }
    }

    fn unknown_key(&mut self, entry: &Entry, path: &str, known: &[&str]) {
        let near = known.iter().find(|known| is_near(&entry.key, known));
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let message = format!("Expected one of {}, but found {}{hint}", known.join(", "), quote(&entry.key));
        self.error("unknown-key", entry.spot, path, message);
    }

    fn wrong<T>(&mut self, node: &Node, path: &str, wanted: &str) -> Option<T> {
        self.error("wrong-type", node.spot, path, format!("Expected {wanted}, but found {}", node.describe()));
        None
    }

    fn error(&mut self, code: &'static str, spot: Spot, path: &str, message: String) {
        self.findings.push(Finding::error(code, spot, path, message));
    }
}

/// The same but for case, separators, or one character more, less or other.
fn is_near(found: &str, known: &str) -> bool {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let (found, known) = (plain(found), plain(known));
    if found == known {
        return true;
    }
    let (short, long) = if found.len() < known.len() { (&found, &known) } else { (&known, &found) };
    if long.len() - short.len() > 1 || short.len() < 3 {
        return false;
    }
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    if short.len() == long.len() { short[same + 1..] == long[same + 1..] } else { short[same..] == long[same + 1..] }
}
