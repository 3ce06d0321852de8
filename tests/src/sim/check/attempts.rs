//! A step run is at work at one worker at a time, and has one effect.
//!
//! A worker's right is counted by its own account, which ends before the silo's: see `load::worker`. From when it begins to
//! report it does not work any more: its report may have been committed long before it hears so.

use super::Check;
use crate::sim::court::Sight;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

#[derive(Default)]
pub struct Attempts {
    /// Step run of each attempt that a worker was ever given.
    step_runs: HashMap<Uuid, String>,
    /// Step run → who is at work on which attempt of it, and until when by its own account.
    at_work: HashMap<String, BTreeMap<(String, Uuid), u64>>,
    /// Who does not work any more on what it may still hold.
    let_go: BTreeSet<(String, Uuid)>,
    succeeded: HashMap<String, (String, Uuid)>,
    now_us: u64,
}

impl Check for Attempts {
    fn name(&self) -> &'static str {
        "one effect a step run"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let mut faults = Vec::new();
        match sight {
            Sight::Assigned { worker, at_us, assignment, .. } => {
                self.now_us = *at_us;
                let Ok(attempt) = Uuid::try_parse(&assignment.attempt_id) else {
                    return vec![format!("{worker} was given an attempt without a name")];
                };
                let step_run = assignment.step_run_id.clone();
                self.step_runs.insert(attempt, step_run.clone());
                let at_work = self.at_work.entry(step_run.clone()).or_default();
                let others = at_work
                    .iter()
                    .filter(|((other, of), until)| (other != worker || *of != attempt) && **until > *at_us);
                faults.extend(others.map(|((other, of), until)| {
                    format!(
                        "{worker} was given attempt {attempt} of step run {step_run} at {at_us} us, but {other} is at work \
                         on attempt {of} until {until}"
                    )
                }));
                at_work.insert((worker.clone(), attempt), 0);
                self.let_go.remove(&(worker.clone(), attempt));
            }
            Sight::Held { worker, attempt, until_us } => {
                let by = (worker.clone(), *attempt);
                if let Some(step_run) = self.step_runs.get(attempt).filter(|_| !self.let_go.contains(&by)) {
                    let at_work = self.at_work.entry(step_run.clone()).or_default();
                    at_work.insert(by, *until_us);
                }
            }
            Sight::LetGo { worker, attempt } => {
                self.let_go.insert((worker.clone(), *attempt));
                if let Some(at_work) = self.step_runs.get(attempt).and_then(|of| self.at_work.get_mut(of)) {
                    at_work.remove(&(worker.clone(), *attempt));
                }
            }
            Sight::Reported { worker, attempt, outcome, accepted: true } if outcome == "Succeeded" => {
                let step_run = self.step_runs.get(attempt).cloned().unwrap_or_default();
                let by = (worker.clone(), *attempt);
                let first = self.succeeded.entry(step_run.clone()).or_insert_with(|| by.clone());
                if first.1 != *attempt {
                    faults.push(format!(
                        "step run {step_run} succeeded by attempt {} of {} and by {attempt} of {worker}",
                        first.1, first.0
                    ));
                }
            }
            _ => {}
        }
        faults
    }
}
