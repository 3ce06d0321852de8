//! `granary.v1.WorkflowEngine`.

use super::caller;
use super::status::status;
use crate::api::Api;
use crate::api::events::Subscription;
use futures::stream::BoxStream;
use granary_proto::v1;
use granary_proto::v1::subscribe_events_request::Request as Ask;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub struct Engine(pub Api);

/// Batches of events on their way to one subscriber.
const EVENT_BATCHES_MAX: usize = 4;
/// A subscriber says what it wants within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

#[tonic::async_trait]
impl v1::workflow_engine_server::WorkflowEngine for Engine {
    async fn plan_next_steps(
        &self,
        request: Request<v1::PlanNextStepsRequest>,
    ) -> Result<Response<v1::PlanNextStepsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.plan_next_steps(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn get_run_graph(&self, request: Request<v1::GetRunGraphRequest>) -> Result<Response<v1::RunGraph>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.graph(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn run_accepted(&self, request: Request<v1::RunAcceptedMessage>) -> Result<Response<v1::Advanced>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.run_accepted(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn attempt_outcome_recorded(
        &self,
        request: Request<v1::AttemptOutcomeRecordedMessage>,
    ) -> Result<Response<v1::Advanced>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.outcome_recorded(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn approval_decided(
        &self,
        request: Request<v1::ApprovalDecidedMessage>,
    ) -> Result<Response<v1::Advanced>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.approval_decided(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn run_cancelled(&self, request: Request<v1::RunCancelledMessage>) -> Result<Response<v1::Advanced>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.run_cancelled(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn observed(&self, request: Request<v1::ObservedMessage>) -> Result<Response<v1::Advanced>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.observed(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn asset_release_published(
        &self,
        request: Request<v1::AssetReleasePublishedMessage>,
    ) -> Result<Response<v1::AssetReleasePublishedResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.release_published(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    type SubscribeEventsStream = BoxStream<'static, Result<v1::SubscribeEventsResponse, Status>>;

    async fn subscribe_events(
        &self,
        request: Request<Streaming<v1::SubscribeEventsRequest>>,
    ) -> Result<Response<Self::SubscribeEventsStream>, Status> {
        let caller = caller(&self.0, &request)?;
        let place = self.0.stream_place().map_err(status)?;
        let api = self.0.clone();
        let (tell, events) = mpsc::channel(EVENT_BATCHES_MAX);
        // The answer's head leaves at once: the first message may come after it.
        tokio::spawn(async move {
            let _place = place;
            let tell_end = tell.clone();
            let work = serve(&api, &caller, request.into_inner(), tell);
            let end = tokio::select! {
                end = work => end,
                () = api.stopping() => Err(Status::unavailable("Expected a running node, but it stops: subscribe again.")),
            };
            if let Err(why) = end {
                let _ = tell_end.send(Err(why)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    async fn reproject(&self, request: Request<v1::ReprojectRequest>) -> Result<Response<v1::RunGraph>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.reproject(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn validate_workflow_definition(
        &self,
        request: Request<v1::ValidateWorkflowDefinitionRequest>,
    ) -> Result<Response<v1::ValidateWorkflowDefinitionResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.validate_definition(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn load_workflow_definition(
        &self,
        request: Request<v1::LoadWorkflowDefinitionRequest>,
    ) -> Result<Response<v1::LoadWorkflowDefinitionResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.load_definition(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn list_workflow_definition_versions(
        &self,
        request: Request<v1::ListWorkflowDefinitionVersionsRequest>,
    ) -> Result<Response<v1::ListWorkflowDefinitionVersionsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.list_versions(&caller, &request.get_ref().definition_id).await.map(Response::new).map_err(status)
    }

    async fn list_workflow_definitions(
        &self,
        request: Request<v1::ListWorkflowDefinitionsRequest>,
    ) -> Result<Response<v1::ListWorkflowDefinitionsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.list_definitions(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }
}

type Tell = mpsc::Sender<Result<v1::SubscribeEventsResponse, Status>>;

/// One subscriber: events out while it keeps up, acknowledgements in at any time. What is read is bounded by the channel,
/// by HTTP/2's window, and for a named cursor by what is not acknowledged.
async fn serve(
    api: &Api,
    caller: &crate::tenant::Caller,
    mut asks: Streaming<v1::SubscribeEventsRequest>,
    tell: Tell,
) -> Result<(), Status> {
    let first = tokio::time::timeout(FIRST_MESSAGE, asks.message());
    let first =
        first.await.map_err(|_| Status::deadline_exceeded("Expected a subscription within 10 s, but none came."))??;
    let Some(Ask::Subscribe(wanted)) = first.and_then(|m| m.request) else {
        return Err(Status::invalid_argument("Expected a subscription as the first message, but found another."));
    };
    let mut subscription = api.subscribe(caller, &wanted).await.map_err(status)?;
    let mut asking = true;
    loop {
        let may_read = subscription.may_read();
        tokio::select! {
            ask = asks.message(), if asking => match ask? {
                Some(message) => answer(&mut subscription, message)?,
                // It has no more to say, but may go on listening (a named cursor then ends at the window).
                None => asking = false,
            },
            place = tell.reserve(), if may_read => {
                let Ok(place) = place else { return Ok(()) };
                let events = tokio::select! {
                    events = subscription.next() => Some(events.map_err(status)?),
                    () = tell.closed() => return Ok(()),
                    ask = asks.message(), if asking => {
                        match ask? {
                            Some(message) => answer(&mut subscription, message)?,
                            None => asking = false,
                        }
                        None
                    }
                };
                if let Some(events) = events {
                    place.send(Ok(v1::SubscribeEventsResponse { events }));
                }
            }
            () = tell.closed() => return Ok(()),
        }
    }
}

fn answer(subscription: &mut Subscription, message: v1::SubscribeEventsRequest) -> Result<(), Status> {
    match message.request {
        Some(Ask::Acknowledge(cursor)) => subscription.acknowledge(&cursor).map_err(status),
        Some(Ask::Subscribe(_)) => {
            Err(Status::invalid_argument("Expected an acknowledgement, but found a subscription."))
        }
        None => Err(Status::invalid_argument("Expected an acknowledgement, but found nothing.")),
    }
}
