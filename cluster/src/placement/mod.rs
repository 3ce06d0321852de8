//! Which shard a grain belongs to, and ([`Ring`]) which nodes a shard.
//!
//! The answer is part of the data on disk: it may never change for a folder that exists. Hence a named, versioned hash over
//! explicit bytes, and a golden test.

mod ring;

pub use ring::{RING, Ring, Site};

use grain_contract::GrainId;
use shard::ShardId;

/// Name of the function below; a change of the function is a new name and a migration.
pub const PLACEMENT: &str = "xxh3-64-modulo-1";

/// The tenant of what the cluster keeps about itself. No caller can name it: a tenant that begins with a dash is refused at the edge.
pub const OWN_TENANT: &str = "-granary";

/// Where a grain lives: what the cluster keeps about itself in shard 0, everything else by [`shard_of`].
pub fn home_of(grain: &GrainId, shards: u32) -> ShardId {
    if grain.tenant.as_str() == OWN_TENANT { ShardId(0) } else { shard_of(grain, shards) }
}

/// The shard of a grain: xxh3-64 of its partition bytes, modulo the number of shards.
pub fn shard_of(grain: &GrainId, shards: u32) -> ShardId {
    let hash = xxhash_rust::xxh3::xxh3_64(&grain.partition_bytes());
    let shard = hash % u64::from(shards.max(1));
    ShardId(u32::try_from(shard).expect("a remainder of a u32 fits a u32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [K2] The answers for these keys are on disks: a change of any of them is a change of format.
    #[test]
    fn twenty_keys_stay_where_they_are() {
        const GOLDEN: [u32; 20] = [2, 9, 12, 7, 4, 6, 10, 5, 7, 5, 12, 9, 14, 0, 14, 6, 5, 0, 9, 15];
        let shard = |n: u32| {
            let tenant = if n.is_multiple_of(2) { "acme" } else { "default" };
            shard_of(&GrainId::new(&tenant.into(), &"run".into(), &format!("0190-{n}")), 16).0
        };
        let found: Vec<u32> = (0..20).map(shard).collect();
        assert_eq!(found, GOLDEN);
    }

    #[test]
    fn the_book_is_in_shard_0() {
        let book = GrainId::new(&OWN_TENANT.into(), &"cluster".into(), "book");
        assert_eq!((home_of(&book, 16), home_of(&book, 1)), (ShardId(0), ShardId(0)));
        let run = GrainId::new(&"acme".into(), &"run".into(), "0190-0");
        assert_eq!(home_of(&run, 16), shard_of(&run, 16));
    }

    #[test]
    fn kinds_of_one_key_share_a_shard() {
        let shard = |kind: &str| shard_of(&GrainId::new(&"acme".into(), &kind.into(), "k"), 16);
        assert_eq!(shard("run"), shard("attempt"));
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0u32; 8];
        for n in 0..8_000 {
            counts[shard_of(&GrainId::new(&"acme".into(), &"run".into(), &n.to_string()), 8).0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
