//! Approvals: list and decide.

use super::{Api, check, run_grain};
use crate::tenant::Caller;
use grain_contract::{Code, GrainId, Rejection, TenantId, limits};
use grains::kinds::methods::{index, run};
use granary_proto::v1;
use prost::Message as _;
use std::collections::{HashMap, VecDeque};
use uuid::Uuid;

/// Approvals whose run is remembered, so that a repeated decision finds it after it left the index of pending ones.
const RECENT_MAX: usize = 10_000;
/// Pending approvals looked at for one that came without its run.
const LOOKED_AT_MAX: usize = 100_000;
/// A page of approvals is ended before it grows beyond this. Bytes.
const PAGE_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX / 2;
const DECISIONS: [&str; 6] = ["approve", "reject", "answer", "retry", "skip", "fail"];
const STATES: [&str; 8] = ["pending", "approved", "rejected", "answered", "retry", "skip", "fail", "withdrawn"];

impl Api {
    pub async fn list_approvals(
        &self,
        caller: &Caller,
        request: &v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse, Rejection> {
        self.bundled()?;
        if !request.state.is_empty() && !STATES.contains(&request.state.as_str()) {
            let message = format!("Expected one of {}, but found {}.", STATES.join(", "), check::shown(&request.state));
            return Err(check::invalid("state", message));
        }
        if !request.run_id.is_empty() {
            let id = check::id(&request.run_id, "runId")?;
            let ask = v1::ListApprovalsRequest { run_id: id.to_string(), ..request.clone() };
            return self.approvals_of(caller, run_grain(&caller.tenant, id), ask).await;
        }
        if !matches!(request.state.as_str(), "" | "pending") {
            let message = "Expected a runId beside a state other than pending, but found none.";
            return Err(check::invalid("runId", message));
        }
        self.pending_approvals(caller, request).await
    }

    async fn pending_approvals(
        &self,
        caller: &Caller,
        request: &v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse, Rejection> {
        let page_size = check::page_size(request.page_size);
        let mut answer =
            v1::ListApprovalsResponse { next_page_token: request.page_token.clone(), ..Default::default() };
        let mut bytes = 0;
        // One by one, since proposals may be large and the index's tokens stand between its pages only.
        while answer.approvals.len() < page_size && bytes < PAGE_BYTES_MAX {
            let token = std::mem::take(&mut answer.next_page_token);
            let page = self
                .inner
                .silo
                .index_page(index::PENDING_APPROVALS, &caller.tenant, &token, 1, caller.deadline)
                .await?;
            for entry in page.entries {
                let run_id = entry.grain.key.to_string();
                let wanted = approval_id(&entry.value);
                let ask = v1::ListApprovalsRequest { run_id, state: "pending".to_owned(), ..Default::default() };
                let of_run = match self.approvals_of(caller, entry.grain, ask).await {
                    Ok(found) => found.approvals,
                    // Decided between the look at the index and this one, or a run that is set aside.
                    Err(r) if matches!(r.code, Code::NotFound | Code::Quarantined) => Vec::new(),
                    Err(r) => return Err(r),
                };
                for approval in of_run.into_iter().filter(|a| wanted.is_none_or(|id| a.approval_id == id.to_string())) {
                    bytes += approval.encoded_len();
                    answer.approvals.push(approval);
                }
            }
            answer.next_page_token = page.next_page_token;
            if answer.next_page_token.is_empty() {
                break;
            }
        }
        Ok(answer)
    }

    async fn approvals_of(
        &self,
        caller: &Caller,
        grain: GrainId,
        ask: v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse, Rejection> {
        let found: v1::ListApprovalsResponse = self.call(caller, grain, run::APPROVALS, ask.encode_to_vec()).await?;
        let mut recent = self.inner.recent_approvals.lock();
        for approval in &found.approvals {
            if let (Ok(id), Ok(run)) = (Uuid::try_parse(&approval.approval_id), Uuid::try_parse(&ask.run_id)) {
                recent.put(&caller.tenant, id, run);
            }
        }
        Ok(found)
    }

    pub async fn decide(
        &self,
        caller: &Caller,
        mut request: v1::DecideApprovalRequest,
    ) -> Result<v1::Approval, Rejection> {
        self.bundled()?;
        let approval = check::id(&request.approval_id, "approvalId")?;
        if !DECISIONS.contains(&request.decision.as_str()) {
            let message =
                format!("Expected one of {}, but found {}.", DECISIONS.join(", "), check::shown(&request.decision));
            return Err(check::invalid("decision", message));
        }
        if request.proposal_version == 0 {
            let message = "Expected the version of the proposal that was decided about, but found 0.";
            return Err(check::invalid("proposalVersion", message));
        }
        check::json(&mut request.answer, "answer")?;
        check::text(&request.comment, "comment")?;
        check::optional_text_name(&request.decided_by, "decidedBy")?;
        let run_id = match request.run_id.as_str() {
            "" => self.run_of_approval(caller, approval).await?,
            given => check::id(given, "runId")?,
        };
        if request.decided_by.is_empty() {
            request.decided_by = caller.by.clone();
        }
        request.approval_id = approval.to_string();
        request.run_id = run_id.to_string();
        let decided: v1::Approval =
            self.call(caller, run_grain(&caller.tenant, run_id), run::DECIDE, request.encode_to_vec()).await?;
        self.inner.recent_approvals.lock().put(&caller.tenant, approval, run_id);
        Ok(decided)
    }

    async fn run_of_approval(&self, caller: &Caller, approval: Uuid) -> Result<Uuid, Rejection> {
        let (tenant, deadline) = (&caller.tenant, caller.deadline);
        if let Some(run) = self.inner.recent_approvals.lock().get(tenant, approval) {
            return Ok(run);
        }
        let mut token = String::new();
        let mut looked_at = 0;
        while looked_at < LOOKED_AT_MAX {
            let page = self
                .inner
                .silo
                .index_page(index::PENDING_APPROVALS, tenant, &token, limits::PAGE_MAX, deadline)
                .await?;
            for entry in &page.entries {
                if approval_id(&entry.value) == Some(approval)
                    && let Ok(run) = Uuid::try_parse(&entry.grain.key)
                {
                    return Ok(run);
                }
            }
            looked_at += page.entries.len();
            if page.next_page_token.is_empty() {
                break;
            }
            token = page.next_page_token;
        }
        let message = format!(
            "Expected a pending approval of this tenant, but {approval} is none. One that is decided is found with its runId."
        );
        Err(Rejection::new(Code::NotFound, message).at("approvalId"))
    }
}

/// The value of the index: the id as text or as its 16 bytes.
fn approval_id(value: &[u8]) -> Option<Uuid> {
    match value.len() {
        16 => Uuid::from_slice(value).ok(),
        _ => Uuid::try_parse(std::str::from_utf8(value).ok()?).ok(),
    }
}

/// Runs of approvals that were listed or decided here lately; the oldest goes.
#[derive(Default)]
pub(crate) struct Recent {
    runs: HashMap<(TenantId, Uuid), Uuid>,
    order: VecDeque<(TenantId, Uuid)>,
}

impl Recent {
    fn get(&self, tenant: &TenantId, approval: Uuid) -> Option<Uuid> {
        self.runs.get(&(tenant.clone(), approval)).copied()
    }

    fn put(&mut self, tenant: &TenantId, approval: Uuid, run: Uuid) {
        let key = (tenant.clone(), approval);
        if self.runs.insert(key.clone(), run).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_approvals_are_bounded_and_kept_apart_by_tenant() {
        let mut recent = Recent::default();
        let (acme, other): (TenantId, TenantId) = ("acme".into(), "other".into());
        let first = Uuid::from_u128(1);
        for n in 0..=RECENT_MAX as u128 {
            recent.put(&acme, Uuid::from_u128(n + 1), Uuid::from_u128(n + 100));
        }
        assert_eq!(recent.get(&acme, first), None, "the oldest went");
        assert_eq!(recent.get(&acme, Uuid::from_u128(2)), Some(Uuid::from_u128(101)));
        assert_eq!(recent.get(&other, Uuid::from_u128(2)), None);
        assert_eq!(recent.runs.len(), recent.order.len());
    }
}
