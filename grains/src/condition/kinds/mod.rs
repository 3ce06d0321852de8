//! Condition kinds: what a WaitForCondition or a Branch can ask about a run.
//!
//! A kind is a name, the parameters it takes, and a pure question about recorded facts. To add one: one file like those
//! beside this, and one line in [`ConditionKinds::default`] (or [`ConditionKinds::with`] from outside of this crate). The
//! engine knows none of them by name. A kind may also be served by workers ([`ConditionKinds::serve`]): then each look is
//! an attempt on the queue `condition:NAME`.

mod elapsed_seconds;
mod jsonlogic;
mod parameters;
mod scene_contains_text;
mod step_result_success;
#[cfg(test)]
mod tests;
mod world_variable_equals;

pub(crate) use jsonlogic::NAME as JSONLOGIC;
pub use parameters::{Fault, Parameters};
pub(crate) use step_result_success::NAME as STEP_RESULT_SUCCESS;

use super::Expression;
use grain_contract::Timestamp;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What a condition may know: what is recorded of the run, and the time.
pub trait Facts {
    fn now(&self) -> Timestamp;
    /// When the run was accepted.
    fn run_started(&self) -> Timestamp;
    /// When the asking step began; for a Branch that is now.
    fn step_started(&self) -> Timestamp;
    /// The newest observed scene; `None` = none was observed.
    fn scene(&self) -> Option<Value>;
    /// The variables of the observed world, an object; `None` = no world was observed.
    fn world(&self) -> Option<Value>;
    /// How the step ended last; `None` = it did not end yet, or was skipped or cancelled.
    fn succeeded(&self, step: &str) -> Option<bool>;
    /// A rule over outputs and variables, and over `scene` and `world`.
    ///
    /// # Errors
    /// The rule does not fit the values it met.
    fn evaluate(&self, rule: &Expression) -> Result<Value, String>;
}

/// Answer to one look.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Satisfied,
    NotYet {
        /// From when on the mere passing of time may change the answer; `None`: only new facts can.
        again_at: Option<Timestamp>,
    },
}

impl Verdict {
    /// The answer of a condition that only facts can change.
    pub fn of(satisfied: bool) -> Self {
        if satisfied { Self::Satisfied } else { Self::NotYet { again_at: None } }
    }
}

/// One condition with its parameters, ready to be asked. Pure: the same facts give the same answer.
pub trait Condition: fmt::Debug + Send + Sync {
    /// # Errors
    /// Why it cannot be said; the step fails with class `condition`. What is not known yet is no error but not satisfied.
    fn look(&self, facts: &dyn Facts) -> Result<Verdict, String>;

    /// Steps that it reads, by id: they must exist.
    fn steps(&self) -> Vec<String> {
        Vec::new()
    }

    /// The rule that it evaluates, if it has one: its roots must exist.
    fn rule(&self) -> Option<&Expression> {
        None
    }
}

/// A kind of condition.
pub trait ConditionKind: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Reads the parameters when a definition is loaded.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    fn read(&self, parameters: Parameters<'_>) -> Result<Arc<dyn Condition>, Vec<Fault>>;
}

/// The kinds that are known, by name.
#[derive(Clone, Debug)]
pub struct ConditionKinds {
    here: BTreeMap<String, Arc<dyn ConditionKind>>,
    served: BTreeSet<String>,
}

impl Default for ConditionKinds {
    fn default() -> Self {
        Self { here: BTreeMap::new(), served: BTreeSet::new() }
            .with(Arc::new(scene_contains_text::SceneContainsText))
            .with(Arc::new(world_variable_equals::WorldVariableEquals))
            .with(Arc::new(elapsed_seconds::ElapsedSeconds))
            .with(Arc::new(step_result_success::StepResultSuccess))
            .with(Arc::new(jsonlogic::JsonLogic))
    }
}

impl ConditionKinds {
    /// These and one more. One of the same name is replaced.
    #[must_use]
    pub fn with(mut self, kind: Arc<dyn ConditionKind>) -> Self {
        self.here.insert(kind.name().to_owned(), kind);
        self
    }

    /// These and one that workers answer. A kind that is evaluated here keeps its name.
    #[must_use]
    pub fn serve(mut self, name: impl Into<String>) -> Self {
        self.served.insert(name.into());
        self
    }

    /// All names, those of workers too, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.here.keys().chain(&self.served).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A condition of this kind with these parameters.
    ///
    /// # Errors
    /// What is wrong with the parameters. An unknown kind is no error here: a step that asks for one fails when it runs.
    pub fn condition(&self, kind: &str, parameters: &Map<String, Value>) -> Result<How, Vec<Fault>> {
        match self.here.get(kind) {
            Some(kind) => kind.read(Parameters(parameters)).map(How::Here),
            None if self.served.contains(kind) => Ok(How::Served),
            None => Ok(How::Unknown),
        }
    }
}

/// Who answers a condition.
#[derive(Clone, Debug)]
pub enum How {
    /// The engine, from recorded facts.
    Here(Arc<dyn Condition>),
    /// A worker, by an attempt on the queue `condition:KIND`.
    Served,
    /// Nobody: the step fails with class `unrecognized-condition-kind`.
    Unknown,
}
