//! The connection to a server, with the tenant on every call.

use super::{Common, Failure};
use grain_contract::limits::MESSAGE_BYTES_MAX;
use granary_proto::v1::run_control_client::RunControlClient;
use granary_proto::v1::workflow_engine_client::WorkflowEngineClient;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

const TENANT_HEADER: &str = "x-granary-tenant";
const CONNECT_MAX: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Client {
    channel: Channel,
    tenant: Tenant,
}

#[derive(Clone)]
pub struct Tenant(MetadataValue<Ascii>);

type Service = InterceptedService<Channel, Tenant>;

impl Interceptor for Tenant {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(TENANT_HEADER, self.0.clone());
        Ok(request)
    }
}

impl Client {
    /// Connects now, so that a server that is not there is told from one that says no.
    pub async fn connect(common: &Common) -> Result<Self, Failure> {
        Self::connect_to(common.url(), common.tenant()).await
    }

    pub async fn connect_to(url: &str, tenant: &str) -> Result<Self, Failure> {
        let tenant = MetadataValue::try_from(tenant)
            .map_err(|_| Failure::usage(format!("Expected a tenant name of visible ASCII, but found {tenant:?}.")))?;
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| {
            Failure::usage(format!("Expected a server address like http://127.0.0.1:7420, but found {url:?}."))
        })?;
        let channel = endpoint
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .connect()
            .await
            .map_err(|error| Failure::unreachable(url, root_of(&error)))?;
        Ok(Self { channel, tenant: Tenant(tenant) })
    }

    pub fn engine(&self) -> WorkflowEngineClient<Service> {
        WorkflowEngineClient::with_interceptor(self.channel.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn run_control(&self) -> RunControlClient<Service> {
        RunControlClient::with_interceptor(self.channel.clone(), self.tenant.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// The innermost reason: the outer ones only say "transport error".
fn root_of(error: &dyn std::error::Error) -> String {
    let mut reason = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}
