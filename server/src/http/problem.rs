//! RFC 9457 problem documents: what every error of the HTTP API looks like.

use crate::grpc::status::retry_after;
use axum::response::{IntoResponse, Response};
use grain_contract::{Code, Rejection};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    /// Beyond the standard's members: field, line, column, findings, retryAfterMs.
    more: Map<String, Value>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), more: Map::new() }
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    pub fn at(self, field: &str) -> Self {
        if field.is_empty() { self } else { self.with("field", json!(field)) }
    }

    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }
}

impl From<Rejection> for Problem {
    fn from(refusal: Rejection) -> Self {
        if refusal.code == Code::Internal {
            tracing::error!(%refusal, "a fault of ours");
        }
        let problem = Self::new(http_status(refusal.code), refusal.code.as_str(), refusal.message).at(&refusal.field);
        match retry_after(refusal.code) {
            Some(after) => problem.with("retryAfterMs", json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))),
            None => problem,
        }
    }
}

fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Invalid => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Conflict | Code::WrongState | Code::Gap => StatusCode::CONFLICT,
        Code::StaleToken | Code::Denied => StatusCode::FORBIDDEN,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Quarantined | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry = self.more.get("retryAfterMs").and_then(Value::as_u64);
        let mut body = self.more;
        body.insert("type".to_owned(), json!(format!("urn:granary:problem:{}", self.code)));
        body.insert("title".to_owned(), json!(title(self.code)));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("code".to_owned(), json!(self.code));
        body.insert("detail".to_owned(), json!(self.detail));
        let text = Value::Object(body).to_string();
        let mut response = (self.status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(ms) = retry {
            // The header knows whole seconds only.
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
        }
        response
    }
}

fn title(code: &str) -> &'static str {
    match code {
        "invalid" => "The request is not right",
        "not-found" => "There is no such thing",
        "conflict" => "The same key was used with other content",
        "wrong-state" => "Not in this state",
        "stale-token" => "The lease is another's",
        "gap" => "Facts are missing",
        "too-large" => "A limit was passed",
        "overloaded" => "Too much at the moment",
        "unavailable" => "Not here and now",
        "denied" => "Policy says no",
        "quarantined" => "The data cannot be read by this build",
        "method-not-allowed" => "The path does not have this method",
        "unsupported-media-type" => "The body is of another kind",
        "timeout" => "The body did not arrive in time",
        "refused" => "The definition was refused",
        _ => "A fault of ours",
    }
}
