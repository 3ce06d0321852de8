//! The HTTP skin: one table of routes, from which both the router and `/openapi.json` are made, so that neither can know of
//! one that the other does not.

mod approvals;
mod body;
mod cluster;
mod definitions;
mod events;
mod health;
mod json;
mod params;
mod problem;
mod runs;
mod schema;
mod skills;

pub mod openapi;

pub use problem::Problem;

use crate::api::Api;
use crate::metrics::Figures;
use crate::tenant::Caller;
use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::request::Parts;
use http::{StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;

/// What every handler has at hand.
#[derive(Clone)]
pub struct Edge {
    pub api: Api,
    pub figures: Arc<Figures>,
}

/// One operation.
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    /// Query parameters and headers: `name`, what it means. A name with a capital first letter is a header.
    pub parameters: &'static [(&'static str, &'static str)],
    pub takes: Takes,
    /// Name of the answer's message in `granary.v1`, or a media type.
    pub gives: &'static str,
    pub success: u16,
    pub handler: fn() -> MethodRouter<Edge>,
}

/// What a request's body is.
#[derive(Clone, Copy)]
pub enum Takes {
    Nothing,
    /// A message of `granary.v1`, as JSON, and which of its fields.
    Fields(&'static str, &'static [&'static str]),
    /// A workflow document, YAML or JSON.
    Document,
}

/// All operations, in the order of the documentation.
pub fn routes() -> Vec<Route> {
    [
        definitions::routes(),
        skills::routes(),
        runs::routes(),
        approvals::routes(),
        events::routes(),
        cluster::routes(),
        health::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// HTTP and gRPC on one router.
pub fn router(edge: Edge, grpc: tonic::service::Routes) -> axum::Router {
    let mut http = axum::Router::new();
    for route in routes() {
        http = http.route(route.path, (route.handler)());
    }
    http.method_not_allowed_fallback(method_not_allowed)
        .fallback(no_route)
        .with_state(edge)
        .merge(grpc.into_axum_router().reset_fallback().route_layer(axum::middleware::from_fn(grpc_only)))
        .layer(CatchPanicLayer::custom(panicked))
}

fn is_grpc(request: &axum::extract::Request) -> bool {
    let of_grpc = |v: &http::HeaderValue| v.as_bytes().starts_with(b"application/grpc");
    request.headers().get(header::CONTENT_TYPE).is_some_and(of_grpc)
}

/// The paths of gRPC's methods speak gRPC; who comes with something else gets an answer in the language of HTTP.
async fn grpc_only(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    if is_grpc(&request) {
        return next.run(request).await;
    }
    let media = request.headers().get(header::CONTENT_TYPE).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let found = media.map_or_else(|| "none".to_owned(), |media| crate::api::check::shown(&media));
    let message = format!("Expected application/grpc for a method of gRPC, but found {found}.");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", message).into_response()
}

async fn no_route(request: axum::extract::Request) -> Response {
    if is_grpc(&request) {
        let message = format!("Expected a method of a service of this node, but found {}.", request.uri().path());
        return tonic::Status::unimplemented(message).into_http::<axum::body::Body>();
    }
    let found: String = request.uri().path().chars().take(128).collect();
    Problem::new(StatusCode::NOT_FOUND, "not-found", format!("Expected a path of /openapi.json, but found {found:?}."))
        .into_response()
}

async fn method_not_allowed(request: axum::extract::Request) -> Response {
    let message = format!("Expected a method that this path has, but found {}.", request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message).into_response()
}

fn panicked(cause: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("of another type"), "a handler panicked");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "A fault of ours ended this request.").into_response()
}

/// A message of the API as the answer.
pub fn answer<T: serde::Serialize>(status: StatusCode, message: &T) -> Response {
    (status, Json(message)).into_response()
}

impl FromRequestParts<Edge> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        let config = edge.api.live().get();
        let patience = Duration::from_secs(config.limits.default_deadline_seconds);
        Ok(Caller::of(&parts.headers, config.development, patience)?)
    }
}

/// The one variable part of a path.
pub struct Segment(pub String);

impl FromRequestParts<Edge> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, edge).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(e) => {
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid", format!("Expected a readable path, but: {e}.")))
            }
        }
    }
}
