//! Skills: load, get, list.

use super::{Api, check};
use crate::tenant::Caller;
use grain_contract::Rejection;
use grains::definition::SKILL_PREFIX;
use grains::kinds::methods::index;
use granary_proto::v1;

impl Api {
    pub async fn load_skill(
        &self,
        caller: &Caller,
        request: v1::LoadSkillRequest,
    ) -> Result<v1::LoadSkillResponse, Rejection> {
        self.inner.library.load_skill(&caller.tenant, request.document, caller.deadline).await
    }

    pub async fn skill(
        &self,
        caller: &Caller,
        request: &v1::GetSkillRequest,
    ) -> Result<v1::GetSkillResponse, Rejection> {
        check::name(&request.name, "name")?;
        check::optional_name(&request.version, "version")?;
        self.inner.library.skill(&caller.tenant, &request.name, &request.version, caller.deadline).await
    }

    pub async fn skill_versions(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<v1::ListSkillVersionsResponse, Rejection> {
        check::name(name, "name")?;
        let versions = self.inner.library.skill_versions(&caller.tenant, name, caller.deadline).await?;
        Ok(v1::ListSkillVersionsResponse { versions })
    }

    pub async fn list_skills(
        &self,
        caller: &Caller,
        request: &v1::ListSkillsRequest,
    ) -> Result<v1::ListSkillsResponse, Rejection> {
        let size = check::page_size(request.page_size);
        let (tenant, token) = (&caller.tenant, &request.page_token);
        let page = self.inner.silo.index_page(index::SKILLS, tenant, token, size, caller.deadline).await?;
        let mut skills = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            let name = entry.grain.key.strip_prefix(SKILL_PREFIX).unwrap_or(&entry.grain.key);
            skills.extend(self.inner.library.skill(tenant, name, "", caller.deadline).await?.skill);
        }
        Ok(v1::ListSkillsResponse { skills, next_page_token: page.next_page_token })
    }
}
