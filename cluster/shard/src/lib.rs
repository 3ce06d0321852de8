//! One Raft group over a rebuildable state store; the atomic commit.
//!
//! A [`Shard`] takes one [`Commit`] at a time from the owner, replicates it as one log entry and applies it as one batch:
//! state rows, reminders, index entries, outbox rows and the stored reply together, guarded by epoch and revision. This
//! crate alone knows openraft, sled and fjall. It deliberately does not know what a grain does.

pub mod api;
mod error;
pub mod group;
pub mod link;
mod log;
mod raft;
mod records;
mod state;
#[doc(hidden)]
pub mod testing;

pub use api::{
    Commit, Committed, Cursor, GrainRows, Host, HostOptions, Housekeeping, Leadership, OutboxItem, OutboxRecord,
    ReminderRecord, Shard, ShardId, StateBackend,
};
pub use error::Error;
pub use group::{GroupView, ReplicaView, Role, Timing};
pub use link::{LinkError, NoLink, NodeId, RaftFrame, RaftKind, RaftLink};
#[doc(hidden)]
pub use log::bench as log_bench;
pub use raft::SnapshotReceiver;
