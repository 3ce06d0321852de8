//! The compiled form of a definition: indices instead of names, every default filled in, ready for the engine.
//!
//! A plan is immutable and shared by all runs of its release.

use super::skill::Parameters;
use crate::condition::Expression;
use crate::condition::kinds::How;
use std::collections::HashMap;

/// Index of a step in [`Plan::steps`]: the order of the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepIx(pub u32);

/// Index of an edge in [`Plan::edges`]: the order of the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeIx(pub u32);

#[derive(Debug)]
pub struct Plan {
    pub definition_id: String,
    pub version: String,
    pub release_id: String,
    pub graph_hash: String,
    pub draft: bool,
    pub steps: Vec<Step>,
    pub edges: Vec<Edge>,
    pub by_id: HashMap<String, StepIx>,
    /// Forward steps (no Compensation step) without an incoming forward edge, in document order.
    pub entries: Vec<StepIx>,
    /// Steps without an outgoing edge that is not a loop-back, in document order: the run's output is theirs.
    pub terminals: Vec<StepIx>,
    pub loops: Vec<Loop>,
    /// Some step is a WaitForCondition.
    pub waits: bool,
    /// Initial `vars`, a JSON object.
    pub variables: serde_json::Map<String, serde_json::Value>,
    pub deadline_ms: Option<u64>,
    pub input_schema_ref: String,
    pub output_schema_ref: String,
    pub max_loop_iterations: u32,
    /// The run's output; `None` = the output of the one terminal step that succeeded, or an object of them by step id.
    pub output: Option<Expression>,
    /// Of a skill: what its input is checked against when a run is accepted.
    pub parameters: Option<Parameters>,
}

#[derive(Debug)]
pub struct Step {
    pub id: String,
    pub name: String,
    pub kind: StepKind,
    /// The kind as it is written: four kinds of ordered lists run as others do.
    pub declared: &'static str,
    /// A failure for good is data for the outgoing edges, as under `Route`, whatever the policy tries before.
    pub routes_failure: bool,
    /// Declared class; empty for the kinds that have none.
    pub action_class: String,
    pub failure_policy: FailurePolicy,
    /// At least 1. Attempts beyond the first happen under `Retry` (and for `Uncertain` outcomes of class `read`).
    pub max_attempts: u32,
    pub backoff: Backoff,
    /// Of one attempt; for Human, of the wait. `None` = no timeout.
    pub timeout_ms: Option<u64>,
    /// The Compensation step that undoes this one.
    pub compensation: Option<StepIx>,
    /// Input of the step; `None` = the element inside a dynamic Fanout, else the run's input. For a Compensation step:
    /// `None` = the forward step's output.
    pub input: Option<Expression>,
    /// Forward edges and loop-backs, in document order.
    pub incoming: Vec<EdgeIx>,
    pub outgoing: Vec<EdgeIx>,
    /// Enclosing Fanouts, outermost first. A step inside has one step run a branch.
    pub scope: Vec<StepIx>,
    /// Loops around this step, outermost first (indices of [`Plan::loops`]).
    pub loops: Vec<u32>,
}

#[derive(Debug)]
pub enum StepKind {
    Agent {
        agent: String,
    },
    Tool {
        tool: String,
    },
    /// `Approval` gives `{"decision":"approved","by":…,"comment":…}` as output, `Input` the answer.
    Human {
        ask: Ask,
    },
    /// Output: the value of the expression. Edges with a guard "true"/"false" follow its truthiness.
    Condition {
        expression: Expression,
    },
    Timer {
        wait: Wait,
    },
    /// Waits until its condition is satisfied; the step's timeout is how long. Output: true.
    WaitFor {
        check: Check,
        /// Between two looks of a worker, if one answers the condition.
        poll_ms: u64,
    },
    /// Output: whether its condition is satisfied now. Edges with a guard "true"/"false" follow it.
    Branch {
        check: Check,
    },
    SubWorkflow {
        definition_id: String,
        version: Option<String>,
    },
    Fanout(Fanout),
    Join(Join),
    /// Not part of the forward graph. Runs as the agent or tool it names.
    Compensation {
        queue: String,
    },
}

/// A condition of a registered kind.
#[derive(Debug)]
pub struct Check {
    pub kind: String,
    /// As they are written: what a worker gets.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    pub how: How,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Approval,
    Input,
}

#[derive(Debug)]
pub enum Wait {
    For(u64),
    /// Milliseconds since the epoch.
    Until(i64),
    /// Evaluated when the step becomes ready: a number of seconds, an ISO 8601 duration or an RFC 3339 moment.
    Computed(Expression),
}

#[derive(Debug)]
pub struct Fanout {
    /// `None`: static, one branch an outgoing edge. `Some`: dynamic, one branch an element of the list it gives.
    pub items: Option<Expression>,
    /// The Join that collects the branches.
    pub join: Option<StepIx>,
}

#[derive(Debug)]
pub struct Join {
    /// The Fanout whose branches arrive here; `None`: a join of plain edges (branches of a condition, parallel paths).
    pub fanout: Option<StepIx>,
    pub quorum: Quorum,
    pub losers: Losers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    All,
    Any,
    Count(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losers {
    Cancel,
    Keep,
}

#[derive(Debug)]
pub struct Edge {
    pub from: StepIx,
    pub to: StepIx,
    pub guard: Guard,
    /// `Some`: a loop-back; index of [`Plan::loops`].
    pub loop_back: Option<u32>,
}

#[derive(Debug)]
pub enum Guard {
    /// Taken when the step succeeded.
    Always,
    /// `guard: "true"` / `"false"`: the truthiness of the from-step's output.
    IsTrue,
    IsFalse,
    /// `guard: "failed"` / `"succeeded"`: for policy Route.
    Failed,
    Succeeded,
    /// A JsonLogic rule over recorded outputs.
    Rule(Expression),
}

/// A natural loop: the steps that reach the loop-back's source without passing its target, and both ends.
#[derive(Debug)]
pub struct Loop {
    pub back: EdgeIx,
    pub head: StepIx,
    pub body: Vec<StepIx>,
    /// Iterations at most, from 1: taking the loop-back when this many were made fails the source step with `loop-bound`.
    pub max_iterations: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailurePolicy {
    Fail,
    Retry,
    Escalate,
    Compensate,
    Route,
}

/// Delay before attempt n+1: `initial · factor^(n-1)`, at most `max`. Computed without overflow for any n.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backoff {
    pub initial_ms: u64,
    pub factor: f64,
    pub max_ms: u64,
}

impl Plan {
    pub fn step(&self, ix: StepIx) -> &Step {
        &self.steps[ix.0 as usize]
    }
    pub fn edge(&self, ix: EdgeIx) -> &Edge {
        &self.edges[ix.0 as usize]
    }
}

impl StepKind {
    /// S1's name of the kind: what Run Control and workers see.
    pub fn as_str(&self) -> &'static str {
        match self {
            StepKind::Agent { .. } => "Agent",
            StepKind::Tool { .. } => "Tool",
            StepKind::Human { .. } => "Human",
            StepKind::Condition { .. } => "Condition",
            StepKind::Timer { .. } => "Timer",
            StepKind::WaitFor { .. } | StepKind::Branch { .. } => "Condition",
            StepKind::SubWorkflow { .. } => "SubWorkflow",
            StepKind::Fanout(_) => "Fanout",
            StepKind::Join(_) => "Join",
            StepKind::Compensation { .. } => "Compensation",
        }
    }

    /// What is to be started for it, as a name: its queue, or `workflow:ID` and `workflow:ID@VERSION` for a child run.
    pub fn target(&self) -> Option<String> {
        match self {
            StepKind::SubWorkflow { definition_id, version: None } => Some(format!("workflow:{definition_id}")),
            StepKind::SubWorkflow { definition_id, version: Some(version) } => {
                Some(format!("workflow:{definition_id}@{version}"))
            }
            _ => self.queue(),
        }
    }

    /// The queue whose workers do it: `agent:NAME`, `tool:NAME`, `condition:KIND`; `None` for what the engine does itself.
    pub fn queue(&self) -> Option<String> {
        match self {
            StepKind::Agent { agent } => Some(format!("agent:{agent}")),
            StepKind::Tool { tool } => Some(format!("tool:{tool}")),
            StepKind::Compensation { queue } => Some(queue.clone()),
            StepKind::WaitFor { check, .. } | StepKind::Branch { check } => check.queue(),
            _ => None,
        }
    }
}

impl Check {
    /// The queue of a condition that workers answer: `condition:KIND`.
    pub fn queue(&self) -> Option<String> {
        matches!(self.how, How::Served).then(|| format!("condition:{}", self.kind))
    }
}
