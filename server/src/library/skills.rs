//! Skills of this cluster. A skill is kept as a release of the definition `skill:NAME`, so it is immutable per version, pinned
//! and supplied like any other.

use super::load::{check_size, now, off_thread};
use super::{Library, compile};
use crate::api::{call, grain};
use grain_contract::{Code, Rejection, TenantId};
use grains::definition::SKILL_PREFIX;
use grains::definition::skill::{LoadedSkill, Parameter, Skill, load_skill};
use grains::kinds::methods::release;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use std::collections::{BTreeMap, HashMap};
use tokio::time::Instant;

impl Library {
    /// Checks a skill and keeps it. Idempotent on name, version and content; another content is a conflict.
    ///
    /// A document with errors is an answer, not a rejection.
    pub async fn load_skill(
        &self,
        tenant: &TenantId,
        document: String,
        deadline: Instant,
    ) -> Result<v1::LoadSkillResponse, Rejection> {
        check_size(&document)?;
        let environment = compile::environment(&self.live.get(), BTreeMap::new(), HashMap::new());
        let (judged, plan) = off_thread(move || {
            let judged = load_skill(&document, &environment);
            let plan = judged.skill.as_ref().and_then(|skill| skill.plan("", &judged.hash, &environment));
            (judged, plan)
        })
        .await?;
        let LoadedSkill { skill, findings, canonical, hash } = judged;
        let findings = compile::to_wire(&findings);
        let Some(skill) = skill else {
            self.figures.definition_rejected(tenant, "validation");
            return Ok(v1::LoadSkillResponse { findings, ..Default::default() });
        };
        let definition_id = format!("{SKILL_PREFIX}{}", skill.name);
        let release_id = format!("{definition_id}@{}", skill.version);
        if let Some(plan) = &plan {
            let denials = self.policy.check(tenant, &release_id, compile::action_classes(plan)).await?;
            if let Some(denial) = denials.into_iter().next() {
                self.figures.definition_rejected(tenant, "policy");
                let message = format!("policy-denied: call {:?}: {}", denial.step_id, denial.reason);
                return Err(Rejection::new(Code::Denied, message));
            }
        }
        let version = v1::DefinitionVersion {
            definition_id,
            version: skill.version.clone(),
            release_id,
            tenant_id: tenant.to_string(),
            graph_hash: hash,
            step_count: u32::try_from(skill.call_count()).unwrap_or(u32::MAX),
            loaded_at: Some(now()),
            ..Default::default()
        };
        let (version, repeated) = self.keep(tenant, canonical, BTreeMap::new(), version, deadline).await?;
        Ok(v1::LoadSkillResponse { loaded: true, skill: Some(shown(&skill, &version)), findings, repeated })
    }

    /// One version of a skill, the newest without one, with its document.
    pub async fn skill(
        &self,
        tenant: &TenantId,
        name: &str,
        version: &str,
        deadline: Instant,
    ) -> Result<v1::GetSkillResponse, Rejection> {
        let wanted = Some(version).filter(|version| !version.is_empty());
        let version = self.version_of(tenant, &format!("{SKILL_PREFIX}{name}"), wanted, deadline).await?;
        self.skill_of(tenant, &version, deadline).await
    }

    /// Newest first.
    pub async fn skill_versions(
        &self,
        tenant: &TenantId,
        name: &str,
        deadline: Instant,
    ) -> Result<Vec<v1::SkillVersion>, Rejection> {
        let mut found = Vec::new();
        for version in self.versions(tenant, &format!("{SKILL_PREFIX}{name}"), deadline).await? {
            found.extend(self.skill_of(tenant, &version, deadline).await?.skill);
        }
        Ok(found)
    }

    async fn skill_of(
        &self,
        tenant: &TenantId,
        version: &v1::DefinitionVersion,
        deadline: Instant,
    ) -> Result<v1::GetSkillResponse, Rejection> {
        let target = grain(tenant, release::KIND, &version.release_id);
        let put: calls::PutRelease = call(self.silo()?, target, release::GET, Vec::new(), deadline).await?;
        let skill = compile::stored_skill(&self.live.get(), &put)?;
        Ok(v1::GetSkillResponse { skill: Some(shown(&skill, version)), document: Some(Json::new(put.document)) })
    }
}

fn shown(skill: &Skill, version: &v1::DefinitionVersion) -> v1::SkillVersion {
    let parameter = |parameter: &Parameter| v1::SkillParameter {
        name: parameter.name.clone(),
        r#type: parameter.kind.as_str().to_owned(),
        required: parameter.required,
        default: parameter.default.as_ref().map(Json::of),
        description: parameter.description.clone(),
    };
    v1::SkillVersion {
        name: skill.name.clone(),
        version: skill.version.clone(),
        kind: skill.kind.clone(),
        description: skill.description.clone(),
        parameters: skill.parameters.0.iter().map(parameter).collect(),
        call_count: version.step_count,
        hash: version.graph_hash.clone(),
        tenant_id: version.tenant_id.clone(),
        loaded_at: version.loaded_at,
    }
}
