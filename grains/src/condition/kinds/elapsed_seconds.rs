//! `{kind: elapsed_seconds, seconds: 30}`: so much time has passed since the step began, or since the run did
//! (`since: run`).

use super::parameters::described;
use super::{Condition, ConditionKind, Facts, Fault, Parameters, Verdict};
use crate::definition::duration_of_seconds;
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct ElapsedSeconds;

#[derive(Clone, Copy, Debug)]
enum Since {
    Step,
    Run,
}

#[derive(Debug)]
struct Elapsed {
    ms: u64,
    since: Since,
}

impl ConditionKind for ElapsedSeconds {
    fn name(&self) -> &str {
        "elapsed_seconds"
    }

    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>> {
        let mut faults = parameters.only(&["seconds", "since"]);
        let ms = match parameters.get("seconds") {
            Some(Value::Number(number)) => duration_of_seconds(number.as_f64().unwrap_or(-1.0))
                .map_err(|message| faults.push(Fault::new("seconds", message))),
            found => {
                let message = format!("Expected a number of seconds in `seconds`, but found {}", described(found));
                faults.push(Fault::new("seconds", message));
                Err(())
            }
        };
        let since = match parameters.get("since") {
            None => Ok(Since::Step),
            Some(Value::String(word)) if word == "step" => Ok(Since::Step),
            Some(Value::String(word)) if word == "run" => Ok(Since::Run),
            found => {
                let message = format!("Expected `step` or `run` in `since`, but found {}", described(found));
                faults.push(Fault::new("since", message));
                Err(())
            }
        };
        match (ms, since) {
            (Ok(ms), Ok(since)) if faults.is_empty() => Ok(Arc::new(Elapsed { ms, since })),
            _ => Err(faults),
        }
    }
}

impl Condition for Elapsed {
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String> {
        let from = match self.since {
            Since::Step => facts.step_started(),
            Since::Run => facts.run_started(),
        };
        let at = from.plus_ms(self.ms);
        Ok(if facts.now() >= at { Verdict::Satisfied } else { Verdict::NotYet { again_at: Some(at) } })
    }
}
