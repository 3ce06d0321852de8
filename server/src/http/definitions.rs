//! Definitions: S1's validate and versions, and load and list beside them.

use super::body::TextBody;
use super::params::Params;
use super::runs::page_size;
use super::{Edge, Problem, Route, Segment, Takes, answer, json};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use granary_proto::v1;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;

const TAG: &str = "definitions";
/// A document together with the schemas it refers to.
const WITH_SCHEMAS: &str = "application/vnd.granary.definition+json";
const DOCUMENTS: [&str; 7] =
    ["", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", "application/json"];

pub fn routes() -> Vec<Route> {
    vec![
        Route {
            method: "post",
            path: "/runtime/workflow-definitions/validate",
            id: "ValidateWorkflowDefinition",
            tag: TAG,
            summary: "Checks a workflow document and gives all findings at once; keeps nothing.",
            parameters: &[("publish", "true: check as for publication.")],
            takes: Takes::Document,
            gives: "ValidateWorkflowDefinitionResponse",
            success: 200,
            handler: || post(validate),
        },
        Route {
            method: "get",
            path: "/runtime/workflow-definitions/{definitionId}/versions",
            id: "ListWorkflowDefinitionVersions",
            tag: TAG,
            summary: "Loaded versions of a definition with graph hashes, newest first.",
            parameters: &[],
            takes: Takes::Nothing,
            gives: "ListWorkflowDefinitionVersionsResponse",
            success: 200,
            handler: || get(versions),
        },
        Route {
            method: "post",
            path: "/runtime/workflow-definitions",
            id: "LoadWorkflowDefinition",
            tag: TAG,
            summary: "Checks a workflow document and makes it a release, once a release id (200 instead of 201 if it was there).",
            parameters: &[
                ("draft", "true: take defaults for what is not declared (development mode only)."),
                ("releaseId", "Default: definitionId@version."),
            ],
            takes: Takes::Document,
            gives: "LoadWorkflowDefinitionResponse",
            success: 201,
            handler: || post(load).get(list),
        },
        Route {
            method: "get",
            path: "/runtime/workflow-definitions",
            id: "ListWorkflowDefinitions",
            tag: TAG,
            summary: "The newest version of each definition.",
            parameters: &[("pageSize", "At most 500."), ("pageToken", "nextPageToken of the page before.")],
            takes: Takes::Nothing,
            gives: "ListWorkflowDefinitionsResponse",
            success: 200,
            handler: axum::routing::MethodRouter::new,
        },
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WithSchemas {
    document: String,
    #[serde(default)]
    schemas: HashMap<String, String>,
}

fn document(body: TextBody) -> Result<WithSchemas, Problem> {
    if body.media_type == WITH_SCHEMAS {
        return json::parse(body.text.as_bytes());
    }
    if !DOCUMENTS.contains(&body.media_type.as_str()) {
        let message =
            format!("Expected application/yaml, application/json or {WITH_SCHEMAS}, but found {:?}.", body.media_type);
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", message));
    }
    Ok(WithSchemas { document: body.text, schemas: HashMap::new() })
}

fn flag(params: &mut Params, name: &'static str) -> Result<bool, Problem> {
    Ok(params.parsed(name, "true or false")?.unwrap_or(false))
}

async fn validate(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
    body: TextBody,
) -> Result<Response, Problem> {
    let publish = flag(&mut params, "publish")?;
    params.end()?;
    let WithSchemas { document, schemas } = document(body)?;
    let request = v1::ValidateWorkflowDefinitionRequest { document, publish, schemas };
    Ok(answer(StatusCode::OK, &edge.api.validate_definition(&caller, &request).await?))
}

async fn load(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
    body: TextBody,
) -> Result<Response, Problem> {
    let draft = flag(&mut params, "draft")?;
    let release_id = params.text("releaseId")?;
    params.end()?;
    let WithSchemas { document, schemas } = document(body)?;
    let request = v1::LoadWorkflowDefinitionRequest { document, schemas, draft, release_id };
    let loaded = edge.api.load_definition(&caller, request).await?;
    if loaded.loaded {
        let status = if loaded.repeated { StatusCode::OK } else { StatusCode::CREATED };
        return Ok(answer(status, &loaded));
    }
    let errors = loaded.findings.iter().filter(|f| f.severity == "error").count();
    let message = format!("Expected a document without errors, but found {errors}.");
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", message).with("findings", json!(loaded.findings)))
}

async fn versions(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(definition_id): Segment,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.list_versions(&caller, &definition_id).await?))
}

async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let request = v1::ListWorkflowDefinitionsRequest {
        page_size: page_size(&mut params)?,
        page_token: params.text("pageToken")?,
    };
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.list_definitions(&caller, &request).await?))
}
