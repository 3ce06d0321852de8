//! Once faults stop every run ends, exactly once, and its journal tells a possible story.

use super::Check;
use crate::proof;
use crate::sim::court::{End, Sight};

pub struct Runs;

impl Check for Runs {
    fn name(&self) -> &'static str {
        "every run ends once"
    }

    fn see(&mut self, _: &Sight) -> Vec<String> {
        Vec::new()
    }

    fn end(&mut self, end: &End) -> Vec<String> {
        let mut faults = Vec::new();
        for (grain, found) in &end.runs {
            let Some((run, journal)) = found else {
                faults.push(format!("{grain} was accepted, but is not there"));
                continue;
            };
            if !matches!(run.state.as_str(), "Completed" | "Failed" | "Cancelled") {
                let waits: Vec<String> = run.waiting.iter().map(|w| format!("{} {:?}", w.step_id, w.waiting)).collect();
                faults.push(format!("{grain} of {} is {} still, waiting {waits:?}", run.definition_id, run.state));
                continue;
            }
            faults.extend(proof::faults(journal, &[]).into_iter().map(|fault| format!("{grain}: {fault}")));
        }
        faults
    }
}
