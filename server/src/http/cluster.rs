//! The cluster: look at it, move things in it.

use super::body::JsonBody;
use super::params::Params;
use super::{Edge, Problem, Route, Segment, Takes, answer};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use granary_proto::v1;
use http::StatusCode;
use serde::Deserialize;

const TAG: &str = "cluster";

pub fn routes() -> Vec<Route> {
    let change = |path, id, summary, handler| Route {
        method: "post",
        path,
        id,
        tag: TAG,
        summary,
        parameters: &[],
        takes: Takes::Nothing,
        gives: "application/json",
        success: 202,
        handler,
    };
    vec![
        Route {
            method: "get",
            path: "/cluster",
            id: "GetCluster",
            tag: TAG,
            summary: "Members, and where each shard is led and replicated. A silo that is alone shows itself.",
            parameters: &[],
            takes: Takes::Nothing,
            gives: "GetClusterResponse",
            success: 200,
            handler: || get(look),
        },
        change(
            "/cluster/nodes/{node}/drain",
            "DrainNode",
            "Moves everything off a silo, in the background; it stays a member.",
            || changes(Change::Drain),
        ),
        change("/cluster/nodes/{node}/undrain", "UndrainNode", "Takes a drain back.", || changes(Change::Undrain)),
        change(
            "/cluster/nodes/{node}/remove",
            "RemoveNode",
            "Takes a silo out for good, in the background, also one that is dead.",
            || changes(Change::Remove),
        ),
        Route {
            takes: Takes::Fields("TransferShardRequest", &["node"]),
            success: 200,
            ..change(
                "/cluster/shards/{shard}/transfer",
                "TransferShard",
                "Hands the leadership of a shard to a silo that has a replica of it.",
                || post(transfer),
            )
        },
    ]
}

async fn look(State(edge): State<Edge>, _: Caller, params: Params) -> Result<Response, Problem> {
    params.end()?;
    Ok(answer(StatusCode::OK, &edge.api.cluster().await?))
}

/// What is done to a silo in the background: the answer only says that it was taken on.
#[derive(Clone, Copy)]
enum Change {
    Drain,
    Undrain,
    Remove,
}

fn changes(change: Change) -> MethodRouter<Edge> {
    let handle = async move |State(edge): State<Edge>, _: Caller, Segment(node): Segment, params: Params| {
        params.end()?;
        let taken_on = match change {
            Change::Drain => {
                answer(StatusCode::ACCEPTED, &edge.api.drain_node(&v1::DrainNodeRequest { node, undo: false }).await?)
            }
            Change::Undrain => {
                answer(StatusCode::ACCEPTED, &edge.api.drain_node(&v1::DrainNodeRequest { node, undo: true }).await?)
            }
            Change::Remove => {
                answer(StatusCode::ACCEPTED, &edge.api.remove_node(&v1::RemoveNodeRequest { node }).await?)
            }
        };
        Ok::<Response, Problem>(taken_on)
    };
    post(handle)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Transfer {
    node: String,
}

async fn transfer(
    State(edge): State<Edge>,
    _: Caller,
    Segment(shard): Segment,
    JsonBody(body): JsonBody<Transfer>,
) -> Result<Response, Problem> {
    let Ok(number) = shard.parse() else {
        let found = crate::api::check::shown(&shard);
        return Err(Problem::invalid(format!("Expected the number of a shard, but found {found}.")).at("shard"));
    };
    let request = v1::TransferShardRequest { shard: number, node: body.node };
    Ok(answer(StatusCode::OK, &edge.api.transfer_shard(&request).await?))
}
