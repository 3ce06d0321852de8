//! Which shard a grain belongs to.
//!
//! The answer is part of the data on disk: it may never change for a folder that exists. Hence a named, versioned hash over
//! explicit bytes, and a golden test.

use grain_contract::GrainId;
use shard::ShardId;

/// Name of the function below; a change of the function is a new name and a migration.
pub const PLACEMENT: &str = "xxh3-64-modulo-1";

/// The shard of a grain: xxh3-64 of its partition bytes, modulo the number of shards.
pub fn shard_of(grain: &GrainId, shards: u32) -> ShardId {
    let hash = xxhash_rust::xxh3::xxh3_64(&grain.partition_bytes());
    let shard = hash % u64::from(shards.max(1));
    ShardId(u32::try_from(shard).expect("a remainder of a u32 fits a u32"))
}
