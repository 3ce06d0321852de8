//! openraft, wrapped: with `log` the only module family that names it.
//!
//! `host` opens and closes, `opening` finds what there is to start from, `replica` starts and ends a group member, `shard` is the
//! commit path, `machine` what happens to an entry, `leadership` who owns, `confirm` whether it still does, `members` who belongs
//! to a group, `network`, `acks`, `wire` and its `parts` what replicas say to each other and `incoming` what is answered,
//! `snapshot` and `upkeep` how the log is let go, `mend` what is done about a replica that has ended by itself, `ticks` and
//! `pulse` when groups look at the clock and beat,
//! `checkpoint` what is believed after a restart.

mod acks;
mod checkpoint;
mod confirm;
mod entry;
mod folder;
mod group;
mod heads;
mod host;
mod incoming;
mod leadership;
mod machine;
mod members;
mod mend;
mod network;
mod notices;
mod opening;
mod parts;
mod pulse;
mod replica;
mod shard;
mod snapshot;
mod ticks;
pub mod types;
mod upkeep;
mod wire;

#[cfg(test)]
mod tests;

pub use host::HostInner;
pub use incoming::SnapshotReceiver;
pub use shard::ShardInner;

use crate::Error;
use crate::testing::Stage;

fn storage(error: impl std::fmt::Display) -> Error {
    Error::Storage(error.to_string())
}

/// Runs what blocks where it may.
async fn blocking<T: Send + 'static>(
    stage: &Stage,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    stage.offload(work).await.map_err(storage)?
}
