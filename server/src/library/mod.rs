//! Definitions of this cluster: load and keep them, and give the engine the compiled plan of a release.
//!
//! A document becomes a release in five steps: checked, compared with the hash it was announced with, asked of policy, put
//! into its release grain, listed in its definition grain. Each step can be repeated, so a load that stopped half-way is
//! simply done again.

mod cache;
mod compile;
mod load;
mod loading;
mod skills;
mod supply;

pub use load::{Incoming, Loaded};
pub use supply::Supplies;

use crate::api::{call, grain};
use crate::config::Live;
use crate::metrics::Figures;
use crate::policy::Policy;
use crate::registry::Registry;
use crate::tenant::Caller;
use cache::Cache;
use cluster::Silo;
use compile::InputSchema;
use grain_contract::{Code, Rejection, TenantId};
use grains::definition::{Plan, SKILL_PREFIX};
use grains::kinds::methods::{definition, release};
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// A release, ready to run.
pub struct Compiled {
    pub plan: Arc<Plan>,
    /// `None` if any input will do.
    pub input_schema: Option<InputSchema>,
}

pub struct Library {
    silo: OnceLock<Silo>,
    live: Live,
    registry: Option<Registry>,
    policy: Policy,
    figures: Arc<Figures>,
    plans: Cache,
    loading: loading::Loading,
}

impl Library {
    /// # Errors
    /// An endpoint in the configuration is not a URL.
    pub fn new(live: Live, figures: Arc<Figures>) -> Result<Arc<Self>, Rejection> {
        let config = live.get();
        let registry = Some(config.agent_registry.endpoint.as_str())
            .filter(|e| !e.is_empty())
            .map(Registry::connect)
            .transpose()?;
        Ok(Arc::new(Self {
            silo: OnceLock::new(),
            policy: Policy::of(&live)?,
            live,
            registry,
            figures,
            plans: Cache::default(),
            loading: loading::Loading::default(),
        }))
    }

    /// The silo needs a supplier to start, and the supplier needs the silo: it is handed in afterwards, once.
    pub(crate) fn attach(&self, silo: Silo) {
        let _ = self.silo.set(silo);
    }

    /// Plans are compiled again when they are next asked for: a default changed.
    pub fn forget_plans(&self) {
        self.plans.clear();
    }

    fn silo(&self) -> Result<&Silo, Rejection> {
        let starting = || Rejection::new(Code::Unavailable, "Expected a running silo, but it is still starting.");
        self.silo.get().ok_or_else(starting)
    }

    /// The compiled release: from memory, else from the cluster, else (if one is configured) from the Agent Registry.
    ///
    /// # Errors
    /// `NotFound`: nobody knows it. `Denied`, `Invalid`, `Conflict`: it was refused, and says why. Others may pass.
    pub async fn release(
        self: &Arc<Self>,
        tenant: &TenantId,
        release_id: &str,
        deadline: Instant,
    ) -> Result<Arc<Compiled>, Rejection> {
        match self.release_here(tenant, release_id, deadline).await {
            Err(refusal) if refusal.code == Code::NotFound => {}
            answer => return answer,
        }
        if let Some(refusal) = self.plans.refused(tenant, release_id) {
            return Err(refusal);
        }
        if self.registry.is_none() {
            return Err(unknown(release_id));
        }
        let announced = v1::AssetReleasePublishedMessage { release_id: release_id.to_owned(), ..Default::default() };
        self.published(tenant, announced, deadline).await?;
        self.stored(tenant, release_id, deadline).await
    }

    /// The same, without asking the Agent Registry.
    async fn release_here(
        &self,
        tenant: &TenantId,
        release_id: &str,
        deadline: Instant,
    ) -> Result<Arc<Compiled>, Rejection> {
        match self.plans.get(tenant, release_id) {
            Some(found) => Ok(found),
            None => self.stored(tenant, release_id, deadline).await,
        }
    }

    async fn stored(&self, tenant: &TenantId, release_id: &str, deadline: Instant) -> Result<Arc<Compiled>, Rejection> {
        let target = grain(tenant, release::KIND, release_id);
        let put: calls::PutRelease = call(self.silo()?, target, release::GET, Vec::new(), deadline).await?;
        let compiled = Arc::new(compile::stored(&self.live.get(), &put)?);
        self.plans.put(tenant, release_id, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The version that a definition id stands for: the one named, else the newest published one (in development mode, if
    /// there is none, the newest draft).
    pub async fn version_of(
        &self,
        tenant: &TenantId,
        definition_id: &str,
        version: Option<&str>,
        deadline: Instant,
    ) -> Result<v1::DefinitionVersion, Rejection> {
        let versions = self.versions(tenant, definition_id, deadline).await?;
        let development = self.live.get().development;
        let fits = |v: &&v1::DefinitionVersion| version.is_none_or(|wanted| v.version == wanted);
        let published = versions.iter().filter(fits).find(|v| !v.draft);
        let draft = versions.iter().filter(fits).find(|v| v.draft && development);
        published.or(draft).cloned().ok_or_else(|| {
            let wanted = version.map_or_else(|| "a published version".to_owned(), |v| format!("version {v:?}"));
            let known: Vec<&str> = versions.iter().filter(|v| !v.draft).map(|v| v.version.as_str()).collect();
            let found =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            let what = match definition_id.strip_prefix(SKILL_PREFIX) {
                Some(skill) => format!("skill {skill:?}"),
                None => format!("definition {definition_id:?}"),
            };
            Rejection::new(Code::NotFound, format!("Expected {wanted} of {what}, but {found}.")).at("version")
        })
    }

    /// All versions of a definition, newest first.
    pub async fn versions(
        &self,
        tenant: &TenantId,
        definition_id: &str,
        deadline: Instant,
    ) -> Result<Vec<v1::DefinitionVersion>, Rejection> {
        let target = grain(tenant, definition::KIND, definition_id);
        let found: v1::ListWorkflowDefinitionVersionsResponse =
            call(self.silo()?, target, definition::LIST, Vec::new(), deadline).await?;
        Ok(found.versions)
    }

    /// Holds a run's input against the input schema of its release. A release that cannot be had says nothing here: the
    /// run's grain asks for it again and answers for it.
    pub async fn check_input(
        self: &Arc<Self>,
        caller: &Caller,
        release_id: &str,
        input: Option<&Json>,
    ) -> Result<(), Rejection> {
        match self.release(&caller.tenant, release_id, caller.deadline).await {
            Ok(compiled) => compiled.input_schema.as_ref().map_or(Ok(()), |schema| schema.check(input)),
            Err(_) => Ok(()),
        }
    }
}

fn unknown(release_id: &str) -> Rejection {
    Rejection::new(Code::NotFound, format!("Expected a loaded release, but {release_id:?} is not one."))
        .at("definitionReleaseId")
}
