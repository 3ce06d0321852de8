//! The `grain` service: what a silo answers to its peers.

use super::{call, cursors, index, outbox, post, rows, wire};
use crate::hub::Hub;
use crate::metrics::count;
use crate::peers::{PeerService, Refused};
use crate::watch;
use bytes::Bytes;
use futures::future::BoxFuture;
use grain_contract::limits::CALLS_IN_PROGRESS_MAX;
use granary_proto::peers::WholeBody;
use shard::NodeId;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// First part of the name of each of its methods.
pub(crate) const SERVICE: &str = "grain";

/// Answers for a silo for as long as that lives.
pub(crate) struct Served(pub(crate) Weak<Hub>);

/// Counts a question of a peer for as long as it is being answered.
struct Being<'a>(&'a Hub);

impl Drop for Being<'_> {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::AcqRel);
    }
}

impl PeerService for Served {
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>> {
        let (hub, method) = (self.0.upgrade(), method.to_owned());
        Box::pin(async move {
            let Some(hub) = hub else { return Err(Refused::Other("this silo has ended".to_owned())) };
            let deadline = Instant::now() + within.saturating_sub(call::margin(within));
            let before = hub.serving.fetch_add(1, Ordering::AcqRel);
            let _being = Being(&hub);
            if before >= CALLS_IN_PROGRESS_MAX {
                return Err(Refused::Overloaded);
            }
            if method == post::WHOLE {
                let whole: WholeBody = wire::read(&body)?;
                let body = hub.parcels.take(from, whole.id)?;
                return hub.answer(from, &whole.method, body, deadline).await;
            }
            hub.answer(from, &method, body, deadline).await
        })
    }
}

impl Hub {
    async fn answer(
        self: &Arc<Self>,
        from: NodeId,
        method: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, Refused> {
        match method {
            call::CALL => {
                count(&self.metrics.hops_served);
                self.wrap(&self.serve_call(&body, deadline).await?)
            }
            rows::ROWS => self.wrap(&self.serve_rows(&body).await?),
            index::INDEX => self.wrap(&self.serve_index(&body).await?),
            outbox::HEADS => self.wrap(&self.serve_heads(&body, deadline).await?),
            outbox::PAGE => self.wrap(&self.serve_outbox(&body).await?),
            cursors::CURSORS => self.wrap(&self.serve_cursors(&body).await?),
            cursors::TAKEN => self.wrap(&self.serve_cursor_taken(&body)?),
            watch::WATCH => self.wrap(&self.serve_watch(from, &body)?),
            watch::CHANGED => self.wrap(&self.serve_changed(&body)?),
            post::PART => self.take_part(from, &body),
            post::FETCH => self.give_part(&body),
            other => Err(Refused::UnknownMethod(other.to_owned())),
        }
    }
}
