//! openraft, wrapped: with `log` the only module family that names it.
//!
//! `host` opens and closes, `shard` is the commit path, `machine` what happens to an entry, `leadership` who owns,
//! `snapshot` and `upkeep` how the log is let go, `checkpoint` what is believed after a restart.

mod checkpoint;
mod entry;
mod folder;
mod heads;
mod host;
mod leadership;
mod machine;
mod network;
mod shard;
mod snapshot;
pub mod types;
mod upkeep;

#[cfg(test)]
mod tests;

pub use host::HostInner;
pub use shard::ShardInner;
