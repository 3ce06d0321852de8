//! Several servers as one: a call goes to one of them, and to the next if that one cannot answer.
//!
//! Every call of this command line may be made twice: a run is submitted under an id that the caller drew, a decision names what
//! it decides, and reads change nothing. So a call whose outcome is not known is simply made again. Only a request that is a
//! stream itself is not: it belongs to whoever began it.

use futures::future::BoxFuture;
use granary::grpc::status::RETRY as RETRY_AFTER;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::{BoxError, Service, ServiceExt as _};

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A server that says nothing for the sum of these while a call is open is taken for dead: it may be frozen.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_ANSWER: Duration = Duration::from_secs(3);
/// How long one call is made again.
const AGAIN_MAX: Duration = Duration::from_secs(15);
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// Requests that are streams, and answers that are: by the last part of their path.
const STREAMS_IN: [&str; 2] = ["SubscribeEvents", "Session"];
const STREAMS_OUT: [&str; 3] = ["SubscribeEvents", "Session", "WatchRun"];

type Answer = Result<http::Response<Body>, BoxError>;

#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    channels: Vec<Channel>,
    /// Which one is asked now.
    current: AtomicUsize,
}

/// Why no server could be had.
pub enum Unconnected {
    /// Not an address.
    Address(String),
    /// What the last of them said.
    Nobody(String),
}

impl Servers {
    /// Connects to the first one that is there; the others are connected to when they are needed.
    pub async fn connect(urls: &[String]) -> Result<Self, Unconnected> {
        let endpoints = urls
            .iter()
            .map(|url| endpoint(url).ok_or_else(|| Unconnected::Address(url.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        let mut why = "no address".to_owned();
        for (at, endpoint) in endpoints.iter().enumerate() {
            match endpoint.connect().await {
                Ok(channel) => {
                    let mut channels: Vec<Channel> = endpoints.iter().map(Endpoint::connect_lazy).collect();
                    channels[at] = channel;
                    return Ok(Self { inner: Arc::new(Inner { channels, current: AtomicUsize::new(at) }) });
                }
                Err(error) => why = root_of(&error),
            }
        }
        Err(Unconnected::Nobody(why))
    }

    /// Whoever is asked now is asked no more, if there is another one.
    pub fn elsewhere(&self) {
        self.leave(self.inner.current.load(Ordering::Relaxed));
    }

    fn leave(&self, at: usize) {
        let next = (at + 1) % self.inner.channels.len();
        // Somebody else may have left it already: then this is not one step more.
        let _ = self.inner.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn once(&self, request: http::Request<Body>, whole: bool) -> Answer {
        let at = self.inner.current.load(Ordering::Relaxed);
        let answer = match self.inner.channels[at].clone().oneshot(request).await {
            Ok(response) if whole => collected(response).await,
            Ok(response) => Ok(response),
            Err(error) => Err(error.into()),
        };
        if verdict(&answer) == Verdict::Elsewhere {
            self.leave(at);
        }
        answer
    }

    async fn again_and_again(&self, request: http::Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let whole = !STREAMS_OUT.contains(&method_of(parts.uri.path()));
        let body = body.collect().await?.to_bytes();
        let until = Instant::now() + AGAIN_MAX;
        let mut pause = PAUSE_FIRST;
        loop {
            let request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let answer = self.once(request, whole).await;
            let wait = match verdict(&answer) {
                Verdict::Stands => return answer,
                Verdict::Elsewhere => pause,
                Verdict::Later(hint) => hint,
            };
            if Instant::now() + wait >= until {
                return answer;
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }
}

impl Service<http::Request<Body>> for Servers {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each call waits for the server that it goes to.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let servers = self.clone();
        Box::pin(async move {
            if STREAMS_IN.contains(&method_of(request.uri().path())) {
                return servers.once(request, false).await;
            }
            servers.again_and_again(request).await
        })
    }
}

fn endpoint(url: &str) -> Option<Endpoint> {
    let endpoint = Endpoint::from_shared(url.to_owned()).ok()?;
    Some(
        endpoint
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER),
    )
}

fn method_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Head, body and trailers at once, so that a server that dies in the middle of its answer has not answered.
async fn collected(response: http::Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    let body = Full::new(collected.to_bytes());
    Ok(http::Response::from_parts(
        parts,
        match trailers {
            Some(trailers) => Body::new(body.with_trailers(std::future::ready(Some(Ok(trailers))))),
            None => Body::new(body),
        },
    ))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Stands,
    Elsewhere,
    /// The server is there and has too much to do.
    Later(Duration),
}

/// A refusal of ours has no body, so its status stands in the head.
fn verdict(answer: &Answer) -> Verdict {
    match answer {
        Err(_) => Verdict::Elsewhere,
        Ok(response) => verdict_of(response.headers()),
    }
}

fn verdict_of(headers: &HeaderMap) -> Verdict {
    let Some(status) = headers.get("grpc-status") else { return Verdict::Stands };
    match Code::from_bytes(status.as_bytes()) {
        Code::Unavailable => Verdict::Elsewhere,
        Code::ResourceExhausted => {
            let hint = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
            hint.map_or(Verdict::Stands, |ms| Verdict::Later(Duration::from_millis(ms.clamp(1, 5_000))))
        }
        _ => Verdict::Stands,
    }
}

/// The innermost reason: the outer ones only say "transport error".
fn root_of(error: &dyn std::error::Error) -> String {
    let mut reason = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_try_may_mend_is_tried_again() {
        let cases: [(&[(&'static str, &str)], Verdict); 6] = [
            (&[], Verdict::Stands),
            (&[("grpc-status", "0")], Verdict::Stands),
            (&[("grpc-status", "5")], Verdict::Stands),
            (&[("grpc-status", "14")], Verdict::Elsewhere),
            (&[("grpc-status", "8")], Verdict::Stands),
            (&[("grpc-status", "8"), (RETRY_AFTER, "250")], Verdict::Later(Duration::from_millis(250))),
        ];
        for (headers, wanted) in cases {
            let map: HeaderMap = headers
                .iter()
                .map(|(k, v)| ((*k).parse::<http::HeaderName>().expect("name"), v.parse().expect("value")))
                .collect();
            assert_eq!(verdict_of(&map), wanted, "{headers:?}");
        }
        assert_eq!(verdict(&Err("gone".into())), Verdict::Elsewhere);
    }

    /// Two calls that fail at the same server move on by one server, not by two.
    #[tokio::test]
    async fn a_server_is_left_once() {
        let channels = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]
            .map(|url| endpoint(url).expect("address").connect_lazy());
        let inner = Inner { channels: channels.to_vec(), current: AtomicUsize::new(0) };
        let servers = Servers { inner: Arc::new(inner) };
        servers.leave(0);
        servers.leave(0);
        assert_eq!(servers.inner.current.load(Ordering::Relaxed), 1);
        servers.elsewhere();
        servers.elsewhere();
        assert_eq!(servers.inner.current.load(Ordering::Relaxed), 0);
    }
}
