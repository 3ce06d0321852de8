//! Asking the others for their time.

use super::{Clocks, Offset};
use crate::Clock;
use crate::hop::Around;
use crate::peers::{PeerService, Refused};
use crate::silo::Silo;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use shard::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SERVICE: &str = "clock";
const NOW: &str = "clock.now";
const EVERY: Duration = Duration::from_secs(5);
/// An answer that takes longer says too little.
const WITHIN: Duration = Duration::from_secs(1);
const ASKED_AT_ONCE: usize = 16;
/// Between two warnings of the same.
const WARN_EVERY_MS: u64 = 60_000;
/// What is told in the log where no bound is set.
const WORTH_A_WORD_MS: u64 = 1_000;

/// Answers the others, and asks them from time to time for as long as it is polled. A silo whose clock differs by more than
/// `off_max_ms` from the middle of all is not ready; 0 = it is said in the log only.
pub async fn watch(silo: Silo, around: Around, clock: Arc<dyn Clock>, off_max_ms: u64) {
    let clocks = silo.clocks();
    clocks.allow(off_max_ms);
    around.services.mount(SERVICE, Arc::new(Told(clock.clone())));
    let worth_a_word = if off_max_ms == 0 { WORTH_A_WORD_MS } else { off_max_ms.min(WORTH_A_WORD_MS) };
    let mut warned_ms = None;
    loop {
        let peers: BTreeSet<NodeId> = around.peers.attached().borrow().keys().copied().collect();
        clocks.keep_only(&peers);
        stream::iter(peers).for_each_concurrent(ASKED_AT_ONCE, |node| ask(&clocks, &around, &*clock, node)).await;
        let now_ms = clock.monotonic_ms();
        let is_due = warned_ms.is_none_or(|at: u64| now_ms.saturating_sub(at) >= WARN_EVERY_MS);
        if let Some(off_ms) = clocks.off_ms().filter(|off| off.unsigned_abs() > worth_a_word && is_due) {
            warned_ms = Some(now_ms);
            tracing::warn!(
                off_ms,
                "this silo's clock differs from the others'; timers of runs that move fire early or late by that"
            );
        }
        clock.sleep(EVERY).await;
    }
}

async fn ask(clocks: &Clocks, around: &Around, clock: &dyn Clock, node: NodeId) {
    let (asked_at, begun) = (clock.now(), clock.monotonic_ms());
    let Ok(answer) = around.peers.call(node, NOW, Bytes::new(), WITHIN).await else { return };
    let now_ms = clock.monotonic_ms();
    // Of another build, or nonsense: not measured.
    let Ok(told) = <[u8; 8]>::try_from(answer.as_ref()).map(i64::from_be_bytes) else { return };
    let offset = Offset::of(asked_at.0, now_ms.saturating_sub(begun), told);
    clocks.measured(node, offset, now_ms);
}

/// What this silo's clock says.
struct Told(Arc<dyn Clock>);

impl PeerService for Told {
    fn handle(&self, _: NodeId, method: &str, _: Bytes, _: Duration) -> BoxFuture<'static, Result<Bytes, Refused>> {
        let answer = match method {
            NOW => Ok(Bytes::copy_from_slice(&self.0.now().0.to_be_bytes())),
            other => Err(Refused::UnknownMethod(other.to_owned())),
        };
        Box::pin(std::future::ready(answer))
    }
}
