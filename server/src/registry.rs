//! Client of the Agent Registry: the source of published releases.

use crate::outside;
use grain_contract::{Rejection, TenantId, limits};
use granary_proto::v1;
use granary_proto::v1::agent_registry_client::AgentRegistryClient;
use std::time::Duration;
use tonic::transport::Channel;

/// One try of a load; the next comes after a pause.
const TRY_MAX: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Registry {
    client: AgentRegistryClient<Channel>,
}

impl Registry {
    /// # Errors
    /// The endpoint is not a URL.
    pub fn connect(endpoint: &str) -> Result<Self, Rejection> {
        let client = AgentRegistryClient::new(outside::channel(endpoint)?)
            .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(limits::MESSAGE_BYTES_MAX);
        Ok(Self { client })
    }

    pub async fn load_release(
        &self,
        tenant: &TenantId,
        release_id: &str,
    ) -> Result<v1::LoadReleaseResponse, Rejection> {
        let body = v1::LoadReleaseRequest { release_id: release_id.to_owned(), tenant_id: tenant.to_string() };
        let mut request = tonic::Request::new(body);
        request.set_timeout(TRY_MAX);
        let answer = self.client.clone().load_release(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| outside::refusal("AgentRegistry", &status))
    }
}
