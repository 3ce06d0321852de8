//! Plans for these tests, put together by hand: what the engine gets from a document, without the document.

use grains::condition::Expression;
use grains::definition::{
    Ask, Backoff, Edge, EdgeIx, FailurePolicy, Fanout, Guard, Join, Losers, Plan, Quorum, Step, StepIx, StepKind, Wait,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Steps and edges in order; everything else follows.
pub struct Flow {
    plan: Plan,
}

pub fn flow(definition: &str) -> Flow {
    Flow {
        plan: Plan {
            definition_id: definition.into(),
            version: "1".into(),
            release_id: format!("{definition}@1"),
            graph_hash: format!("hash of {definition}"),
            draft: false,
            steps: Vec::new(),
            edges: Vec::new(),
            by_id: HashMap::new(),
            entries: Vec::new(),
            terminals: Vec::new(),
            loops: Vec::new(),
            waits: false,
            variables: serde_json::Map::new(),
            deadline_ms: None,
            input_schema_ref: String::new(),
            output_schema_ref: String::new(),
            max_loop_iterations: 10,
            output: None,
            parameters: None,
        },
    }
}

pub fn tool(name: &str) -> StepKind {
    StepKind::Tool { tool: name.into() }
}
pub fn agent(name: &str) -> StepKind {
    StepKind::Agent { agent: name.into() }
}
pub fn human() -> StepKind {
    StepKind::Human { ask: Ask::Approval }
}
pub fn timer(ms: u64) -> StepKind {
    StepKind::Timer { wait: Wait::For(ms) }
}
pub fn child(definition: &str) -> StepKind {
    StepKind::SubWorkflow { definition_id: definition.into(), version: None }
}
pub fn condition(rule: serde_json::Value) -> StepKind {
    StepKind::Condition { expression: rule_of(rule) }
}
pub fn fanout() -> StepKind {
    StepKind::Fanout(Fanout { items: None, join: None })
}
pub fn join() -> StepKind {
    StepKind::Join(Join { fanout: None, quorum: Quorum::All, losers: Losers::Cancel })
}
pub fn undo(queue: &str) -> StepKind {
    StepKind::Compensation { queue: queue.into() }
}
pub fn rule_of(rule: serde_json::Value) -> Expression {
    Expression::compile(&rule).expect("a rule of the tests")
}

impl Flow {
    pub fn step(self, id: &str, kind: StepKind) -> Self {
        self.step_with(id, kind, |_| {})
    }

    pub fn step_with(mut self, id: &str, kind: StepKind, change: impl FnOnce(&mut Step)) -> Self {
        let has_class = kind.queue().is_some() || matches!(kind, StepKind::Human { .. });
        let mut step = Step {
            id: id.into(),
            name: id.into(),
            declared: kind.as_str(),
            routes_failure: false,
            action_class: if has_class { "read".into() } else { String::new() },
            kind,
            failure_policy: FailurePolicy::Fail,
            max_attempts: 1,
            backoff: Backoff { initial_ms: 1_000, factor: 2.0, max_ms: 60_000 },
            timeout_ms: None,
            compensation: None,
            input: None,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            scope: Vec::new(),
            loops: Vec::new(),
        };
        change(&mut step);
        let ix = StepIx(self.plan.steps.len() as u32);
        self.plan.by_id.insert(id.into(), ix);
        self.plan.steps.push(step);
        self
    }

    /// The step is one branch, or part of one, of a Fanout.
    pub fn inside(self, id: &str, fanout: &str) -> Self {
        let owner = self.ix(fanout);
        self.change(id, |step| step.scope.push(owner))
    }

    /// The Join that collects the branches of a Fanout.
    pub fn collects(self, join: &str, fanout: &str) -> Self {
        let (join_ix, fanout_ix) = (self.ix(join), self.ix(fanout));
        self.change(join, |step| {
            if let StepKind::Join(join) = &mut step.kind {
                join.fanout = Some(fanout_ix);
            }
        })
        .change(fanout, |step| {
            if let StepKind::Fanout(fanout) = &mut step.kind {
                fanout.join = Some(join_ix);
            }
        })
    }

    /// `undo` undoes `step`, and a failure of `failing` starts it.
    pub fn undone_by(self, step: &str, undo: &str) -> Self {
        let ix = self.ix(undo);
        self.change(step, |s| s.compensation = Some(ix))
    }

    pub fn change(mut self, id: &str, change: impl FnOnce(&mut Step)) -> Self {
        let ix = self.ix(id);
        change(&mut self.plan.steps[ix.0 as usize]);
        self
    }

    pub fn edge(self, from: &str, to: &str) -> Self {
        self.guarded(from, to, Guard::Always)
    }

    pub fn guarded(mut self, from: &str, to: &str, guard: Guard) -> Self {
        let (from, to) = (self.ix(from), self.ix(to));
        let ix = EdgeIx(self.plan.edges.len() as u32);
        self.plan.edges.push(Edge { from, to, guard, loop_back: None });
        self.plan.steps[from.0 as usize].outgoing.push(ix);
        self.plan.steps[to.0 as usize].incoming.push(ix);
        self
    }

    pub fn deadline_ms(mut self, ms: u64) -> Self {
        self.plan.deadline_ms = Some(ms);
        self
    }

    pub fn plan(mut self) -> Arc<Plan> {
        for (ix, step) in self.plan.steps.iter().enumerate() {
            if matches!(step.kind, StepKind::Compensation { .. }) {
                continue;
            }
            if step.incoming.is_empty() {
                self.plan.entries.push(StepIx(ix as u32));
            }
            if step.outgoing.is_empty() {
                self.plan.terminals.push(StepIx(ix as u32));
            }
        }
        Arc::new(self.plan)
    }

    fn ix(&self, id: &str) -> StepIx {
        self.plan.by_id[id]
    }
}

/// Tool steps in a row.
pub fn line(definition: &str, steps: &[&str]) -> Arc<Plan> {
    let mut flow = flow(definition);
    for step in steps {
        flow = flow.step(step, tool(step));
    }
    for pair in steps.windows(2) {
        flow = flow.edge(pair[0], pair[1]);
    }
    flow.plan()
}
