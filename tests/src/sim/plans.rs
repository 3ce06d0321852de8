//! The definitions that simulated runs are of, and who hands them to the grains: late, sometimes not at the first asking.

use super::chance::Chance;
use super::tally;
use cluster::Supplier;
use futures::future::BoxFuture;
use grain_contract::{Code, GrainId, Need, Rejection, Supply};
use grains::definition::{Environment, Mode, Plan, load};
use grains::kinds::methods::{NEED_PLAN, NEED_RELEASE_OF};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One of each shape that a graph can have.
const DOCUMENTS: [&str; 8] = [
    r"
workflow: line
version: 1.0.0
steps:
  - { id: first, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 5 }
  - { id: second, kind: Agent, agent: clerk, actionClass: read, failurePolicy: Retry, maxAttempts: 5 }
  - { id: third, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Fail }
edges:
  - { from: first, to: second }
  - { from: second, to: third }
",
    r"
workflow: diamond
version: 1.0.0
steps:
  - { id: top, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
  - { id: left, kind: Tool, tool: anvil, actionClass: sandbox, failurePolicy: Escalate }
  - { id: right, kind: Agent, agent: clerk, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
  - { id: bottom, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Fail }
edges:
  - { from: top, to: left }
  - { from: top, to: right }
  - { from: left, to: bottom }
  - { from: right, to: bottom }
",
    r"
workflow: crowd
version: 1.0.0
steps:
  - { id: each, kind: Fanout, items: { var: input.items } }
  - { id: piece, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 6 }
  - { id: all, kind: Join, quorum: all }
edges:
  - { from: each, to: piece }
  - { from: piece, to: all }
",
    r"
workflow: wait
version: 1.0.0
steps:
  - { id: nap, kind: Timer, delay: 2s }
  - { id: work, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
  - { id: rest, kind: Timer, delay: 1s }
edges:
  - { from: nap, to: work }
  - { from: work, to: rest }
",
    r"
workflow: person
version: 1.0.0
steps:
  - { id: draft, kind: Agent, agent: clerk, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
  - { id: review, kind: Human, actionClass: read, failurePolicy: Fail }
  - { id: print, kind: Tool, tool: anvil, actionClass: shared-write, failurePolicy: Escalate }
edges:
  - { from: draft, to: review }
  - { from: review, to: print }
",
    r"
workflow: regret
version: 1.0.0
steps:
  - { id: book, kind: Tool, tool: anvil, actionClass: sandbox, failurePolicy: Escalate, compensation: unbook }
  - { id: pay, kind: Tool, tool: anvil, actionClass: sandbox, failurePolicy: Escalate, compensation: repay }
  - { id: doomed, kind: Tool, tool: doom, actionClass: read, failurePolicy: Compensate }
  - { id: unbook, kind: Compensation, tool: anvil, actionClass: sandbox }
  - { id: repay, kind: Compensation, tool: anvil, actionClass: sandbox }
edges:
  - { from: book, to: pay }
  - { from: pay, to: doomed }
",
    r#"
workflow: rounds
version: 1.0.0
maxLoopIterations: 5
steps:
  - { id: turn, kind: Agent, agent: clerk, actionClass: read, failurePolicy: Retry, maxAttempts: 4,
      inputMapping: { round: { var: turn.round } } }
  - { id: enough, kind: Condition, expression: { ">=": [ { var: turn.round }, 3 ] } }
  - { id: done, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
edges:
  - { from: turn, to: enough }
  - { from: enough, to: turn, guard: "false", isLoopBack: true }
  - { from: enough, to: done, guard: "true" }
"#,
    r"
workflow: parent
version: 1.0.0
steps:
  - { id: before, kind: Tool, tool: anvil, actionClass: read, failurePolicy: Retry, maxAttempts: 4 }
  - { id: child, kind: SubWorkflow, workflow: line, failurePolicy: Fail }
edges:
  - { from: before, to: child }
",
];

/// The plans by release id, which is the definition's name.
#[derive(Clone)]
pub struct Plans(Arc<BTreeMap<String, Arc<Plan>>>);

impl Plans {
    /// # Errors
    /// What is wrong with a document.
    pub fn compile() -> Result<Self, String> {
        let environment = Environment::default();
        let mut plans = BTreeMap::new();
        for document in DOCUMENTS {
            let loaded = load(document, Mode::Draft, &environment);
            let Some(plan) = loaded.plan else {
                return Err(format!("{document}\n{:#?}", loaded.findings));
            };
            let release_id = plan.definition_id.clone();
            plans.insert(release_id.clone(), Arc::new(Plan { release_id, ..plan }));
        }
        Ok(Self(Arc::new(plans)))
    }

    pub fn releases(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// One node's supplier.
pub struct Supplies {
    pub plans: Plans,
    pub chance: Mutex<Chance>,
}

impl Supplier for Supplies {
    fn supply<'a>(&'a self, _: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>> {
        let (takes_ms, fails) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            let slow = need.kind == tally::NEED || chance.permille(100);
            (if slow { chance.between(1..2_500) } else { chance.below(3) }, chance.permille(50))
        };
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(takes_ms)).await;
            if fails {
                return Err(Rejection::new(Code::Unavailable, "Expected an answer, but the supplier is away."));
            }
            let thing: Arc<dyn Any + Send + Sync> = match need.kind {
                tally::NEED => Arc::new(()),
                NEED_PLAN | NEED_RELEASE_OF => match self.plans.0.get(&need.key) {
                    Some(plan) => plan.clone(),
                    None => {
                        let message = format!("Expected a release, but {} is none.", need.key);
                        return Ok(Err(Rejection::new(Code::NotFound, message)));
                    }
                },
                other => {
                    let message = format!("Expected a need that is known, but found {other}.");
                    return Ok(Err(Rejection::new(Code::Internal, message)));
                }
            };
            Ok(Ok(thing))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_compiles() {
        assert_eq!(Plans::compile().map(|plans| plans.releases().len()), Ok(DOCUMENTS.len()));
    }
}
