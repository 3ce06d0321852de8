//! From a document without errors to the plan: names become indices, defaults are filled in.

use super::SKILL_PREFIX;
use super::analysis::Analysis;
use super::document::{Document, Edge as DocumentEdge, Kind, Placed, Question, Retry, Step as DocumentStep};
use super::environment::Environment;
use super::graph::Graph;
use super::plan::*;
use super::shape::{skill_reference, workflow_reference};
use crate::condition::Expression;
use grain_contract::limits::BACKOFF_MS_MAX;
use std::collections::HashMap;

/// Attempts where the document does not say: one and two more. They happen under `Retry`, and for the uncertain ends of
/// class `read`, which may be repeated without harm.
const DEFAULT_ATTEMPTS: u32 = 3;
/// Between two looks of a worker at a condition, where the document does not say.
const DEFAULT_POLL_MS: u64 = 5_000;

/// `None`: something that the rules should have found is missing. They look at the same document just before.
pub(super) fn plan(document: Document, graph: &Graph, analysis: &Analysis, env: &Environment) -> Option<Plan> {
    let loops = loops(&document, analysis, env);
    let loop_of: HashMap<usize, u32> = analysis.loops.iter().zip(0u32..).map(|(back, ix)| (back.edge, ix)).collect();
    let mut compensations: HashMap<String, StepIx> = HashMap::new();
    for (ix, step) in document.steps.iter().enumerate().filter(|(_, step)| step.is(Kind::Compensation)) {
        compensations.insert(step.id.value.clone(), at(ix));
    }
    // Undeclared ones come after the document's own steps, in the order in which they are named.
    let mut undeclared = Vec::new();
    for target in document.steps.iter().filter_map(|step| step.compensation.as_ref()) {
        if !compensations.contains_key(&target.value) {
            compensations.insert(target.value.clone(), at(document.steps.len() + undeclared.len()));
            undeclared.push(target.value.clone());
        }
    }
    let has_items: Vec<bool> = document.steps.iter().map(|step| step.items.is_some()).collect();
    let mut steps = Vec::with_capacity(document.steps.len() + undeclared.len());
    for (ix, step) in document.steps.into_iter().enumerate() {
        let place = Place {
            join: analysis.join_of.get(&ix).copied().flatten().map(at),
            fanout: analysis.fanout_of(ix).map(at),
            incoming: edges(graph, &graph.incoming[ix]),
            outgoing: edges(graph, &graph.outgoing[ix]),
            scope: analysis.scopes[ix].iter().copied().map(at).collect(),
            in_items: analysis.scopes[ix].iter().any(|fanout| has_items[*fanout]),
            loops: around(analysis, ix),
            compensation: step.compensation.as_ref().and_then(|target| compensations.get(&target.value).copied()),
        };
        steps.push(self::step(step, place, env)?);
    }
    steps.extend(undeclared.into_iter().map(|name| undeclared_compensation(name, env)));
    let edges =
        document.edges.into_iter().enumerate().map(|(ix, edge)| self::edge(edge, graph, loop_of.get(&ix).copied()));
    Some(Plan {
        definition_id: document.workflow?.value,
        version: document.version?.value,
        release_id: String::new(),
        graph_hash: String::new(),
        draft: false,
        by_id: steps.iter().enumerate().map(|(ix, step)| (step.id.clone(), at(ix))).collect(),
        edges: edges.collect::<Option<_>>()?,
        waits: steps.iter().any(|step| matches!(step.kind, StepKind::WaitFor { .. })),
        steps,
        entries: graph.entries().into_iter().map(at).collect(),
        terminals: graph.terminals().into_iter().map(at).collect(),
        loops,
        variables: document.variables,
        deadline_ms: document.deadline_ms.map(|deadline| deadline.value),
        input_schema_ref: document.input.map(|reference| reference.value).unwrap_or_default(),
        output_schema_ref: document.output.map(|reference| reference.value).unwrap_or_default(),
        max_loop_iterations: document.max_loop_iterations.map_or(env.max_loop_iterations, |max| max.value),
        output: None,
        parameters: None,
    })
}

/// What the graph knows of a step.
struct Place {
    join: Option<StepIx>,
    fanout: Option<StepIx>,
    incoming: Vec<EdgeIx>,
    outgoing: Vec<EdgeIx>,
    scope: Vec<StepIx>,
    /// Inside a dynamic Fanout: what stands for the input is its element.
    in_items: bool,
    loops: Vec<u32>,
    compensation: Option<StepIx>,
}

fn step(step: DocumentStep, place: Place, env: &Environment) -> Option<Step> {
    let kind = step.kind?.value;
    let declared = kind.as_str();
    let acts = kind.must_declare() || kind == Kind::Compensation;
    let default_timeout = match kind {
        // People, and runs of their own, take the time they take.
        Kind::Agent | Kind::Tool | Kind::Compensation | Kind::PlannedGoal => Some(env.step_timeout_ms),
        Kind::WaitForCondition => step.wait_ms.map(|wait| wait.value),
        _ => None,
    };
    let default_class = if acts { env.action_classes.first().cloned().unwrap_or_default() } else { String::new() };
    let timeout_ms = step.timeout_ms.map(|timeout| timeout.value).or(default_timeout);
    let failure_policy = step.failure_policy.map_or(FailurePolicy::Fail, |policy| policy.value);
    let mut input = step.input_mapping.map(|mapping| mapping.value);
    let kind = match kind {
        Kind::PlannedGoal => {
            input = Some(goal(text(step.goal)?, input, place.in_items));
            StepKind::Agent { agent: text(step.agent)? }
        }
        Kind::SkillInvocation => {
            let none = || Expression::constant(serde_json::Value::Object(serde_json::Map::new()));
            input = Some(step.arguments.map_or_else(none, |arguments| arguments.value));
            let (name, version) = skill_reference(&text(step.skill)?).ok()?;
            StepKind::SubWorkflow { definition_id: format!("{SKILL_PREFIX}{name}"), version }
        }
        Kind::WaitForCondition => StepKind::WaitFor {
            check: check(step.condition?, env)?,
            poll_ms: step.poll_ms.map_or(DEFAULT_POLL_MS, |poll| poll.value),
        },
        Kind::Branch => StepKind::Branch { check: check(step.condition?, env)? },
        Kind::Agent => StepKind::Agent { agent: text(step.agent)? },
        Kind::Tool => StepKind::Tool { tool: text(step.tool)? },
        Kind::Human => StepKind::Human { ask: step.ask.map_or(Ask::Approval, |ask| ask.value) },
        Kind::Condition => StepKind::Condition { expression: step.expression?.value },
        Kind::Timer => StepKind::Timer { wait: step.delay.or(step.until)?.value },
        Kind::SubWorkflow => {
            let (definition_id, version) = workflow_reference(&text(step.workflow)?).ok()?;
            StepKind::SubWorkflow { definition_id, version }
        }
        Kind::Fanout => StepKind::Fanout(Fanout { items: step.items.map(|items| items.value), join: place.join }),
        Kind::Join => StepKind::Join(Join {
            fanout: place.fanout,
            quorum: step.quorum.map_or(Quorum::All, |quorum| quorum.value),
            losers: step.losers.map_or(Losers::Cancel, |losers| losers.value),
        }),
        Kind::Compensation => StepKind::Compensation {
            queue: match (step.agent, step.tool) {
                (Some(agent), _) => format!("agent:{}", agent.value),
                (None, tool) => format!("tool:{}", text(tool)?),
            },
        },
    };
    // A worker's look at the world reads it, and may be repeated.
    let is_served = matches!(kind, StepKind::WaitFor { .. } | StepKind::Branch { .. }) && kind.queue().is_some();
    let default_class = if is_served { env.action_classes.first().cloned().unwrap_or_default() } else { default_class };
    Some(Step {
        name: text(step.name).unwrap_or_else(|| step.id.value.clone()),
        id: step.id.value,
        kind,
        declared,
        routes_failure: step.is_asked_about,
        action_class: text(step.action_class).unwrap_or(default_class),
        failure_policy,
        max_attempts: step.max_attempts.map_or(DEFAULT_ATTEMPTS, |max| max.value),
        backoff: backoff(step.retry, env),
        timeout_ms,
        compensation: place.compensation,
        input,
        incoming: place.incoming,
        outgoing: place.outgoing,
        scope: place.scope,
        loops: place.loops,
    })
}

/// What the agent of a PlannedGoal gets: the goal, and the input beside it.
fn goal(goal: String, mapping: Option<Expression>, in_items: bool) -> Expression {
    let input = mapping.unwrap_or_else(|| Expression::of_root(if in_items { "item" } else { "input" }));
    Expression::object([("goal", Expression::constant(serde_json::Value::String(goal))), ("input", input)])
}

fn check(question: Question, env: &Environment) -> Option<Check> {
    let how = env.conditions.condition(&question.kind.value, &question.parameters).ok()?;
    Some(Check { kind: question.kind.value, parameters: question.parameters, how })
}

/// A draft's undeclared compensation: the tool of that name.
fn undeclared_compensation(name: String, env: &Environment) -> Step {
    Step {
        name: name.clone(),
        kind: StepKind::Compensation { queue: format!("tool:{name}") },
        declared: Kind::Compensation.as_str(),
        routes_failure: false,
        id: name,
        action_class: env.action_classes.first().cloned().unwrap_or_default(),
        failure_policy: FailurePolicy::Fail,
        max_attempts: DEFAULT_ATTEMPTS,
        backoff: backoff(Retry::default(), env),
        timeout_ms: Some(env.step_timeout_ms),
        compensation: None,
        input: None,
        incoming: Vec::new(),
        outgoing: Vec::new(),
        scope: Vec::new(),
        loops: Vec::new(),
    }
}

fn edge(edge: DocumentEdge, graph: &Graph, loop_back: Option<u32>) -> Option<Edge> {
    let end = |name: &str| graph.by_id.get(name).copied().map(at);
    Some(Edge { from: end(&edge.from.value)?, to: end(&edge.to.value)?, guard: edge.guard, loop_back })
}

fn loops(document: &Document, analysis: &Analysis, env: &Environment) -> Vec<Loop> {
    let max_iterations = document.max_loop_iterations.map_or(env.max_loop_iterations, |max| max.value);
    analysis
        .loops
        .iter()
        .map(|back| Loop {
            back: EdgeIx(back.edge as u32),
            head: at(back.head),
            body: back.body.iter().copied().map(at).collect(),
            max_iterations,
        })
        .collect()
}

/// The loops around a step, outermost (the largest) first.
fn around(analysis: &Analysis, step: usize) -> Vec<u32> {
    let mut around: Vec<u32> =
        (0u32..).zip(&analysis.loops).filter(|(_, back)| back.members.has(step)).map(|(ix, _)| ix).collect();
    around.sort_by_key(|ix| (std::cmp::Reverse(analysis.loops[*ix as usize].body.len()), *ix));
    around
}

fn backoff(retry: Retry, env: &Environment) -> Backoff {
    let initial_ms = retry.initial_ms.unwrap_or(env.backoff.initial_ms.min(retry.max_ms.unwrap_or(BACKOFF_MS_MAX)));
    Backoff {
        initial_ms,
        factor: retry.factor.unwrap_or(env.backoff.factor),
        max_ms: retry.max_ms.unwrap_or(env.backoff.max_ms.max(initial_ms)).min(BACKOFF_MS_MAX),
    }
}

fn edges(graph: &Graph, links: &[usize]) -> Vec<EdgeIx> {
    links.iter().map(|link| EdgeIx(graph.links[*link].edge as u32)).collect()
}

fn at(step: usize) -> StepIx {
    // Documents hold at most 2,000 steps.
    StepIx(step as u32)
}

fn text(placed: Option<Placed<String>>) -> Option<String> {
    placed.map(|placed| placed.value)
}
