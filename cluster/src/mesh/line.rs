//! One way of calling a peer, and how much may be under way to it.

use crate::peers::CallError;
use futures::future::BoxFuture;
use granary_proto::peers::{Envelope, EnvelopeReply};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) trait Line: Send + Sync {
    /// The caller sees to `within`; it is here for what stands on the wire.
    fn call(&self, envelope: Envelope, within: Duration) -> BoxFuture<'static, Result<EnvelopeReply, CallError>>;

    /// Whether the process at the other end answers.
    fn answers(&self, within: Duration) -> BoxFuture<'static, bool>;

    fn close(&self);
}

/// Calls under way to one peer.
const CALLS_MAX: usize = 1_024;
/// Their bodies, in units of 1 KiB. A stalled peer holds about twice that, since the writer copies what waits.
const KIB_MAX: usize = 16 << 10;

pub(super) struct Permits {
    calls: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// Held while a call is under way.
pub(super) struct Permit {
    _call: OwnedSemaphorePermit,
    _kib: OwnedSemaphorePermit,
}

impl Default for Permits {
    fn default() -> Self {
        Self { calls: Arc::new(Semaphore::new(CALLS_MAX)), kib: Arc::new(Semaphore::new(KIB_MAX)) }
    }
}

impl Permits {
    pub(super) fn take(&self, bytes: usize) -> Result<Permit, CallError> {
        let kib = (bytes / 1024 + 1).min(KIB_MAX) as u32;
        let call = self.calls.clone().try_acquire_owned().map_err(|_| CallError::Overloaded)?;
        let kib = self.kib.clone().try_acquire_many_owned(kib).map_err(|_| CallError::Overloaded)?;
        Ok(Permit { _call: call, _kib: kib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [K9]
    #[test]
    fn calls_and_bytes_to_one_peer_are_bounded() {
        let permits = Permits::default();
        let many: Vec<_> = (0..CALLS_MAX).map(|_| permits.take(10).unwrap()).collect();
        assert_eq!(permits.take(0).err(), Some(CallError::Overloaded));
        drop(many);
        let big: Vec<_> = (0..16).map(|_| permits.take((1 << 20) - 1).unwrap()).collect();
        assert_eq!(permits.take(0).err(), Some(CallError::Overloaded));
        drop(big);
        assert!(permits.take(crate::peers::CALL_BYTES_MAX).is_ok());
    }
}
