//! What a definition is judged against, beside its own text.

use super::plan::Backoff;
use crate::condition::kinds::ConditionKinds;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How strictly a document is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Defaults may be taken; each is a warning.
    Draft,
    /// What is not declared is an error.
    Publish,
    /// The document was judged when it was stored: only what the plan itself needs is looked at again. The schemas, classes
    /// and other definitions of this node have no say, since they may have changed since.
    Stored,
}

#[derive(Clone, Debug)]
pub struct Environment {
    /// Schema texts by the reference that documents use.
    pub schemas: BTreeMap<String, String>,
    /// From the harmless to the dangerous; the first is the default of drafts.
    pub action_classes: Vec<String>,
    /// S1's `DefaultMaxLoopIterations`.
    pub max_loop_iterations: u32,
    /// S1's `DefaultStepTimeoutMinutes`, for Agent, Tool and Compensation steps.
    pub step_timeout_ms: u64,
    pub backoff: Backoff,
    /// Known definitions: which definitions each starts as sub-workflows. For cycles that span definitions.
    pub sub_workflows: HashMap<String, Vec<String>>,
    /// What WaitForCondition and Branch can ask.
    pub conditions: Arc<ConditionKinds>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            schemas: BTreeMap::new(),
            action_classes: ["read", "sandbox", "shared-write"].map(String::from).to_vec(),
            max_loop_iterations: 10,
            step_timeout_ms: 60 * 60 * 1_000,
            backoff: Backoff { initial_ms: 1_000, factor: 2.0, max_ms: 60_000 },
            sub_workflows: HashMap::new(),
            conditions: Arc::default(),
        }
    }
}
