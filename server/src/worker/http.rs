//! An HTTP call as agent or tool: the input is the body, the response body is the output.
//!
//! What an answer means is decided by when it failed. Never sent: it did not happen, so it may be tried again here. Sent
//! without an answer: nobody knows, so it is `Uncertain`, unless the method promises to change nothing.

use super::handler::Handler;
use super::work::{Outcome, Work};
use futures::future::BoxFuture;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode};
use std::time::Duration;

/// Between two tries of one call, if the answer names no time.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// What a `Retry-After` may ask for; beyond it the attempt fails and the step's policy decides.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Bytes of an error body that go into the failure's message.
const ERROR_BODY_BYTES: usize = 500;

#[derive(Clone, Debug)]
pub struct HttpCall {
    pub client: Client,
    pub method: Method,
    /// `{field}` is replaced by that field of the input, percent-encoded.
    pub url: String,
    pub headers: HeaderMap,
    /// Carries the idempotency key.
    pub idempotency_header: HeaderName,
    pub timeout: Duration,
    /// Answers that say "not done, come again": tried again here, up to `tries`.
    pub retryable: Vec<StatusCode>,
    pub tries: u32,
    /// Answers that leave open whether it was done.
    pub uncertain: Vec<StatusCode>,
    pub idempotent: bool,
}

impl HttpCall {
    pub fn new(client: Client, method: Method, url: impl Into<String>) -> Self {
        Self {
            client,
            idempotent: method.is_idempotent(),
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            idempotency_header: HeaderName::from_static("idempotency-key"),
            timeout: Duration::from_secs(30),
            retryable: vec![StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE],
            tries: 3,
            uncertain: vec![StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT],
        }
    }
}

impl Handler for HttpCall {
    fn handle(&self, work: Work) -> BoxFuture<'static, Outcome> {
        let call = self.clone();
        Box::pin(async move {
            tokio::select! {
                outcome = call.run(&work) => outcome,
                () = work.interrupted() => Outcome::Cancelled("interrupted; the call may have taken effect".to_owned()),
            }
        })
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

/// What one try came to.
enum Try {
    Final(Outcome),
    /// It certainly was not done.
    Again {
        after: Option<Duration>,
        why: String,
    },
}

impl HttpCall {
    async fn run(&self, work: &Work) -> Outcome {
        let url = match fill(&self.url, &work.input) {
            Ok(url) => url,
            Err(why) => return Outcome::Failed { class: "mapping".to_owned(), message: why },
        };
        for number in 1.. {
            match self.once(work, &url).await {
                Try::Final(outcome) => return outcome,
                Try::Again { after, why } => {
                    let pause = after.unwrap_or(RETRY_PAUSE);
                    if number >= self.tries || pause > RETRY_PAUSE_MAX {
                        return work.failed(format!("{why} ({number} tries)"));
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
        unreachable!("the loop ends by its last try")
    }

    async fn once(&self, work: &Work, url: &str) -> Try {
        let mut request =
            self.client.request(self.method.clone(), url).timeout(self.timeout).headers(self.headers.clone());
        if let Ok(key) = HeaderValue::from_str(&work.idempotency_key) {
            request = request.header(&self.idempotency_header, key);
        }
        if self.method != Method::GET && self.method != Method::HEAD {
            request = request.header(CONTENT_TYPE, "application/json").body(work.input.clone());
        }
        match request.send().await {
            Ok(response) => self.judge(work, response).await,
            Err(error) if error.is_connect() => {
                Try::Again { after: None, why: format!("no connection to {url}: {}", root_of(&error)) }
            }
            Err(error) if error.is_builder() => Try::Final(work.failed(format!("{url}: {}", root_of(&error)))),
            Err(error) => Try::Final(self.unanswered(work, &error)),
        }
    }

    async fn judge(&self, work: &Work, mut response: Response) -> Try {
        let status = response.status();
        let after = retry_after(response.headers());
        let body = match read(&mut response).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                return Try::Final(
                    work.failed(format!("Expected at most {PAYLOAD_BYTES_MAX} bytes of answer, but found more.")),
                );
            }
            // The status came, so the call was handled; only its answer is not whole.
            Err(error) => return Try::Final(self.unanswered(work, &error)),
        };
        let begin = String::from_utf8_lossy(&body[..body.len().min(ERROR_BODY_BYTES)]).trim().to_owned();
        if status.is_success() {
            return Try::Final(Outcome::Succeeded(json_of(&body)));
        }
        if self.retryable.contains(&status) {
            return Try::Again { after, why: format!("the answer was {status}: {begin}") };
        }
        if self.uncertain.contains(&status) && !self.method.is_safe() {
            return Try::Final(Outcome::Uncertain(format!("the answer was {status}: {begin}")));
        }
        Try::Final(work.failed(format!("the answer was {status}: {begin}")))
    }

    /// Sent, and no whole answer came.
    fn unanswered(&self, work: &Work, error: &reqwest::Error) -> Outcome {
        let why = format!("no answer from {}: {}", self.url, root_of(error));
        match (self.method.is_safe(), error.is_timeout()) {
            (false, _) => Outcome::Uncertain(why),
            (true, true) => Outcome::Failed { class: "timeout".to_owned(), message: why },
            (true, false) => work.failed(why),
        }
    }
}

/// `None` if it is longer than a payload may be.
async fn read(response: &mut Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > PAYLOAD_BYTES_MAX {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// JSON stays as it is; other text becomes a JSON string, and nothing becomes `null`.
fn json_of(body: &[u8]) -> Vec<u8> {
    let text = body.trim_ascii();
    if text.is_empty() {
        return b"null".to_vec();
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
        Ok(_) => text.to_vec(),
        Err(_) => serde_json::Value::String(String::from_utf8_lossy(body).into_owned()).to_string().into_bytes(),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    Some(Duration::from_secs(headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?))
}

/// The innermost reason: the outer ones only say that there was one.
fn root_of(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

fn fill(template: &str, input: &[u8]) -> Result<String, String> {
    if !template.contains('{') {
        return Ok(template.to_owned());
    }
    let input: serde_json::Value = serde_json::from_slice(input).map_err(|e| e.to_string())?;
    let mut url = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after
            .split_once('}')
            .ok_or_else(|| format!("Expected a closing brace in the URL, but found {template:?}."))?;
        let text = match input.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => value.to_string(),
            found => {
                let found = found.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                return Err(format!(
                    "Expected a text or number as input field {name:?} for the URL, but found {found}."
                ));
            }
        };
        url.push_str(before);
        url.extend(text.bytes().map(encoded));
        rest = behind;
    }
    url.push_str(rest);
    Ok(url)
}

/// One byte of a path segment or query value.
fn encoded(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_input_go_into_the_url_encoded() {
        let input = br#"{"id":"a/b ?","n":7,"deep":{}}"#;
        assert_eq!(fill("http://h/x/{id}?n={n}", input), Ok("http://h/x/a%2Fb%20%3F?n=7".to_owned()));
        assert_eq!(fill("http://h/x", b"not json"), Ok("http://h/x".to_owned()));
        for (template, part) in [("{gone}", "but found nothing"), ("{deep}", "but found {}"), ("{id", "closing brace")]
        {
            let error = fill(template, input).expect_err(template);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_answer_is_json_one_way_or_the_other() {
        for (body, wanted) in [(&b" {\"a\":1}\n"[..], "{\"a\":1}"), (b"", "null"), (b"plain", "\"plain\"")] {
            assert_eq!(json_of(body), wanted.as_bytes());
        }
    }
}
