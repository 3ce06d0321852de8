//! One subscription tells the end of every run; nothing is polled.

use crate::ledger::{End, Ledger};
use crate::server_link::Link;
use granary_proto::v1;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

/// Between two tries to subscribe while the server is away.
const RECONNECT: Duration = Duration::from_millis(50);

const TYPES: [&str; 3] = ["workflow-run-completed", "workflow-run-failed", "workflow-run-cancelled"];

/// Reads until it is aborted. After a loss of the server it goes on at the next one, behind the last event it saw.
pub async fn follow(link: Link, ledger: Arc<Ledger>) {
    let mut cursor: Option<String> = None;
    for server in 0.. {
        // While the server is away this is tried again; the deadline of the whole test bounds the tries. Anything else
        // is worth a word, since each new subscription costs the runs that end meanwhile some waiting.
        if let Err(status) = read(&link, server, &ledger, &mut cursor).await
            && status.code() != tonic::Code::Unavailable
        {
            eprintln!("subscription ended: {status}");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn read(link: &Link, server: u64, ledger: &Ledger, cursor: &mut Option<String>) -> Result<(), tonic::Status> {
    // Kept open and silent: a subscription without a name has nothing to acknowledge.
    let (requests, outgoing) = mpsc::channel(1);
    let subscribe = v1::Subscribe {
        cursor_name: String::new(),
        from: cursor.clone().unwrap_or_else(|| "latest".to_owned()),
        types: TYPES.map(str::to_owned).to_vec(),
        run_id: String::new(),
    };
    let subscribe = v1::subscribe_events_request::Request::Subscribe(subscribe);
    // There is room: the channel is new.
    let _ = requests.try_send(v1::SubscribeEventsRequest { request: Some(subscribe) });
    let mut stream = link.engine(server).subscribe_events(ReceiverStream::new(outgoing)).await?.into_inner();
    while let Some(response) = stream.message().await? {
        let now = Instant::now();
        for event in &response.events {
            if let (Some(run), Some(end)) = (run_of(event), end_of(&event.r#type)) {
                ledger.end(run, &event.id, end, now);
            }
        }
        if let Some(last) = response.events.last() {
            *cursor = Some(last.cursor.clone());
        }
    }
    Ok(())
}

fn end_of(topic: &str) -> Option<End> {
    match topic.rsplit('.').next()? {
        "workflow-run-completed" => Some(End::Completed),
        "workflow-run-failed" => Some(End::Failed),
        "workflow-run-cancelled" => Some(End::Cancelled),
        _ => None,
    }
}

fn run_of(event: &v1::EventEnvelope) -> Option<Uuid> {
    event.subject.rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_the_last_part_of_the_topic() {
        assert_eq!(end_of("workflows.runs.v1.workflow-run-completed"), Some(End::Completed));
        assert_eq!(end_of("workflows.runs.v1.step-ready"), None);
    }
}
