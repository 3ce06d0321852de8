//! The log of all groups of a node: one family of files, one committer thread.
//!
//! Every group's entries, votes and pointers go through one queue into one frame a sync (`committer`, `frame`, `record`),
//! so one `fdatasync` serves all who wait. Files are made ahead and used again (`segment`, `supply`, `alive`). At open
//! everything is read and checked (`scan`, `rebuild`, `open`): a half-written last batch is cut, anything else that does
//! not fit is refused with its place, because a node that forgot what it acknowledged must not vote.
//!
//! It deliberately knows nothing of what an entry means, and does not decide when to snapshot or purge.

mod alive;
pub mod bench;
mod bounds;
mod cache;
mod committer;
pub mod disk;
mod failure;
mod frame;
mod group;
mod index;
mod inline;
mod open;
mod queue;
mod rebuild;
pub(crate) mod record;
mod scan;
mod segment;
mod shared;
mod storage;
mod supply;
#[cfg(test)]
mod tests;
mod wal;
mod written;

pub use storage::GroupLog;
pub use wal::{Checkpoint, Wal, WalOptions};

use crate::raft::types::{Entry, LeaderTerm, LogId, Vote};
