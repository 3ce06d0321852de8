//! The listener for clients: gRPC and HTTP on one port.

use crate::api::Api;
use crate::http::Edge;
use crate::metrics::Figures;
use crate::{grpc, http};
use cluster::trace::{TRACEPARENT, Trace};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// HTTP/2 pings keep dead connections from being held for ever.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);
/// Streams of one connection at once.
const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;

pub struct Serving {
    in_flight: Arc<InFlight>,
    closing: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<Result<(), tonic::transport::Error>>>>,
}

impl Serving {
    pub fn start(listener: TcpListener, api: &Api, figures: &Arc<Figures>) -> anyhow::Result<Self> {
        let edge = Edge { api: api.clone(), figures: Arc::clone(figures) };
        let in_flight = Arc::new(InFlight::default());
        let counting = Arc::clone(&in_flight);
        let count = axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
            let counted = counting.enter();
            let trace = trace_of(request.headers());
            async move {
                let response = trace.follow(next.run(request)).await;
                drop(counted);
                response
            }
        });
        let router = http::router(edge, grpc::routes(api)?).layer(count);
        let server = tonic::transport::Server::builder()
            .accept_http1(true)
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_ANSWER))
            .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
            .add_routes(tonic::service::Routes::from(router));
        let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        let (closing, mut closed) = watch::channel(false);
        let end = async move {
            // A sender that is gone means the same.
            let _ = closed.wait_for(|closing| *closing).await;
        };
        let task = tokio::spawn(async move { server.serve_with_incoming_shutdown(incoming, end).await });
        Ok(Self { in_flight, closing, task: Mutex::new(Some(task)) })
    }

    /// Accepts no more, says so on every connection, and waits until every request has its answer; not longer than `within`.
    pub async fn close(&self, within: Duration) {
        let _ = self.closing.send(true);
        let _ = tokio::time::timeout(within, self.in_flight.none_left()).await;
    }

    /// Ends every connection that has not ended by itself within this time: those that never said anything would stay for ever.
    pub async fn end(&self, within: Duration) {
        let _ = self.closing.send(true);
        let Some(task) = self.task.lock().take() else { return };
        let abort = task.abort_handle();
        let _ = tokio::time::timeout(within, task).await;
        abort.abort();
    }
}

/// The caller's trace goes on here; without one it begins here.
fn trace_of(headers: &axum::http::HeaderMap) -> Trace {
    let told = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(Trace::parse);
    told.map_or_else(Trace::begin, Trace::child)
}

/// Requests that are not answered yet. Long streams count until their head is out: `stopping` ends them.
#[derive(Default)]
struct InFlight {
    count: AtomicUsize,
    ended: Notify,
}

struct Counted(Arc<InFlight>);

impl InFlight {
    fn enter(self: &Arc<Self>) -> Counted {
        self.count.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    async fn none_left(&self) {
        loop {
            // Waits from before the look, so an end between the two is not missed.
            let told = self.ended.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderMap, HeaderValue};

    /// [P4]
    #[test]
    fn a_caller_s_trace_goes_on_and_nonsense_begins_a_new_one() {
        let with = |value: &'static str| {
            HeaderMap::from_iter([(TRACEPARENT.parse().unwrap(), HeaderValue::from_static(value))])
        };
        let told = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let id = |trace: Trace| trace.to_string()[3..35].to_owned();
        assert_eq!(id(trace_of(&with(told))), told[3..35]);
        assert_ne!(trace_of(&with(told)).to_string(), told, "a span of its own");
        for headers in [HeaderMap::new(), with("nonsense")] {
            assert_ne!(id(trace_of(&headers)), told[3..35]);
        }
    }
}
