//! Request bodies: bounded in size and time, whatever they claim.

use super::{Edge, Problem, json};
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use grain_contract::limits::MESSAGE_BYTES_MAX;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A body is read within this time.
const READ_MAX: Duration = Duration::from_secs(30);
/// A body above the limit is read on and thrown away up to here, so that a client that is still sending gets its answer
/// instead of a broken connection.
const THROWN_AWAY_MAX: usize = 64 * 1024 * 1024;

/// A JSON body as `T`.
pub struct JsonBody<T>(pub T);

/// A body as text, with its media type.
pub struct TextBody {
    pub text: String,
    /// Without parameters, in lower case; empty if none was said.
    pub media_type: String,
}

impl<T: DeserializeOwned> FromRequest<Edge> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Edge) -> Result<Self, Problem> {
        let media_type = media_type(request.headers());
        // Read first, so that a client that sends and only then listens gets its answer.
        let bytes = read(request.into_body()).await?;
        if !(media_type == "application/json" || media_type.ends_with("+json")) {
            let message = format!("Expected application/json, but found {media_type:?}.");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", message));
        }
        json::parse(&bytes).map(Self)
    }
}

impl FromRequest<Edge> for TextBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Edge) -> Result<Self, Problem> {
        let media_type = media_type(request.headers());
        let bytes = read(request.into_body()).await?;
        let text = String::from_utf8(bytes)
            .map_err(|e| Problem::invalid(format!("Expected UTF-8, but: {}.", e.utf8_error())))?;
        Ok(Self { text, media_type })
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

async fn read(body: Body) -> Result<Vec<u8>, Problem> {
    match tokio::time::timeout(READ_MAX, collect(body)).await {
        Ok(answer) => answer,
        Err(_) => {
            let message = format!("Expected the whole body within {} s, but it did not come.", READ_MAX.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", message))
        }
    }
}

async fn collect(mut body: Body) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let mut found = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Problem::invalid(format!("Expected a whole body, but: {e}.")))?;
        let Ok(data) = frame.into_data() else { continue };
        found += data.len();
        if found > THROWN_AWAY_MAX {
            break;
        }
        if found <= MESSAGE_BYTES_MAX {
            bytes.extend_from_slice(&data);
        } else {
            bytes = Vec::new();
        }
    }
    if found > MESSAGE_BYTES_MAX {
        let more = if found > THROWN_AWAY_MAX { "more than " } else { "" };
        let message = format!(
            "Expected a body of at most {MESSAGE_BYTES_MAX} bytes, but found {more}{}.",
            found.min(THROWN_AWAY_MAX)
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message));
    }
    Ok(bytes)
}
