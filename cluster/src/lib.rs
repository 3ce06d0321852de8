//! The silo: placement, routing, activation, reminders, outbox, events, dispatch.
//!
//! A silo hosts grains as single activations on the leader of their shard. A call goes from `routing` (which shard, which
//! owner) through the `catalog` (get or create the activation, admit) to a turn: the grain decides, the shard commits, and
//! only then effects are done and the reply leaves. This crate deliberately knows no workflow: grains are behaviours behind
//! `grain_contract::GrainType`, work items are opaque bytes.

mod activation;
mod catalog;
pub mod clock;
pub mod clocks;
pub mod directory;
pub mod dispatch;
mod drain;
mod effects;
pub mod events;
mod figures;
pub mod health;
pub mod hop;
mod hub;
pub mod lists;
pub mod membership;
pub mod mesh;
pub mod metrics;
pub mod options;
mod outbox;
mod owed;
pub mod peers;
pub mod placement;
mod reaper;
pub mod refusal;
mod reminders;
mod room;
mod routing;
#[doc(hidden)]
pub mod sabotage;
mod service;
pub mod silo;
mod store;
pub mod trace;
mod turn;
mod waker;
pub mod watch;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use directory::Directory;
pub use dispatch::{HeldAttempt, ToWorker, WorkerHello, WorkerSession};
pub use events::{DeliveredEvent, EventReader, ReadEvents, ReadFrom, Scope};
pub use health::Health;
pub use hop::Around;
pub use hop::rows::RowsOf;
pub use lists::IndexPage;
pub use membership::{Membership, MembershipOptions};
pub use metrics::MetricsSnapshot;
pub use options::SiloOptions;
pub use refusal::RETRY_HINT_MS;
pub use silo::{Error, Request, Silo, Supplier};
pub use watch::Watch;
