//! The silo: placement, routing, activation, reminders, outbox, events, dispatch.
//!
//! A silo hosts grains as single activations on the leader of their shard. A call goes from `routing` (which shard, which
//! owner) through the `catalog` (get or create the activation, admit) to a turn: the grain decides, the shard commits, and
//! only then effects are done and the reply leaves. This crate deliberately knows no workflow: grains are behaviours behind
//! `grain_contract::GrainType`, work items are opaque bytes.

pub mod clock;
pub mod dispatch;
pub mod events;
pub mod health;
pub mod lists;
pub mod metrics;
pub mod options;
pub mod placement;
pub mod silo;
pub mod watch;

pub use clock::{Clock, ManualClock, SystemClock};
pub use dispatch::{HeldAttempt, ToWorker, WorkerHello, WorkerSession};
pub use events::{DeliveredEvent, EventReader, ReadEvents, ReadFrom};
pub use health::Health;
pub use lists::IndexPage;
pub use metrics::MetricsSnapshot;
pub use options::SiloOptions;
pub use silo::{Error, Request, Silo, Supplier};
pub use watch::Watch;
