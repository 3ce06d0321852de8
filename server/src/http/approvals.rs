//! Approvals: list and decide.

use super::body::JsonBody;
use super::params::Params;
use super::runs::page_size;
use super::{Edge, Problem, Route, Segment, Takes, answer};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use granary_proto::v1;
use granary_proto::wire::Json;
use http::StatusCode;
use serde::Deserialize;

const TAG: &str = "approvals";

pub fn routes() -> Vec<Route> {
    vec![
        Route {
            method: "get",
            path: "/approvals",
            id: "ListApprovals",
            tag: TAG,
            summary: "Pending approvals of all runs, oldest first; with runId all of that run.",
            parameters: &[
                ("state", "Default: pending. Others need runId."),
                ("runId", "Only this run."),
                ("pageSize", "At most 500."),
                ("pageToken", "nextPageToken of the page before."),
            ],
            takes: Takes::Nothing,
            gives: "ListApprovalsResponse",
            success: 200,
            handler: || get(list),
        },
        Route {
            method: "post",
            path: "/approvals/{approvalId}/decision",
            id: "DecideApproval",
            tag: TAG,
            summary: "Decides about the exact version that was looked at. Idempotent.",
            parameters: &[],
            takes: Takes::Fields(
                "DecideApprovalRequest",
                &["decision", "proposalVersion", "answer", "comment", "decidedBy", "runId"],
            ),
            gives: "Approval",
            success: 200,
            handler: || post(decide),
        },
    ]
}

async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let request = v1::ListApprovalsRequest {
        state: params.text("state")?,
        run_id: params.text("runId")?,
        page_size: page_size(&mut params)?,
        page_token: params.text("pageToken")?,
    };
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.list_approvals(&caller, &request).await?))
}

/// The fields of `DecideApprovalRequest` but the id, which the path has.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Decide {
    decision: String,
    proposal_version: u32,
    answer: Option<Json>,
    comment: String,
    decided_by: String,
    run_id: String,
}

async fn decide(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(approval_id): Segment,
    JsonBody(body): JsonBody<Decide>,
) -> Result<Response, Problem> {
    let request = v1::DecideApprovalRequest {
        approval_id,
        decision: body.decision,
        proposal_version: body.proposal_version,
        answer: body.answer,
        comment: body.comment,
        decided_by: body.decided_by,
        run_id: body.run_id,
    };
    Ok(answer(StatusCode::OK, &edge.api.decide(&caller, request).await?))
}
