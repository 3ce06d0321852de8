//! Probes, metrics, and the description of this API. None of them needs a tenant.

use super::{Edge, Problem, Route, Takes, openapi};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use serde_json::json;

const TAG: &str = "operation";

pub fn routes() -> Vec<Route> {
    let probe = |path, id, summary, handler| Route {
        method: "get",
        path,
        id,
        tag: TAG,
        summary,
        parameters: &[],
        takes: Takes::Nothing,
        gives: "application/json",
        success: 200,
        handler,
    };
    vec![
        probe("/healthz", "Live", "200 while the process can do its work; else only a restart helps.", || get(live)),
        probe("/readyz", "Ready", "200 while traffic is welcome; else 503 with the reasons.", || get(ready)),
        probe("/startupz", "Startup", "200 once the data folder is open and calls are listened to.", || get(started)),
        Route {
            gives: "text/plain",
            ..probe("/metrics", "Metrics", "Figures in Prometheus' text form.", || get(metrics))
        },
        probe("/openapi.json", "OpenApi", "This description.", || get(describe)),
    ]
}

async fn live(State(edge): State<Edge>) -> Response {
    let health = edge.api.health();
    probe(health.live, &health)
}

/// Not whether the others are there: who is started one after the other would wait for those that come after it.
async fn started() -> Response {
    probe(true, &cluster::Health::default())
}

async fn ready(State(edge): State<Edge>) -> Response {
    let health = edge.api.health();
    probe(health.ready, &health)
}

fn probe(fine: bool, health: &cluster::Health) -> Response {
    if fine {
        return axum::Json(json!({ "status": "ok" })).into_response();
    }
    let why = if health.reasons.is_empty() { "It is starting.".to_owned() } else { health.reasons.join(" ") };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why).into_response()
}

async fn metrics(State(edge): State<Edge>) -> Result<Response, Problem> {
    edge.figures.census().refresh().await;
    let text = edge
        .figures
        .text(&edge.api.metrics())
        .map_err(|e| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", e.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn describe() -> Response {
    axum::Json(openapi::document()).into_response()
}
