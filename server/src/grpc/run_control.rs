//! `granary.v1.RunControl`.

use super::caller;
use super::status::status;
use crate::api::Api;
use crate::api::runs::is_ended;
use futures::stream::BoxStream;
use granary_proto::v1;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

pub struct RunControl(pub Api);

/// Graphs on their way to one watcher: a slow one sees fewer of them, always the newest next.
const WATCH_BUFFER: usize = 1;
/// Each look at the run within a watch.
const LOOK: Duration = Duration::from_secs(10);

#[tonic::async_trait]
impl v1::run_control_server::RunControl for RunControl {
    async fn submit_run(
        &self,
        request: Request<v1::SubmitRunRequest>,
    ) -> Result<Response<v1::SubmitRunResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.submit(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::Run>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.run(&caller, &request.get_ref().run_id).await.map(Response::new).map_err(status)
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.list_runs(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    type WatchRunStream = BoxStream<'static, Result<v1::RunGraph, Status>>;

    /// The first page of the graph after each change; `next_page_token` is set if there is more to read by `GetRunGraph`.
    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let caller = caller(&self.0, &request)?;
        let place = self.0.stream_place().map_err(status)?;
        let ask = v1::GetRunGraphRequest { run_id: request.into_inner().run_id, ..Default::default() };
        // Armed before the first look, so that no change falls between the two.
        let mut watch = self.0.watch(&caller, &ask.run_id).map_err(status)?;
        let first = self.0.graph(&caller, &ask).await.map_err(status)?;
        let (tell, graphs) = mpsc::channel(WATCH_BUFFER);
        let api = self.0.clone();
        tokio::spawn(async move {
            let _place = place;
            let mut next = Ok(first);
            loop {
                let last = next.as_ref().map_or(true, |graph| is_ended(&graph.state));
                if tell.send(next.map_err(status)).await.is_err() || last {
                    return;
                }
                tokio::select! {
                    () = watch.changed() => {}
                    () = tell.closed() => return,
                    () = api.stopping() => return,
                }
                next = api.graph(&caller.again(LOOK), &ask).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(graphs))))
    }

    async fn cancel_run(&self, request: Request<v1::CancelRunRequest>) -> Result<Response<v1::Run>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.cancel(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.list_approvals(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn decide_approval(
        &self,
        request: Request<v1::DecideApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.decide(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn observe(&self, request: Request<v1::ObserveRequest>) -> Result<Response<v1::ObserveResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.observe(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn read_journal(
        &self,
        request: Request<v1::ReadJournalRequest>,
    ) -> Result<Response<v1::ReadJournalResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.read_journal(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }
}
