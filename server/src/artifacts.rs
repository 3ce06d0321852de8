//! Client of the artifact service: values by reference.
//!
//! The bundled Run Control keeps values in the run's own rows, so it needs no artifact service; this client is for what comes
//! with a reference instead of a value.

use crate::outside;
use grain_contract::{Rejection, TenantId, limits};
use granary_proto::v1;
use granary_proto::v1::artifacts_client::ArtifactsClient;
use std::time::Duration;
use tonic::transport::Channel;

const CALL_MAX: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Artifacts {
    client: ArtifactsClient<Channel>,
}

impl Artifacts {
    /// # Errors
    /// The endpoint is not a URL.
    pub fn connect(endpoint: &str) -> Result<Self, Rejection> {
        let client = ArtifactsClient::new(outside::channel(endpoint)?)
            .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(limits::MESSAGE_BYTES_MAX);
        Ok(Self { client })
    }

    pub async fn get(&self, tenant: &TenantId, reference: &str) -> Result<v1::GetArtifactResponse, Rejection> {
        let mut request =
            tonic::Request::new(v1::GetArtifactRequest { r#ref: reference.to_owned(), tenant_id: tenant.to_string() });
        request.set_timeout(CALL_MAX);
        let answer = self.client.clone().get_artifact(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| outside::refusal("Artifacts", &status))
    }
}
