//! Definitions: validate, load, list; and the announcement of a published release.

use super::{Api, check};
use crate::library::Incoming;
use crate::tenant::Caller;
use grain_contract::{Code, Rejection};
use grains::kinds::methods::index;
use granary_proto::v1;

/// Schemas with one document.
const SCHEMAS_MAX: usize = 64;

impl Api {
    pub async fn validate_definition(
        &self,
        caller: &Caller,
        request: &v1::ValidateWorkflowDefinitionRequest,
    ) -> Result<v1::ValidateWorkflowDefinitionResponse, Rejection> {
        check_schemas(request.schemas.len())?;
        self.inner.library.validate(&caller.tenant, request, caller.deadline).await
    }

    pub async fn load_definition(
        &self,
        caller: &Caller,
        request: v1::LoadWorkflowDefinitionRequest,
    ) -> Result<v1::LoadWorkflowDefinitionResponse, Rejection> {
        check_schemas(request.schemas.len())?;
        check::optional_name(&request.release_id, "releaseId")?;
        let incoming = Incoming {
            document: request.document,
            schemas: request.schemas.into_iter().collect(),
            draft: request.draft,
            release_id: request.release_id,
            graph_hash: String::new(),
        };
        let loaded = self.inner.library.load(&caller.tenant, incoming, caller.deadline).await?;
        Ok(v1::LoadWorkflowDefinitionResponse {
            loaded: loaded.version.is_some(),
            version: loaded.version,
            findings: loaded.findings,
            repeated: loaded.repeated,
        })
    }

    pub async fn release_published(
        &self,
        caller: &Caller,
        message: v1::AssetReleasePublishedMessage,
    ) -> Result<v1::AssetReleasePublishedResponse, Rejection> {
        check::name(&message.release_id, "releaseId")?;
        check::optional_name(&message.graph_hash, "graphHash")?;
        let loaded = self.inner.library.published(&caller.tenant, message, caller.deadline).await?;
        Ok(v1::AssetReleasePublishedResponse { loaded: loaded.version.is_some(), findings: loaded.findings })
    }

    pub async fn list_versions(
        &self,
        caller: &Caller,
        definition_id: &str,
    ) -> Result<v1::ListWorkflowDefinitionVersionsResponse, Rejection> {
        check::name(definition_id, "definitionId")?;
        let versions = self.inner.library.versions(&caller.tenant, definition_id, caller.deadline).await?;
        Ok(v1::ListWorkflowDefinitionVersionsResponse { versions })
    }

    pub async fn list_definitions(
        &self,
        caller: &Caller,
        request: &v1::ListWorkflowDefinitionsRequest,
    ) -> Result<v1::ListWorkflowDefinitionsResponse, Rejection> {
        let size = check::page_size(request.page_size);
        let page = self
            .inner
            .silo
            .index_page(index::DEFINITIONS, &caller.tenant, &request.page_token, size, caller.deadline)
            .await?;
        let mut definitions = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            let versions = self.inner.library.versions(&caller.tenant, &entry.grain.key, caller.deadline).await?;
            definitions.extend(versions.into_iter().next());
        }
        Ok(v1::ListWorkflowDefinitionsResponse { definitions, next_page_token: page.next_page_token })
    }
}

fn check_schemas(found: usize) -> Result<(), Rejection> {
    if found > SCHEMAS_MAX {
        let message = format!("Expected at most {SCHEMAS_MAX} schemas, but found {found}.");
        return Err(Rejection::new(Code::TooLarge, message).at("schemas"));
    }
    Ok(())
}
