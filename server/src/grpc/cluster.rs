//! `granary.v1.Cluster`.

use super::caller;
use super::status::status;
use crate::api::Api;
use granary_proto::v1;
use tonic::{Request, Response, Status};

pub struct Cluster(pub Api);

#[tonic::async_trait]
impl v1::cluster_server::Cluster for Cluster {
    async fn get_cluster(
        &self,
        request: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::GetClusterResponse>, Status> {
        caller(&self.0, &request)?;
        self.0.cluster().await.map(Response::new).map_err(status)
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        caller(&self.0, &request)?;
        self.0.drain_node(request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        caller(&self.0, &request)?;
        self.0.remove_node(request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn transfer_shard(
        &self,
        request: Request<v1::TransferShardRequest>,
    ) -> Result<Response<v1::TransferShardResponse>, Status> {
        caller(&self.0, &request)?;
        self.0.transfer_shard(request.get_ref()).await.map(Response::new).map_err(status)
    }
}
