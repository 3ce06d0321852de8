//! A worker that answers each assignment by a function.

use granary_proto::v1;
use granary_proto::v1::server_message::Message as Out;
use granary_proto::v1::worker_message::Message as In;
use granary_proto::v1::workers_client::WorkersClient;
use granary_proto::wire::Json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// Ends with its guard.
pub struct Worker(tokio::task::JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn succeeded(output: Json) -> v1::Report {
    v1::Report { outcome: "Succeeded".into(), output: Some(output), ..Default::default() }
}

pub fn failed(class: &str) -> v1::Report {
    let failure = v1::Failure { class: class.into(), message: "as the test wants it".into() };
    v1::Report { outcome: "Failed".into(), failure: Some(failure), ..Default::default() }
}

/// Gives each step's input back.
pub async fn echo(channel: Channel, tenant: &str, queues: &[&str]) -> Worker {
    start(channel, tenant, queues, |a| succeeded(a.input.clone().unwrap_or_else(|| Json::new("null")))).await
}

pub async fn start(
    channel: Channel,
    tenant: &str,
    queues: &[&str],
    work: impl Fn(&v1::Assignment) -> v1::Report + Send + 'static,
) -> Worker {
    let (tell, asks) = mpsc::channel(64);
    let hello = v1::Hello {
        worker_id: uuid::Uuid::new_v4().to_string(),
        queues: queues.iter().map(|q| (*q).to_owned()).collect(),
        capacity: 16,
        held: Vec::new(),
        session: 0,
    };
    tell.send(v1::WorkerMessage { message: Some(In::Hello(hello)) }).await.unwrap();
    let request = super::of(tenant, ReceiverStream::new(asks));
    let mut answers = WorkersClient::new(channel).session(request).await.unwrap().into_inner();
    Worker(tokio::spawn(async move {
        while let Ok(Some(message)) = answers.message().await {
            let Some(Out::Assignments(assigned)) = message.message else { continue };
            for a in &assigned.assignments {
                let report = v1::Report {
                    attempt_id: a.attempt_id.clone(),
                    run_id: a.run_id.clone(),
                    lease_token: a.lease_token.clone(),
                    ..work(a)
                };
                // One by one: together, large outputs would pass the limit of a message.
                let reports = v1::Reports { reports: vec![report] };
                if tell.send(v1::WorkerMessage { message: Some(In::Reports(reports)) }).await.is_err() {
                    return;
                }
            }
        }
    }))
}
