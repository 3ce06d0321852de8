//! Submit, get, cancel, watch.

use super::{Api, HEADER_ROWS_MAX, check, header, run_grain};
use crate::tenant::Caller;
use cluster::Watch;
use grain_contract::{Code, GrainId, Rejection, TenantId};
use grains::kinds::methods::run;
use granary_proto::{calls, v1};
use prost::Message as _;
use uuid::Uuid;

/// Name space of run ids that are derived from a caller's key. Never changes: the same key must give the same run for ever.
const RUN_KEYS: Uuid = Uuid::from_u128(0x6a0c_5f1e_93b4_5d27_8f40_2b7d_91e6_c3a8);

/// The run that a tenant's client key stands for.
pub fn run_of_key(tenant: &TenantId, client_key: &str) -> Uuid {
    let mut name = Vec::with_capacity(tenant.as_str().len() + 1 + client_key.len());
    name.extend_from_slice(tenant.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(client_key.as_bytes());
    Uuid::new_v5(&RUN_KEYS, &name)
}

impl Api {
    /// Starts a run, once a key.
    pub async fn submit(
        &self,
        caller: &Caller,
        mut request: v1::SubmitRunRequest,
    ) -> Result<v1::SubmitRunResponse, Rejection> {
        self.bundled()?;
        check::optional_name(&request.client_key, "clientKey")?;
        check::optional_name(&request.project_id, "projectId")?;
        check::json(&mut request.input, "input")?;
        check::json_object(&mut request.variables, "variables")?;
        let run_id = self.run_id(caller, &request)?;
        let grain = run_grain(&caller.tenant, run_id);
        let may_repeat = !(request.client_key.is_empty() && request.run_id.is_empty());
        let pinned = if may_repeat { self.pinned_release(caller, &grain).await? } else { None };
        let release_id = match pinned {
            // A repeat: the definition may have a newer version by now, which is none of this run's business.
            Some(release_id) => release_id,
            None => self.release_of(caller, &request).await?,
        };
        self.inner.library.check_input(caller, &release_id, request.input.as_ref()).await?;
        request.run_id = run_id.to_string();
        let submit =
            calls::Submit { request: Some(request), release_id, by: caller.by.clone(), ..calls::Submit::default() };
        self.call(caller, grain, run::SUBMIT, submit.encode_to_vec()).await
    }

    pub async fn run(&self, caller: &Caller, run_id: &str) -> Result<v1::Run, Rejection> {
        let id = check::id(run_id, "runId")?;
        let request = v1::GetRunRequest { run_id: id.to_string() };
        self.call(caller, run_grain(&caller.tenant, id), run::GET, request.encode_to_vec()).await
    }

    pub async fn cancel(&self, caller: &Caller, request: &v1::CancelRunRequest) -> Result<v1::Run, Rejection> {
        self.bundled()?;
        let id = check::id(&request.run_id, "runId")?;
        check::text(&request.reason, "reason")?;
        // By the call's word, never by the body's.
        let by = caller.by.clone();
        let request = v1::CancelRunRequest { run_id: id.to_string(), reason: request.reason.clone(), by };
        self.call(caller, run_grain(&caller.tenant, id), run::CANCEL, request.encode_to_vec()).await
    }

    /// Something was seen in the world of a run by somebody who holds no attempt of it.
    pub async fn observe(
        &self,
        caller: &Caller,
        mut request: v1::ObserveRequest,
    ) -> Result<v1::ObserveResponse, Rejection> {
        self.bundled()?;
        let id = check::id(&request.run_id, "runId")?;
        check::json(&mut request.value, "value")?;
        let observe = v1::Observe {
            run_id: id.to_string(),
            kind: request.kind,
            value: request.value,
            by: caller.by.clone(),
            ..v1::Observe::default()
        };
        self.call::<()>(caller, run_grain(&caller.tenant, id), run::OBSERVE, observe.encode_to_vec()).await?;
        Ok(v1::ObserveResponse {})
    }

    /// Tells of each change of a run of this tenant.
    pub fn watch(&self, caller: &Caller, run_id: &str) -> Result<Watch, Rejection> {
        let id = check::id(run_id, "runId")?;
        Ok(self.inner.silo.watch(&run_grain(&caller.tenant, id)))
    }

    fn run_id(&self, caller: &Caller, request: &v1::SubmitRunRequest) -> Result<Uuid, Rejection> {
        match (request.client_key.is_empty(), request.run_id.is_empty()) {
            (false, true) => Ok(run_of_key(&caller.tenant, &request.client_key)),
            (true, false) => check::id(&request.run_id, "runId"),
            (true, true) => Ok(Uuid::now_v7()),
            (false, false) => {
                let wanted = run_of_key(&caller.tenant, &request.client_key);
                if check::id(&request.run_id, "runId")? == wanted {
                    return Ok(wanted);
                }
                let message =
                    format!("Expected no runId beside a clientKey (the key stands for run {wanted}), but found one.");
                Err(check::invalid("runId", message))
            }
        }
    }

    /// The release that an accepted run was pinned to.
    async fn pinned_release(&self, caller: &Caller, grain: &GrainId) -> Result<Option<String>, Rejection> {
        let rows = self.inner.silo.rows(grain, run::table::HEADER, None, HEADER_ROWS_MAX, caller.deadline).await?;
        Ok(Some(header(&rows).definition_release_id).filter(|id| !id.is_empty()))
    }

    /// The release that a new run shall be pinned to.
    async fn release_of(&self, caller: &Caller, request: &v1::SubmitRunRequest) -> Result<String, Rejection> {
        let release = &request.definition_release_id;
        if !release.is_empty() {
            check::name(release, "definitionReleaseId")?;
            if !request.definition_id.is_empty() || !request.version.is_empty() {
                let message = "Expected either definitionReleaseId or definitionId, but found both.";
                return Err(check::invalid("definitionReleaseId", message));
            }
            return Ok(release.clone());
        }
        if request.definition_id.is_empty() {
            let message = "Expected a definitionReleaseId or a definitionId, but found neither.";
            return Err(check::invalid("definitionId", message));
        }
        check::name(&request.definition_id, "definitionId")?;
        check::optional_name(&request.version, "version")?;
        let version = Some(request.version.as_str()).filter(|v| !v.is_empty());
        let found =
            self.inner.library.version_of(&caller.tenant, &request.definition_id, version, caller.deadline).await?;
        Ok(found.release_id)
    }
}

/// Whether the word is one that a run does not leave again (Run Control's words and the engine's are the same here).
pub fn is_ended(state: &str) -> bool {
    matches!(state, "Completed" | "Failed" | "Cancelled")
}

/// "No such run" in the words that every operation uses.
pub fn not_found(run_id: Uuid) -> Rejection {
    Rejection::new(Code::NotFound, format!("Expected a run of this tenant, but {run_id} is none.")).at("runId")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FR-171: ids of keys never change, and two tenants' equal keys are two runs.
    #[test]
    fn a_key_stands_for_one_run_a_tenant() {
        let acme = run_of_key(&"acme".into(), "order-1");
        assert_eq!(acme.to_string(), run_of_key(&"acme".into(), "order-1").to_string());
        assert_ne!(acme, run_of_key(&"umbrella".into(), "order-1"));
        assert_ne!(run_of_key(&"a".into(), "bc"), run_of_key(&"ab".into(), "c"));
    }
}
