//! The grain kinds of Granary: a run, a release, a definition.
//!
//! A kind is glue: it decodes the message, lets the pure machines decide, and puts what they said into one turn. What a
//! workflow means is not known here (that is `engine`), nor who may do what to a run (`run_control`).

pub mod definition;
pub mod methods;
pub mod release;
pub mod run;
mod wire;

use crate::engine::EngineOptions;
use grain_contract::GrainType;
use std::fmt;
use std::sync::Arc;

/// Who owns runs, steps, attempts and approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// The authority in the run's own grain.
    Bundled,
    /// Somebody outside, who sends the facts; only the engine is here.
    External,
}

#[derive(Clone)]
pub struct KindOptions {
    pub mode: RunMode,
    /// Asked once a turn, so that a reload is felt by the next turn.
    pub engine: Arc<dyn Fn() -> EngineOptions + Send + Sync>,
}

impl KindOptions {
    /// Options that never change.
    pub fn fixed(mode: RunMode, engine: EngineOptions) -> Self {
        Self { mode, engine: Arc::new(move || engine.clone()) }
    }
}

impl fmt::Debug for KindOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindOptions").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// All kinds a silo hosts.
pub fn grain_types(options: KindOptions) -> Vec<Arc<dyn GrainType>> {
    vec![Arc::new(run::RunType::new(options)), Arc::new(release::ReleaseType), Arc::new(definition::DefinitionType)]
}
