//! The document as its author wrote it: names instead of indices, nothing filled in, each field with its place.

use super::finding::Spot;
use super::plan::{Ask, FailurePolicy, Guard, Losers, Quorum, Wait};
use crate::condition::Expression;
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<T> {
    pub value: T,
    pub spot: Spot,
}

#[derive(Debug, Default)]
pub(super) struct Document {
    pub workflow: Option<Placed<String>>,
    pub version: Option<Placed<String>>,
    pub input: Option<Placed<String>>,
    pub output: Option<Placed<String>>,
    pub variables: Map<String, Value>,
    pub max_loop_iterations: Option<Placed<u32>>,
    pub deadline_ms: Option<Placed<u64>>,
    pub steps: Vec<Step>,
    pub edges: Vec<Edge>,
    /// Without the key `edges` the steps are an ordered list: each leads to the next (see `ordered`).
    pub has_edges: bool,
    /// `steps` and `edges` are lists within their bounds. Without them no rule has anything sensible to say.
    pub has_lists: bool,
}

#[derive(Debug)]
pub(super) struct Step {
    /// `steps[2]`
    pub path: String,
    pub id: Placed<String>,
    /// `None`: missing or unknown, which is a finding of its own.
    pub kind: Option<Placed<Kind>>,
    pub name: Option<Placed<String>>,
    pub agent: Option<Placed<String>>,
    pub tool: Option<Placed<String>>,
    pub workflow: Option<Placed<String>>,
    pub action_class: Option<Placed<String>>,
    pub failure_policy: Option<Placed<FailurePolicy>>,
    pub max_attempts: Option<Placed<u32>>,
    pub timeout_ms: Option<Placed<u64>>,
    pub compensation: Option<Placed<String>>,
    pub ask: Option<Placed<Ask>>,
    pub input_mapping: Option<Placed<Expression>>,
    pub expression: Option<Placed<Expression>>,
    pub items: Option<Placed<Expression>>,
    pub delay: Option<Placed<Wait>>,
    pub until: Option<Placed<Wait>>,
    pub quorum: Option<Placed<Quorum>>,
    pub losers: Option<Placed<Losers>>,
    pub retry: Retry,
    pub goal: Option<Placed<String>>,
    pub skill: Option<Placed<String>>,
    pub arguments: Option<Placed<Expression>>,
    pub condition: Option<Question>,
    pub wait_ms: Option<Placed<u64>>,
    pub poll_ms: Option<Placed<u64>>,
    pub on_true: Option<Placed<String>>,
    pub on_false: Option<Placed<String>>,
    /// The next step of the list is a Branch that asks whether this one succeeded: so a failure does not end the run.
    pub is_asked_about: bool,
    /// Every field that stands there, also those that could not be read.
    pub given: Vec<Placed<String>>,
}

/// A condition of a registered kind, as it is written.
#[derive(Debug)]
pub(super) struct Question {
    pub kind: Placed<String>,
    /// What stands beside `kind`.
    pub parameters: Map<String, Value>,
    pub spots: Vec<(String, Spot)>,
}

impl Question {
    /// Where the parameter stands; for one that is not there the place of the kind.
    pub fn spot_of(&self, parameter: &str) -> Spot {
        self.spots.iter().find(|(name, _)| name == parameter).map_or(self.kind.spot, |(_, spot)| *spot)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    pub initial_ms: Option<u64>,
    pub factor: Option<f64>,
    pub max_ms: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Edge {
    /// `edges[2]`; of an edge that a Branch makes, the field it comes from: `steps[2].onTrue`.
    pub path: String,
    /// It stands in no list of edges, but follows from the order of the steps or from a Branch.
    pub is_implied: bool,
    pub spot: Spot,
    pub from: Placed<String>,
    pub to: Placed<String>,
    pub guard: Guard,
    /// The guard's canonical text: two edges between the same pair need different ones.
    pub guard_text: String,
    pub guard_spot: Spot,
    pub is_loop_back: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Agent,
    Tool,
    Human,
    Condition,
    Timer,
    SubWorkflow,
    Fanout,
    Join,
    Compensation,
    PlannedGoal,
    SkillInvocation,
    WaitForCondition,
    Branch,
}

impl Kind {
    pub(super) const ALL: [Kind; 13] = [
        Kind::Agent,
        Kind::Tool,
        Kind::Human,
        Kind::Condition,
        Kind::Timer,
        Kind::SubWorkflow,
        Kind::Fanout,
        Kind::Join,
        Kind::Compensation,
        Kind::PlannedGoal,
        Kind::SkillInvocation,
        Kind::WaitForCondition,
        Kind::Branch,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Agent => "Agent",
            Kind::Tool => "Tool",
            Kind::Human => "Human",
            Kind::Condition => "Condition",
            Kind::Timer => "Timer",
            Kind::SubWorkflow => "SubWorkflow",
            Kind::Fanout => "Fanout",
            Kind::Join => "Join",
            Kind::Compensation => "Compensation",
            Kind::PlannedGoal => "PlannedGoal",
            Kind::SkillInvocation => "SkillInvocation",
            Kind::WaitForCondition => "WaitForCondition",
            Kind::Branch => "Branch",
        }
    }

    /// Fields beside `id`, `kind` and `name`.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Kind::Agent => &[
                "agent",
                "actionClass",
                "failurePolicy",
                "maxAttempts",
                "timeoutMinutes",
                "compensation",
                "inputMapping",
                "retry",
            ],
            Kind::Tool => &[
                "tool",
                "actionClass",
                "failurePolicy",
                "maxAttempts",
                "timeoutMinutes",
                "compensation",
                "inputMapping",
                "retry",
            ],
            Kind::Human => &[
                "ask",
                "actionClass",
                "failurePolicy",
                "maxAttempts",
                "timeoutMinutes",
                "compensation",
                "inputMapping",
                "retry",
            ],
            Kind::Condition => &["expression", "failurePolicy"],
            Kind::Timer => &["delay", "until", "failurePolicy"],
            Kind::SubWorkflow => {
                &["workflow", "failurePolicy", "maxAttempts", "timeoutMinutes", "compensation", "inputMapping", "retry"]
            }
            Kind::Fanout => &["items", "failurePolicy"],
            Kind::Join => &["quorum", "losers", "failurePolicy"],
            Kind::Compensation => &[
                "agent",
                "tool",
                "actionClass",
                "failurePolicy",
                "maxAttempts",
                "timeoutMinutes",
                "inputMapping",
                "retry",
            ],
            Kind::PlannedGoal => &[
                "goal",
                "agent",
                "actionClass",
                "failurePolicy",
                "maxAttempts",
                "timeoutMinutes",
                "compensation",
                "inputMapping",
                "retry",
            ],
            Kind::SkillInvocation => {
                &["skill", "arguments", "failurePolicy", "maxAttempts", "timeoutMinutes", "compensation", "retry"]
            }
            Kind::WaitForCondition => &["condition", "timeout", "pollInterval", "failurePolicy"],
            Kind::Branch => &["condition", "onTrue", "onFalse", "failurePolicy"],
        }
    }

    /// Does work that acts on the world, so its class and policy must be declared.
    pub(super) fn must_declare(self) -> bool {
        matches!(self, Kind::Agent | Kind::Tool | Kind::Human | Kind::PlannedGoal)
    }
}

impl Step {
    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind.is_some_and(|found| found.value == kind)
    }

    pub(super) fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}
