//! Kind `run`: one run of a workflow.
//!
//! Two pure machines in one grain: the engine's projection, and beside it (unless Run Control is external) the authority. A
//! message becomes one fact; the engine says what follows; the authority records it; all of it is one turn. Here is only the
//! glue.

mod advance;
mod bundled;
mod external;
mod plan;
mod reads;
mod reminders;
mod reproject;
mod stop;
mod submit;
mod summary;
mod turn;

pub use summary::summary;

use super::methods::run as methods;
use super::{KindOptions, RunMode, wire};
use crate::engine::Projection;
use crate::run_control::Authority;
use grain_contract::{
    Code, Context, Corrupt, Decision, Grain, GrainId, GrainKind, GrainType, Message, Method, Need, Rejection, Row,
    Supply,
};
use granary_proto::storage;
use plan::PlanSlot;
use uuid::Uuid;

pub struct RunType {
    options: KindOptions,
}

impl RunType {
    pub fn new(options: KindOptions) -> Self {
        Self { options }
    }
}

impl GrainType for RunType {
    fn kind(&self) -> GrainKind {
        GrainKind::new(methods::KIND)
    }

    /// All but one: a submission is known by its content, a fact by its number, a claim, a lease's end and a report by attempt
    /// and token, a decision, a cancel and a child's end by what they find. An observation would be in the journal twice.
    fn is_idempotent(&self, method: Method) -> bool {
        method != methods::OBSERVE
    }

    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        // Ids have one canonical form, so that two spellings of one id cannot be two runs (FR-174).
        let run_id = Uuid::try_parse(&id.key).ok().filter(|parsed| parsed.to_string() == *id.key);
        let Some(run_id) = run_id else {
            return Ok(Box::new(NoSuchRun { key: id.key.to_string() }));
        };
        let authority = Authority::load(id.tenant.as_str(), run_id, &rows)?;
        let (header, damaged) = match (summary::header_of(&rows), authority.run()) {
            (Ok(header), _) => (header, None),
            // The projection can be built again, as long as the authority beside it is whole.
            (Err(corrupt), Some(run)) => {
                let definition_release_id = run.release_id.clone();
                (storage::RunHeaderRow { definition_release_id, ..Default::default() }, Some(corrupt))
            }
            (Err(corrupt), None) => return Err(corrupt),
        };
        Ok(Box::new(RunGrain {
            tenant: id.tenant.to_string(),
            run_id,
            options: self.options.clone(),
            authority,
            engine: EngineSlot::of(id, run_id, rows),
            run_input: header.input,
            release_id: header.definition_release_id,
            plan: PlanSlot::Empty,
            damaged,
        }))
    }
}

/// One run, loaded.
struct RunGrain {
    tenant: String,
    run_id: Uuid,
    options: KindOptions,
    /// In external mode only its reminders are used.
    authority: Authority,
    engine: EngineSlot,
    run_input: Vec<u8>,
    /// The pinned release; empty before acceptance.
    release_id: String,
    plan: PlanSlot,
    /// The header cannot be read: nothing goes but to project the run again.
    damaged: Option<Corrupt>,
}

/// The projection; as rows until the plan is there that gives them meaning.
enum EngineSlot {
    Rows(Vec<Row>),
    Loaded(Box<Projection>),
}

impl EngineSlot {
    fn of(id: &GrainId, run_id: Uuid, mut rows: Vec<Row>) -> Self {
        rows.retain(|row| row.key.table < methods::table::AUTHORITY);
        if rows.is_empty() {
            Self::Loaded(Box::new(Projection::new(id.tenant.as_str(), run_id)))
        } else {
            Self::Rows(rows)
        }
    }
}

impl Grain for RunGrain {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision {
        let reprojects = matches!(message, Message::Call { method, .. } if *method == methods::REPROJECT);
        if let Some(corrupt) = self.damaged.as_ref().filter(|_| !reprojects) {
            return stop::Stop::quarantined(&corrupt.what).into();
        }
        let decided = match (self.options.mode, message) {
            (_, Message::Call { method, body }) if reads::is_read(*method) => self.read(*method, body),
            (_, Message::Call { body, .. }) if reprojects => self.reproject(cx, body),
            (RunMode::Bundled, _) => self.bundled(cx, message),
            (RunMode::External, _) => self.external(cx, message),
        };
        decided.unwrap_or_else(Decision::from)
    }

    fn supply(&mut self, need: &Need, supply: Supply) {
        self.plan = PlanSlot::supplied(need, supply);
    }

    fn memory(&self) -> usize {
        let engine = match &self.engine {
            EngineSlot::Rows(rows) => rows.iter().map(|row| row.value.len() + 64).sum(),
            EngineSlot::Loaded(projection) => projection.memory(),
        };
        1_024 + self.run_input.len() + self.authority.memory() + engine
    }
}

/// A key that is no run id: there is no such run and never will be.
struct NoSuchRun {
    key: String,
}

impl Grain for NoSuchRun {
    fn handle(&mut self, _: &mut Context<'_>, _: &Message<'_>) -> Decision {
        let shown: String = self.key.chars().take(64).collect();
        let message = format!("Expected a run id (a UUID in lower case with hyphens), but found {shown:?}.");
        Decision::Reject(Rejection::new(Code::Invalid, message).at("runId"))
    }

    fn supply(&mut self, _: &Need, _: Supply) {}

    fn memory(&self) -> usize {
        128
    }
}
