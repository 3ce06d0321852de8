//! Ordered workflows (S2). One file a requirement of the source, one test a scenario, under its own name. Every message meets
//! a grain that was just read from its rows, so each of these is a restart between any two messages too.

mod branch;
mod checkpoints;
mod condition_kinds;
mod definition;
mod planned_goal;
mod polling;
mod restarts;
mod resume;
mod skill_invocation;
mod wait_for_condition;

use crate::world::{World, run_id, submit};
use grain_contract::GrainId;
use grains::condition::kinds::ConditionKinds;
use grains::definition::{Environment, Mode, Plan, load};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use granary_proto::wire::Json;
use std::sync::Arc;

pub fn environment(conditions: ConditionKinds) -> Environment {
    Environment { conditions: Arc::new(conditions), ..Environment::default() }
}

/// The plan of a draft: steps alone, under the name `list`.
pub fn plan_in(env: &Environment, steps: &str) -> Arc<Plan> {
    let loaded = load(&format!("workflow: list\nversion: '1'\nsteps:\n{steps}"), Mode::Draft, env);
    let errors: Vec<_> = loaded.findings.iter().filter(|finding| finding.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let plan = loaded.plan.expect("a plan");
    Arc::new(Plan { release_id: "list@1".into(), ..plan })
}

pub fn plan(steps: &str) -> Arc<Plan> {
    plan_in(&Environment::default(), steps)
}

/// A run of the list that has just been accepted.
pub fn begun(plan: Arc<Plan>) -> (World, GrainId) {
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("list@1", "")).expect("accepted");
    (world, run)
}

impl World {
    /// Reports the open attempt of the step.
    pub fn ends(&mut self, step: &str, outcome: &str, output: &str) {
        let attempt = self.attempt_of(step);
        let result = self.report(attempt, outcome, output).expect("taken");
        assert!(result.accepted, "{result:?}");
    }

    /// The worker of the step's open attempt tells what it saw.
    pub fn observes(&mut self, run: &GrainId, step: &str, kind: &str, value: &str) {
        let attempt = self.attempt_of(step);
        let work = self.work[&attempt].clone();
        let lease = work.lease.unwrap_or_else(|| self.claim(attempt).expect("a claim"));
        let observe = v1::Observe {
            run_id: work.assignment.run_id,
            attempt_id: attempt.to_string(),
            lease_token: lease.token.to_vec(),
            kind: kind.into(),
            value: Some(Json::new(value)),
            by: String::new(),
        };
        let _: () = self.call(run, run::OBSERVE, &observe).expect("recorded");
    }

    /// Step id and state of every step run, in order.
    pub fn states(&mut self, run: &GrainId) -> Vec<(String, String)> {
        let graph = self.shown(run);
        graph.step_runs.into_iter().map(|step| (step.step_id, step.state)).collect()
    }

    pub fn state_of(&mut self, run: &GrainId, step: &str) -> String {
        let states = self.states(run);
        states.into_iter().rev().find(|(id, _)| id == step).map(|(_, state)| state).unwrap_or_default()
    }

    pub fn shown(&mut self, run: &GrainId) -> v1::RunGraph {
        self.call(run, run::GRAPH, &v1::GetRunGraphRequest::default()).expect("a graph")
    }

    pub fn state(&mut self, run: &GrainId) -> String {
        self.shown(run).state
    }

    pub fn failure(&mut self, run: &GrainId) -> (String, String) {
        let failure = self.shown(run).failure.expect("a failure");
        (failure.class, failure.message)
    }

    /// Fires reminders until this much time has passed.
    pub fn passes(&mut self, ms: u64) {
        let until = self.now.plus_ms(ms);
        loop {
            let due = self.stored.values().flat_map(|stored| stored.reminders.values()).min().copied();
            if due.is_none_or(|due| due > until) {
                break;
            }
            self.next_reminder();
        }
        self.now = until;
    }
}
