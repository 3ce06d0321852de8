//! A skill as a plan: its calls as Tool steps in a line.

use super::Skill;
use super::shape::Call;
use crate::definition::SKILL_PREFIX;
use crate::definition::environment::Environment;
use crate::definition::plan::{Edge, EdgeIx, Guard, Plan, Step, StepIx, StepKind};
use std::collections::HashMap;

/// As for the steps of a workflow.
const DEFAULT_ATTEMPTS: u32 = 3;

pub(super) fn plan(skill: &Skill, release_id: &str, hash: &str, env: &Environment) -> Plan {
    let last = skill.calls.len().saturating_sub(1);
    let steps: Vec<Step> = skill.calls.iter().enumerate().map(|(ix, call)| step(call, ix, last, env)).collect();
    let at = |ix: usize| StepIx(ix as u32);
    Plan {
        definition_id: format!("{SKILL_PREFIX}{}", skill.name),
        version: skill.version.clone(),
        release_id: release_id.to_owned(),
        graph_hash: hash.to_owned(),
        draft: false,
        by_id: steps.iter().enumerate().map(|(ix, step)| (step.id.clone(), at(ix))).collect::<HashMap<_, _>>(),
        edges: (0..last)
            .map(|ix| Edge { from: at(ix), to: at(ix + 1), guard: Guard::Always, loop_back: None })
            .collect(),
        steps,
        entries: vec![at(0)],
        terminals: vec![at(last)],
        loops: Vec::new(),
        waits: false,
        variables: serde_json::Map::new(),
        deadline_ms: None,
        input_schema_ref: String::new(),
        output_schema_ref: String::new(),
        max_loop_iterations: env.max_loop_iterations,
        output: None,
        parameters: Some(skill.parameters.clone()),
    }
}

fn step(call: &Call, ix: usize, last: usize, env: &Environment) -> Step {
    let edge = |ix: usize| EdgeIx(ix as u32);
    Step {
        id: call.id.clone(),
        name: call.id.clone(),
        kind: StepKind::Tool { tool: call.tool.clone() },
        declared: "Tool",
        routes_failure: false,
        action_class: call.action_class.clone(),
        failure_policy: call.failure_policy,
        max_attempts: call.max_attempts.unwrap_or(DEFAULT_ATTEMPTS),
        backoff: env.backoff,
        timeout_ms: Some(call.timeout_ms.unwrap_or(env.step_timeout_ms)),
        compensation: None,
        input: Some(call.input.clone()),
        incoming: ix.checked_sub(1).map(edge).into_iter().collect(),
        outgoing: (ix < last).then(|| edge(ix)).into_iter().collect(),
        scope: Vec::new(),
        loops: Vec::new(),
    }
}
