//! What a grain is.
//!
//! A grain is an addressable unit of state and behaviour that always exists. This crate holds the words that the pure half
//! (`grains`) and the machinery (`cluster`, `shard`) share, and nothing else: no clock, no I/O, no workflow. A grain turns
//! one [`Message`] into one [`Decision`]; what the decision holds is committed in one atomic step before any of it is seen
//! outside. The model is that of Microsoft Orleans (virtual actors), with the commit made explicit.

pub mod grain;
pub mod ids;
pub mod limits;
pub mod rejection;
pub mod turn;

pub use grain::{Context, Corrupt, Grain, GrainType, Lease, Message, Need, NoOffers, Offers, Supply};
pub use ids::{CommandId, Epoch, GrainId, GrainKind, QueueName, Revision, TenantId, Timestamp};
pub use rejection::{Code, Rejection};
pub use turn::{
    Decision, Effect, IndexChange, IndexEntry, Method, NOTHING_TO_TELL, OutboxMessage, ReminderChange, Row, RowKey,
    Table, Turn, WorkItem,
};
