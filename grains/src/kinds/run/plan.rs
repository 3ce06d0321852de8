//! The plan of the run's release: asked for once an activation, then shared.

use super::stop::Stop;
use super::{EngineSlot, RunGrain};
use crate::definition::Plan;
use crate::engine::Projection;
use crate::kinds::methods::{NEED_PLAN, NEED_RELEASE_OF};
use grain_contract::{Code, Need, Rejection, Supply};
use std::sync::Arc;

/// What the machinery has handed over.
pub(super) enum PlanSlot {
    Empty,
    Have { need: Need, plan: Arc<Plan> },
    Refused { need: Need, why: Rejection },
}

impl PlanSlot {
    pub fn supplied(need: &Need, supply: Supply) -> Self {
        let need = need.clone();
        match supply.map(|thing| thing.downcast::<Plan>()) {
            Ok(Ok(plan)) => Self::Have { need, plan },
            Ok(Err(_)) => {
                let why = Rejection::new(Code::Internal, "Expected a plan to be supplied, but it was something else.");
                Self::Refused { need, why }
            }
            Err(why) => Self::Refused { need, why },
        }
    }
}

impl RunGrain {
    /// The plan for a need; [`Stop::Need`] if it was not asked for yet, the inner error if there is none for good.
    pub(super) fn plan_for(&mut self, need: Need) -> Result<Result<Arc<Plan>, Rejection>, Stop> {
        match &self.plan {
            PlanSlot::Have { need: had, plan } if *had == need => Ok(Ok(plan.clone())),
            PlanSlot::Have { plan, .. } if need.kind == NEED_PLAN && plan.release_id == need.key => {
                Ok(Ok(plan.clone()))
            }
            PlanSlot::Refused { need: had, why } if *had == need => {
                // A refusal holds for this message only: what is missing now may be loaded by the next.
                let why = why.clone();
                self.plan = PlanSlot::Empty;
                Ok(Err(why))
            }
            _ => Err(Stop::Need(need)),
        }
    }

    /// The plan if the run has one in memory.
    pub(super) fn plan(&self) -> Option<Arc<Plan>> {
        match &self.plan {
            PlanSlot::Have { plan, .. } => Some(plan.clone()),
            PlanSlot::Empty | PlanSlot::Refused { .. } => None,
        }
    }

    /// Makes sure that the projection is loaded, with its plan. A run that was never accepted, or was refused at acceptance,
    /// is loaded without one.
    pub(super) fn ready(&mut self) -> Result<(), Stop> {
        match self.pinned_plan()? {
            Ok(plan) => self.load(plan.as_deref()),
            Err(why) => self.load(None).map_err(|_| why.into()),
        }
    }

    /// The plan of the pinned release; `None` for a run that has none.
    pub(super) fn pinned_plan(&mut self) -> Result<Result<Option<Arc<Plan>>, Rejection>, Stop> {
        if self.release_id.is_empty() || self.was_refused() {
            return Ok(Ok(None));
        }
        Ok(self.plan_for(plan_need(&self.release_id))?.map(Some))
    }

    fn was_refused(&self) -> bool {
        self.authority.run().is_some_and(|run| run.refusal.is_some())
    }

    fn load(&mut self, plan: Option<&Plan>) -> Result<(), Stop> {
        let EngineSlot::Rows(rows) = &self.engine else { return Ok(()) };
        let projection = Projection::load(&self.tenant, self.run_id, rows.clone(), plan)
            .map_err(|corrupt| Stop::quarantined(&corrupt.to_string()))?;
        self.engine = EngineSlot::Loaded(Box::new(projection));
        Ok(())
    }

    /// The projection, loaded.
    pub(super) fn projection(&self) -> Result<&Projection, Stop> {
        match &self.engine {
            EngineSlot::Loaded(projection) => Ok(projection),
            EngineSlot::Rows(_) => {
                Err(Stop::new(Code::Internal, "Expected a loaded projection, but it is still in rows."))
            }
        }
    }
}

pub(super) fn plan_need(release_id: &str) -> Need {
    Need { kind: NEED_PLAN, key: release_id.to_owned() }
}

/// For a run that names a definition only, as a child does.
pub(super) fn release_need(definition_id: &str, version: &str) -> Need {
    let key = if version.is_empty() { definition_id.to_owned() } else { format!("{definition_id}@{version}") };
    Need { kind: NEED_RELEASE_OF, key }
}
