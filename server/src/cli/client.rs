//! The connection to the servers, with the tenant on every call.

use super::servers::{Servers, Unconnected};
use super::{Common, Failure};
use grain_contract::limits::MESSAGE_BYTES_MAX;
use granary_proto::v1::cluster_client::ClusterClient;
use granary_proto::v1::run_control_client::RunControlClient;
use granary_proto::v1::skills_client::SkillsClient;
use granary_proto::v1::workflow_engine_client::WorkflowEngineClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

const TENANT_HEADER: &str = "x-granary-tenant";

#[derive(Clone)]
pub struct Client {
    servers: Servers,
    tenant: Tenant,
}

#[derive(Clone)]
pub struct Tenant(MetadataValue<Ascii>);

type Service = InterceptedService<Servers, Tenant>;

impl Interceptor for Tenant {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(TENANT_HEADER, self.0.clone());
        Ok(request)
    }
}

impl Client {
    /// Connects now, so that a server that is not there is told from one that says no.
    pub async fn connect(common: &Common) -> Result<Self, Failure> {
        Self::connect_to(&common.servers(), common.tenant()).await
    }

    pub async fn connect_to(urls: &[String], tenant: &str) -> Result<Self, Failure> {
        let tenant = MetadataValue::try_from(tenant)
            .map_err(|_| Failure::usage(format!("Expected a tenant name of visible ASCII, but found {tenant:?}.")))?;
        let servers = Servers::connect(urls).await.map_err(|unconnected| match unconnected {
            Unconnected::Address(url) => {
                Failure::usage(format!("Expected a server address like http://127.0.0.1:7420, but found {url:?}."))
            }
            Unconnected::Nobody(why) => Failure::unreachable(&urls.join(" or "), why),
        })?;
        Ok(Self { servers, tenant: Tenant(tenant) })
    }

    /// The next call goes to another server, if there is one.
    pub fn elsewhere(&self) {
        self.servers.elsewhere();
    }

    pub fn engine(&self) -> WorkflowEngineClient<Service> {
        WorkflowEngineClient::with_interceptor(self.servers.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn skills(&self) -> SkillsClient<Service> {
        SkillsClient::with_interceptor(self.servers.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn run_control(&self) -> RunControlClient<Service> {
        RunControlClient::with_interceptor(self.servers.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn cluster(&self) -> ClusterClient<Service> {
        ClusterClient::with_interceptor(self.servers.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}
