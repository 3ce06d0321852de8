//! A fingerprint of a replica's state, to hold replicas against each other.

use crate::state::{head, keys};
use crate::{Error, Host, ShardId};
use prost::Message;

/// Of one replica of one shard: equal for replicas that applied the same entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Raft index of the last entry applied.
    pub applied: u64,
    /// Each table's letter, number of rows, and checksum over keys and values.
    pub tables: Vec<(char, u64, u32)>,
}

/// `None` for a shard without a replica here, or one that has applied nothing.
///
/// # Errors
/// As reads of the shard.
pub fn digest(host: &Host, shard: ShardId) -> Result<Option<Digest>, Error> {
    let Some(overlay) = host.inner.overlay(shard) else { return Ok(None) };
    let Some(applied) = overlay.applied() else { return Ok(None) };
    let mut tables = Vec::new();
    for (from, end) in keys::shard_ranges(shard.0).filter(|(from, _)| !keys::is_stamp(from)) {
        let letter = from.first().copied().map_or(' ', char::from);
        let (mut rows, mut sum) = (0, 0);
        for (key, value) in overlay.scan(from, end, usize::MAX)? {
            rows += 1;
            sum = crc32c::crc32c_append(sum, &key);
            sum = if keys::is_head(&key) {
                // What lies beside the head depends on when it was written to the store, not on what was applied.
                let head = head::read(&key, &value)?;
                let head = head::at(head, applied.index).unwrap_or_default();
                crc32c::crc32c_append(sum, &head.encode_to_vec())
            } else {
                crc32c::crc32c_append(sum, &value)
            };
        }
        tables.push((letter, rows, sum));
    }
    Ok(Some(Digest { applied: applied.index, tables }))
}
