//! Runs: S1's run graph, and submit, list, get, cancel, journal.

use super::body::JsonBody;
use super::params::{Params, called};
use super::{Edge, Problem, Route, Segment, Takes, answer};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use granary_proto::v1;
use granary_proto::wire::{Json, Timestamp};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;

const TAG: &str = "runs";

pub fn routes() -> Vec<Route> {
    vec![
        Route {
            method: "get",
            path: "/runtime/workflow-runs/{runId}",
            id: "GetWorkflowRunGraph",
            tag: TAG,
            summary: "The graph of a run: step runs with why they wait, timers, compensation entries.",
            parameters: &[
                ("pageSize", "Step runs in one page, at most 500."),
                ("pageToken", "nextPageToken of the page before."),
            ],
            takes: Takes::Nothing,
            gives: "RunGraph",
            success: 200,
            handler: || get(graph),
        },
        Route {
            method: "post",
            path: "/runs",
            id: "SubmitRun",
            tag: TAG,
            summary: "Starts a run, once a key: the same key gives the same run (200 instead of 201).",
            parameters: &[("Idempotency-Key", "The same as clientKey in the body.")],
            takes: Takes::Fields("SubmitRunRequest", &[]),
            gives: "SubmitRunResponse",
            success: 201,
            handler: || post(submit).get(list),
        },
        Route {
            method: "get",
            path: "/runs",
            id: "ListRuns",
            tag: TAG,
            summary: "Runs, newest first, without their outputs. A page may be short and still have a next one.",
            parameters: &[
                ("state", "Run Control's or the engine's state; may be repeated."),
                ("definitionId", "Only runs of this definition."),
                ("waitingOn", "worker, timer, human, join, retry, child."),
                ("queue", "With waitingOn=worker: only this queue."),
                ("acceptedAfter", "RFC 3339."),
                ("acceptedBefore", "RFC 3339."),
                ("pageSize", "At most 500."),
                ("pageToken", "nextPageToken of the page before."),
            ],
            takes: Takes::Nothing,
            gives: "ListRunsResponse",
            success: 200,
            handler: axum::routing::MethodRouter::new,
        },
        Route {
            method: "get",
            path: "/runs/{runId}",
            id: "GetRun",
            tag: TAG,
            summary: "One run.",
            parameters: &[],
            takes: Takes::Nothing,
            gives: "Run",
            success: 200,
            handler: || get(one),
        },
        Route {
            method: "post",
            path: "/runs/{runId}/cancel",
            id: "CancelRun",
            tag: TAG,
            summary: "Cancels a run. Idempotent.",
            parameters: &[],
            takes: Takes::Fields("CancelRunRequest", &["reason"]),
            gives: "Run",
            success: 200,
            handler: || post(cancel),
        },
        Route {
            method: "post",
            path: "/runs/{runId}/observations",
            id: "Observe",
            tag: TAG,
            summary: "Something was seen in the world of the run: what waits for it looks at once.",
            parameters: &[],
            takes: Takes::Fields("ObserveRequest", &["kind", "value"]),
            gives: "ObserveResponse",
            success: 200,
            handler: || post(observe),
        },
        Route {
            method: "get",
            path: "/runs/{runId}/journal",
            id: "ReadJournal",
            tag: TAG,
            summary: "The run's journal, oldest first.",
            parameters: &[("after", "Entries behind this number."), ("pageSize", "At most 500.")],
            takes: Takes::Nothing,
            gives: "ReadJournalResponse",
            success: 200,
            handler: || get(journal),
        },
    ]
}

async fn graph(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(run_id): Segment,
    mut params: Params,
) -> Result<Response, Problem> {
    let request =
        v1::GetRunGraphRequest { run_id, page_size: page_size(&mut params)?, page_token: params.text("pageToken")? };
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.graph(&caller, &request).await?))
}

/// The fields of `SubmitRunRequest`; nothing else is taken.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Submit {
    client_key: String,
    definition_release_id: String,
    definition_id: String,
    version: String,
    project_id: String,
    input: Option<Json>,
    variables: Option<Json>,
    run_id: String,
}

async fn submit(
    State(edge): State<Edge>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Submit>,
) -> Result<Response, Problem> {
    let client_key = match headers.get("idempotency-key") {
        None => body.client_key,
        Some(header) => {
            let key = header.to_str().map_err(|_| {
                Problem::invalid("Expected visible ASCII, but found other bytes.").at("Idempotency-Key")
            })?;
            if !body.client_key.is_empty() && body.client_key != key {
                let message =
                    format!("Expected the same key as the header's {key:?}, but found {:?}.", body.client_key);
                return Err(Problem::invalid(message).at("clientKey"));
            }
            key.to_owned()
        }
    };
    let request = v1::SubmitRunRequest {
        client_key,
        definition_release_id: body.definition_release_id,
        definition_id: body.definition_id,
        version: body.version,
        project_id: body.project_id,
        input: body.input,
        variables: body.variables,
        run_id: body.run_id,
    };
    let submitted = edge.api.submit(&caller, request).await?;
    let status = if submitted.repeated { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = answer(status, &submitted);
    let place = submitted.run.as_ref().and_then(|run| HeaderValue::try_from(format!("/runs/{}", run.run_id)).ok());
    if let Some(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let moment = "a moment like 2026-11-30T12:00:00Z";
    let request = v1::ListRunsRequest {
        states: params.many("state"),
        definition_id: params.text("definitionId")?,
        waiting_on: params.text("waitingOn")?,
        queue: params.text("queue")?,
        accepted_after: params.parsed::<Timestamp>("acceptedAfter", moment)?,
        accepted_before: params.parsed::<Timestamp>("acceptedBefore", moment)?,
        page_size: page_size(&mut params)?,
        page_token: params.text("pageToken")?,
    };
    params.end()?;
    let runs = edge.api.list_runs(&caller, &request).await.map_err(|refusal| called(refusal, "states", "state"))?;
    Ok(answer(StatusCode::OK, &runs))
}

async fn one(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(run_id): Segment,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.run(&caller, &run_id).await?))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Cancel {
    reason: String,
}

async fn cancel(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(run_id): Segment,
    JsonBody(body): JsonBody<Cancel>,
) -> Result<Response, Problem> {
    let request = v1::CancelRunRequest { run_id, reason: body.reason, by: String::new() };
    Ok(answer(StatusCode::OK, &edge.api.cancel(&caller, &request).await?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Observed {
    kind: String,
    value: Json,
}

async fn observe(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(run_id): Segment,
    JsonBody(body): JsonBody<Observed>,
) -> Result<Response, Problem> {
    let request = v1::ObserveRequest { run_id, kind: body.kind, value: Some(body.value) };
    Ok(answer(StatusCode::OK, &edge.api.observe(&caller, request).await?))
}

async fn journal(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(run_id): Segment,
    mut params: Params,
) -> Result<Response, Problem> {
    let request = v1::ReadJournalRequest {
        run_id,
        after: params.parsed("after", "a number of an entry")?.unwrap_or(0),
        page_size: page_size(&mut params)?,
    };
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.read_journal(&caller, &request).await?))
}

pub(super) fn page_size(params: &mut Params) -> Result<u32, Problem> {
    Ok(params.parsed("pageSize", "a number of entries")?.unwrap_or(0))
}
