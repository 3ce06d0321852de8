//! May a release use the action classes it declares? Asked of the Policy Engine, or of the list in the configuration.

use crate::config::Live;
use crate::outside;
use grain_contract::{Rejection, TenantId, limits};
use granary_proto::v1;
use granary_proto::v1::policy_engine_client::PolicyEngineClient;
use std::time::Duration;
use tonic::transport::Channel;

const CALL_MAX: Duration = Duration::from_secs(5);

pub enum Policy {
    /// `policy.actionClasses`, as it stands at the moment of the check.
    AllowList(Live),
    Engine(PolicyEngineClient<Channel>),
}

impl Policy {
    /// # Errors
    /// The endpoint is not a URL.
    pub fn of(live: &Live) -> Result<Self, Rejection> {
        let endpoint = live.get().policy_engine.endpoint.clone();
        if endpoint.is_empty() {
            return Ok(Self::AllowList(live.clone()));
        }
        let client = PolicyEngineClient::new(outside::channel(&endpoint)?)
            .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(limits::MESSAGE_BYTES_MAX);
        Ok(Self::Engine(client))
    }

    /// What is denied; nothing = all is allowed.
    ///
    /// # Errors
    /// The Policy Engine does not answer: nothing is loaded without its word.
    pub async fn check(
        &self,
        tenant: &TenantId,
        release_id: &str,
        steps: Vec<v1::StepActionClass>,
    ) -> Result<Vec<v1::Denial>, Rejection> {
        match self {
            Self::AllowList(live) => Ok(denied(&live.get().policy.action_classes, &steps)),
            Self::Engine(client) => ask(client, tenant, release_id, steps).await,
        }
    }
}

fn denied(allowed: &[String], steps: &[v1::StepActionClass]) -> Vec<v1::Denial> {
    let denial = |step: &v1::StepActionClass| v1::Denial {
        step_id: step.step_id.clone(),
        reason: format!("Expected one of the action classes {}, but found {}.", allowed.join(", "), step.action_class),
    };
    // A step without a class takes none.
    steps.iter().filter(|s| !s.action_class.is_empty() && !allowed.contains(&s.action_class)).map(denial).collect()
}

async fn ask(
    client: &PolicyEngineClient<Channel>,
    tenant: &TenantId,
    release_id: &str,
    steps: Vec<v1::StepActionClass>,
) -> Result<Vec<v1::Denial>, Rejection> {
    let body =
        v1::CheckActionClassesRequest { tenant_id: tenant.to_string(), release_id: release_id.to_owned(), steps };
    let mut request = tonic::Request::new(body);
    request.set_timeout(CALL_MAX);
    let answer = client
        .clone()
        .check_action_classes(request)
        .await
        .map_err(|status| outside::refusal("PolicyEngine", &status))?
        .into_inner();
    if answer.allowed {
        return Ok(Vec::new());
    }
    if answer.denials.is_empty() {
        let reason = "The Policy Engine does not allow it and gives no reason.".to_owned();
        return Ok(vec![v1::Denial { step_id: String::new(), reason }]);
    }
    Ok(answer.denials)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [D6]
    #[test]
    fn the_allow_list_denies_each_step_by_name() {
        let step = |id: &str, class: &str| v1::StepActionClass {
            step_id: id.to_owned(),
            action_class: class.to_owned(),
            ..v1::StepActionClass::default()
        };
        let steps = [step("a", "read"), step("b", "shared-write"), step("c", "")];
        let found = denied(&["read".to_owned(), "sandbox".to_owned()], &steps);
        assert_eq!(found.iter().map(|d| d.step_id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(found[0].reason.contains("read, sandbox") && found[0].reason.contains("shared-write"));
    }
}
