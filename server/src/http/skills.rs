//! Skills: load, list, get.

use super::body::TextBody;
use super::params::Params;
use super::runs::page_size;
use super::{Edge, Problem, Route, Segment, Takes, answer};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use granary_proto::v1;
use http::StatusCode;
use serde_json::json;

const TAG: &str = "skills";

pub fn routes() -> Vec<Route> {
    vec![
        Route {
            method: "post",
            path: "/runtime/skills",
            id: "LoadSkill",
            tag: TAG,
            summary: "Checks a skill and keeps it, once a version (200 instead of 201 if it was there).",
            parameters: &[],
            takes: Takes::Document,
            gives: "LoadSkillResponse",
            success: 201,
            handler: || post(load).get(list),
        },
        Route {
            method: "get",
            path: "/runtime/skills",
            id: "ListSkills",
            tag: TAG,
            summary: "The newest version of each skill.",
            parameters: &[("pageSize", "At most 500."), ("pageToken", "nextPageToken of the page before.")],
            takes: Takes::Nothing,
            gives: "ListSkillsResponse",
            success: 200,
            handler: axum::routing::MethodRouter::new,
        },
        Route {
            method: "get",
            path: "/runtime/skills/{name}",
            id: "GetSkill",
            tag: TAG,
            summary: "One version of a skill, with its document.",
            parameters: &[("version", "Default: the newest.")],
            takes: Takes::Nothing,
            gives: "GetSkillResponse",
            success: 200,
            handler: || get(one),
        },
        Route {
            method: "get",
            path: "/runtime/skills/{name}/versions",
            id: "ListSkillVersions",
            tag: TAG,
            summary: "Versions of a skill, newest first.",
            parameters: &[],
            takes: Takes::Nothing,
            gives: "ListSkillVersionsResponse",
            success: 200,
            handler: || get(versions),
        },
    ]
}

async fn load(State(edge): State<Edge>, caller: Caller, params: Params, body: TextBody) -> Result<Response, Problem> {
    params.end()?;
    let loaded = edge.api.load_skill(&caller, v1::LoadSkillRequest { document: body.text }).await?;
    if loaded.loaded {
        let status = if loaded.repeated { StatusCode::OK } else { StatusCode::CREATED };
        return Ok(answer(status, &loaded));
    }
    let errors = loaded.findings.iter().filter(|f| f.severity == "error").count();
    let message = format!("Expected a skill without errors, but found {errors}.");
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", message).with("findings", json!(loaded.findings)))
}

async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let request = v1::ListSkillsRequest { page_size: page_size(&mut params)?, page_token: params.text("pageToken")? };
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.list_skills(&caller, &request).await?))
}

async fn one(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(name): Segment,
    mut params: Params,
) -> Result<Response, Problem> {
    let version = params.text("version")?;
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.skill(&caller, &v1::GetSkillRequest { name, version }).await?))
}

async fn versions(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(name): Segment,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.skill_versions(&caller, &name).await?))
}
