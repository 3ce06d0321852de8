//! What a silo can be told at its start.

use grain_contract::{Method, limits};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct SiloOptions {
    /// Shown to workers and in logs.
    pub name: String,
    /// An activation without a call for this long is dropped.
    pub idle: Duration,
    /// Bytes that activations may hold in memory, roughly; beyond it the least recently used idle ones are dropped.
    pub activation_memory: usize,
    /// How often each entry of `sweep_index` is sent `sweep` (R15).
    pub sweep_every: Duration,
    /// Events older than this may be trimmed.
    pub event_retention: Duration,
    /// Events kept of one shard at most; older ones are trimmed before `event_retention`.
    pub events_kept_max: u64,
    /// A lease that is not renewed for this long ends.
    pub lease: Duration,
    /// How often workers are asked to renew.
    pub renew: Duration,
    /// `calls::Claim` → `calls::ClaimReply`
    pub claim: Method,
    /// `calls::LeaseExpired` → empty
    pub lease_expired: Method,
    /// empty → empty
    pub sweep: Method,
    /// Index of the grains that are woken after a takeover and swept from time to time. An entry whose value is
    /// [`grain_contract::NOTHING_TO_TELL`] is swept only.
    pub sweep_index: &'static str,
    #[doc(hidden)]
    pub sabotage: Option<crate::sabotage::Sabotage>,
}

impl SiloOptions {
    /// Everything else at its default.
    pub fn new(
        name: impl Into<String>,
        claim: Method,
        lease_expired: Method,
        sweep: Method,
        sweep_index: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            idle: Duration::from_millis(limits::IDLE_MS),
            activation_memory: 64 << 20,
            sweep_every: Duration::from_secs(300),
            event_retention: Duration::from_secs(7 * 24 * 3_600),
            events_kept_max: 1_000_000,
            lease: Duration::from_millis(limits::LEASE_MS),
            renew: Duration::from_millis(limits::LEASE_RENEW_MS),
            claim,
            lease_expired,
            sweep,
            sweep_index,
            sabotage: None,
        }
    }
}
