//! What the dispatcher asks of grains and tells them.

use super::Dispatch;
use super::pool::{Action, Claimed};
use crate::hub::Hub;
use crate::metrics::count;
use crate::outbox::until_answered;
use crate::routing::{INNER_CALL, Origin};
use crate::turn::{Refusal, Trigger};
use bytes::Bytes;
use grain_contract::{Code, GrainId, Lease, Method, Rejection, TenantId};
use granary_proto::calls::{Claim, ClaimReply, LeaseExpired};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Why a grain of a shard that was led here gave no answer.
enum NoAnswer {
    /// The shard is not led here any more.
    Gone,
    Refused(Rejection),
}

impl Dispatch {
    pub(super) fn perform(self: &Arc<Self>, tenant: &TenantId, action: Action) {
        let (dispatch, tenant) = (self.clone(), tenant.clone());
        match action {
            Action::Claim { waiting, lease } => {
                self.left_queue(&waiting);
                let since = self.moment();
                tokio::spawn(async move {
                    let Some(answer) = dispatch.ask_claim(&waiting.grain, waiting.item.attempt, &lease, false).await
                    else {
                        return;
                    };
                    let taking = dispatch.taking(true, since);
                    dispatch.with(&tenant, |pool| pool.claim_answered(waiting, lease, answer, taking));
                });
            }
            Action::Verify { grain, attempt, lease } => {
                tokio::spawn(async move {
                    let Some(answer) = dispatch.ask_claim(&grain, attempt, &lease, true).await else { return };
                    dispatch.with(&tenant, |pool| pool.verified(attempt, &lease, answer));
                });
            }
            Action::Expired { grain, attempt, lease, never_started } => {
                tokio::spawn(async move {
                    dispatch.tell_expired(&grain, attempt, &lease, never_started).await;
                    dispatch.with(&tenant, |pool| pool.expiry_told(attempt, &lease));
                });
            }
            Action::Send { edge, parcel } => self.send(edge, parcel),
        }
    }

    /// `None` if the silo stops. The same claim is repeated until it is answered: its outcome must be known before the place
    /// can be given to something else. `held`: only whether the worker holds it already.
    async fn ask_claim(&self, grain: &GrainId, attempt: Uuid, lease: &Lease, held: bool) -> Option<Claimed> {
        let hub = self.hub.upgrade()?;
        let (worker, token) = (lease.worker.clone(), lease.token.to_vec());
        let call = Claim { attempt_id: attempt.to_string(), worker, token, held };
        let answer = until_answered_here(&hub, grain, hub.options.claim, call.encode_to_vec().into()).await?;
        Some(match answer.map(|body| ClaimReply::decode(&*body)) {
            Ok(Ok(reply)) if reply.claimed => Claimed::Yes,
            Ok(Ok(_)) => Claimed::No,
            Ok(Err(error)) => {
                tracing::error!(%grain, %error, "a claim was answered with something else");
                Claimed::No
            }
            Err(NoAnswer::Gone) => Claimed::Gone,
            Err(NoAnswer::Refused(rejection)) => {
                tracing::debug!(%grain, %attempt, %rejection, "a claim was refused");
                Claimed::No
            }
        })
    }

    async fn tell_expired(&self, grain: &GrainId, attempt: Uuid, lease: &Lease, never_started: bool) {
        let Some(hub) = self.hub.upgrade() else { return };
        let Ok(_permit) = self.expiries.acquire().await else { return };
        let call = LeaseExpired {
            attempt_id: attempt.to_string(),
            worker: lease.worker.clone(),
            never_started,
            token: lease.token.to_vec(),
        };
        let body: Bytes = call.encode_to_vec().into();
        let method = hub.options.lease_expired;
        let refused = if never_started {
            // True whoever hears it and whenever, since nobody else is ever sent this token.
            until_answered(&hub, grain, method, body).await.err()
        } else {
            count(&hub.metrics.leases_expired);
            // Said by this clock, which counts only while the shard is led here: a former owner that slept must not end what
            // the next one sees renewed.
            match until_answered_here(&hub, grain, method, body).await {
                Some(Err(NoAnswer::Refused(rejection))) => Some(rejection),
                _ => None,
            }
        };
        if let Some(rejection) = refused {
            tracing::debug!(%grain, %attempt, %rejection, "the end of a lease was refused");
        }
    }
}

/// Repeats the call with rising pauses until the grain says yes or no, for as long as its shard is led here in the epoch of
/// now. `None` if the silo stops.
async fn until_answered_here(
    hub: &Arc<Hub>,
    grain: &GrainId,
    method: Method,
    body: Bytes,
) -> Option<Result<Vec<u8>, NoAnswer>> {
    let shard = hub.room(grain).id;
    let Some(epoch) = hub.dispatch.tenants.epoch(shard) else { return Some(Err(NoAnswer::Gone)) };
    let mut backoff = BACKOFF_MIN;
    loop {
        // A later leadership of this node starts from what the one between has left behind, not from here.
        if hub.dispatch.tenants.epoch(shard) != Some(epoch) {
            return Some(Err(NoAnswer::Gone));
        }
        let trigger = Trigger::Call { method, body: body.clone(), command: None };
        match hub.attempt(grain, trigger, Origin::Inside, Instant::now() + INNER_CALL).await {
            Ok(done) => return Some(Ok(done.reply)),
            // Its room here is about to close, and then the shard is not led here any more.
            Err(Refusal::Moved) => {}
            Err(Refusal::Rejected(rejection) | Refusal::Unknown(rejection))
                if rejection.code.is_retryable() || rejection.code == Code::Internal =>
            {
                count(&hub.metrics.outbox_retries);
                tracing::debug!(%grain, %rejection, "a call of the dispatcher is repeated");
            }
            Err(Refusal::Rejected(rejection) | Refusal::Unknown(rejection)) => {
                return Some(Err(NoAnswer::Refused(rejection)));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = hub.stop.cancelled() => return None,
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}
