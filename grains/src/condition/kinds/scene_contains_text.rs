//! `{kind: scene_contains_text, text: Inbox}`: the newest observed scene shows the text.
//!
//! A scene is a text, or an object or list of any shape: every text in it counts. Keys do not.

use super::{Condition, ConditionKind, Facts, Fault, Parameters, Verdict};
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct SceneContainsText;

#[derive(Debug)]
struct Contains {
    text: String,
    ignore_case: bool,
}

impl ConditionKind for SceneContainsText {
    fn name(&self) -> &str {
        "scene_contains_text"
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        let mut faults = parameters.only(&["text", "ignoreCase"]);
        let text = parameters.text("text").map_err(|fault| faults.push(fault));
        let ignore_case = parameters.flag("ignoreCase").map_err(|fault| faults.push(fault));
        match (text, ignore_case) {
            (Ok(text), Ok(ignore_case)) if faults.is_empty() => {
                let text = if ignore_case { text.to_lowercase() } else { text };
                Ok(Arc::new(Contains { text, ignore_case }))
            }
            _ => Err(faults),
        }
    }
}

impl Condition for Contains {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        Ok(Verdict::of(facts.scene().is_some_and(|scene| self.is_in(&scene))))
    }
}

impl Contains {
    /// Observations are JSON that was read with a bounded depth, so this ends.
    fn is_in(&self, scene: &Value) -> bool {
        match scene {
            Value::String(text) if self.ignore_case => text.to_lowercase().contains(&self.text),
            Value::String(text) => text.contains(&self.text),
            Value::Array(parts) => parts.iter().any(|part| self.is_in(part)),
            Value::Object(parts) => parts.values().any(|part| self.is_in(part)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}
