//! The connection to the servers, with tenant and user on every call.

use super::servers::{Servers, Unconnected};
use super::{Common, Failure};
use grain_contract::limits::MESSAGE_BYTES_MAX;
use granary::tenant::{TENANT_HEADER, USER_HEADER};
use granary_proto::v1::cluster_client::ClusterClient;
use granary_proto::v1::run_control_client::RunControlClient;
use granary_proto::v1::skills_client::SkillsClient;
use granary_proto::v1::workflow_engine_client::WorkflowEngineClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

#[derive(Clone)]
pub struct Client {
    servers: Servers,
    caller: Caller,
    user: String,
}

/// What each call says of who makes it.
#[derive(Clone)]
pub struct Caller {
    tenant: MetadataValue<Ascii>,
    user: MetadataValue<Ascii>,
}

type Service = InterceptedService<Servers, Caller>;

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(TENANT_HEADER, self.tenant.clone());
        request.metadata_mut().insert(USER_HEADER, self.user.clone());
        Ok(request)
    }
}

impl Client {
    /// Connects now, so that a server that is not there is told from one that says no.
    pub async fn connect(common: &Common) -> Result<Self, Failure> {
        Self::connect_to(&common.servers(), common).await
    }

    /// The same at other servers than those named.
    pub async fn connect_to(urls: &[String], common: &Common) -> Result<Self, Failure> {
        let (tenant, user) = (common.tenant(), common.user());
        let caller = Caller {
            tenant: MetadataValue::try_from(tenant).map_err(|_| {
                Failure::usage(format!("Expected a tenant name of visible ASCII, but found {tenant:?}."))
            })?,
            // Names of people are of any script: UTF-8 goes as it is.
            user: MetadataValue::try_from(user.as_bytes()).map_err(|_| {
                Failure::usage(format!("Expected a user name without control characters, but found {user:?}."))
            })?,
        };
        let servers = Servers::connect(urls).await.map_err(|unconnected| match unconnected {
            Unconnected::Address(url) => {
                Failure::usage(format!("Expected a server address like http://127.0.0.1:7420, but found {url:?}."))
            }
            Unconnected::Nobody(why) => Failure::unreachable(&urls.join(" or "), why),
        })?;
        Ok(Self { servers, caller, user })
    }

    /// Who the calls are said to be made by.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The next call goes to another server, if there is one.
    pub fn elsewhere(&self) {
        self.servers.elsewhere();
    }

    pub fn engine(&self) -> WorkflowEngineClient<Service> {
        WorkflowEngineClient::with_interceptor(self.servers.clone(), self.caller.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn skills(&self) -> SkillsClient<Service> {
        SkillsClient::with_interceptor(self.servers.clone(), self.caller.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn run_control(&self) -> RunControlClient<Service> {
        RunControlClient::with_interceptor(self.servers.clone(), self.caller.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn cluster(&self) -> ClusterClient<Service> {
        ClusterClient::with_interceptor(self.servers.clone(), self.caller.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}
