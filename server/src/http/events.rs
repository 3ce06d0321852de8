//! Events as server-sent events. Each carries a cursor as its id; a client that comes back with it (`Last-Event-ID`, or
//! `cursor` in the query) goes on behind that event.

use super::params::{Params, called};
use super::{Edge, Problem, Route, Takes};
use crate::api::events::{Subscription, cloud_event};
use crate::tenant::Caller;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use granary_proto::v1;
use http::HeaderMap;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Events on their way to one client; a slow one makes the reader wait, not the memory grow.
const EVENTS_MAX: usize = 64;
/// A client that takes no event for this long is cut off: it can come back with its cursor.
const SLOW_MAX: Duration = Duration::from_secs(60);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn routes() -> Vec<Route> {
    vec![Route {
        method: "get",
        path: "/events",
        id: "StreamEvents",
        tag: "events",
        summary: "Events of all runs as CloudEvents, in order per run, at least once, as server-sent events.",
        parameters: &[
            ("from", "earliest or latest (the default)."),
            ("cursor", "Go on behind the event with this id."),
            ("type", "Only these, e.g. step-ready; may be repeated."),
            ("runId", "Only this run."),
            ("Last-Event-ID", "The same as cursor; wins over it."),
        ],
        takes: Takes::Nothing,
        gives: "text/event-stream",
        success: 200,
        handler: || get(stream),
    }]
}

async fn stream(
    State(edge): State<Edge>,
    caller: Caller,
    headers: HeaderMap,
    mut params: Params,
) -> Result<Response, Problem> {
    let from = params.text("from")?;
    if !matches!(from.as_str(), "" | "earliest" | "latest") {
        let shown = crate::api::check::shown(&from);
        return Err(Problem::invalid(format!("Expected earliest or latest, but found {shown}.")).at("from"));
    }
    let cursor = params.text("cursor")?;
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let from = [last, cursor.as_str(), from.as_str()].into_iter().find(|text| !text.is_empty()).unwrap_or("latest");
    let request = v1::Subscribe {
        cursor_name: String::new(),
        from: from.to_owned(),
        types: params.many("type"),
        run_id: params.text("runId")?,
    };
    params.end()?;
    let place = edge.api.stream_place()?;
    let subscribed = edge.api.subscribe(&caller, &request).await;
    let subscription = subscribed.map_err(|refusal| called(refusal, "types", "type"))?;
    let (tell, events) = mpsc::channel::<Result<Event, Infallible>>(EVENTS_MAX);
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            () = pump(subscription, tell) => {}
            () = edge.api.stopping() => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(events)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

async fn pump(mut subscription: Subscription, tell: mpsc::Sender<Result<Event, Infallible>>) {
    loop {
        let events = tokio::select! {
            events = subscription.next() => events,
            () = tell.closed() => return,
        };
        let events = match events {
            Ok(events) => events,
            Err(refusal) => {
                tracing::debug!(%refusal, "an event stream ends");
                return;
            }
        };
        for event in &events {
            match tokio::time::timeout(SLOW_MAX, tell.send(Ok(message(event)))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

fn message(event: &v1::EventEnvelope) -> Event {
    let short = event.r#type.rsplit('.').next().unwrap_or_default();
    let message = Event::default().event(short).data(cloud_event(event).to_string());
    // An empty id would make the client forget its place; the first events of a stream may have none yet.
    let cursor = &event.cursor;
    if cursor.is_empty() || cursor.contains(['\n', '\r', '\0']) { message } else { message.id(cursor) }
}
