//! `granary.v1.Skills`.

use super::caller;
use super::status::status;
use crate::api::Api;
use granary_proto::v1;
use tonic::{Request, Response, Status};

pub struct Skills(pub Api);

#[tonic::async_trait]
impl v1::skills_server::Skills for Skills {
    async fn load_skill(
        &self,
        request: Request<v1::LoadSkillRequest>,
    ) -> Result<Response<v1::LoadSkillResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.load_skill(&caller, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn get_skill(&self, request: Request<v1::GetSkillRequest>) -> Result<Response<v1::GetSkillResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.skill(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn list_skills(
        &self,
        request: Request<v1::ListSkillsRequest>,
    ) -> Result<Response<v1::ListSkillsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.list_skills(&caller, request.get_ref()).await.map(Response::new).map_err(status)
    }

    async fn list_skill_versions(
        &self,
        request: Request<v1::ListSkillVersionsRequest>,
    ) -> Result<Response<v1::ListSkillVersionsResponse>, Status> {
        let caller = caller(&self.0, &request)?;
        self.0.skill_versions(&caller, &request.get_ref().name).await.map(Response::new).map_err(status)
    }
}
