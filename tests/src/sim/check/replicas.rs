//! Replicas apply the same entries with the same result, and end with the same rows.

use super::Check;
use crate::sim::court::{End, Sight};
use prost::Message as _;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

#[derive(Default)]
pub struct Replicas {
    /// Term, entry and result, as whoever came first saw them.
    entries: HashMap<(u32, u64), (u64, u64, Option<u64>)>,
}

impl Check for Replicas {
    fn name(&self) -> &'static str {
        "replicas agree"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let Sight::Applied { slot, shard, term, index, revision, entry, .. } = sight else { return Vec::new() };
        let mut hasher = DefaultHasher::new();
        entry.encode_to_vec().hash(&mut hasher);
        let found = (*term, hasher.finish(), *revision);
        let first = *self.entries.entry((*shard, *index)).or_insert(found);
        if first == found {
            return Vec::new();
        }
        vec![format!("machine {slot} applied entry {index} of shard {shard} as {found:?}, another one as {first:?}")]
    }

    fn end(&mut self, end: &End) -> Vec<String> {
        let mut faults = Vec::new();
        for (shard, replicas) in &end.digests {
            let Some((of, newest)) = replicas.iter().max_by_key(|(_, digest)| digest.applied) else { continue };
            for (slot, digest) in replicas.iter().filter(|(_, digest)| digest.applied == newest.applied) {
                let differ = digest.tables.iter().zip(&newest.tables).filter(|(a, b)| a != b);
                faults.extend(differ.map(|(a, b)| {
                    format!("shard {shard}: {a:?} on machine {slot}, but {b:?} on {of} at {}", newest.applied)
                }));
            }
            let behind = replicas.iter().filter(|(_, digest)| digest.applied < newest.applied);
            faults.extend(behind.map(|(slot, digest)| {
                format!("shard {shard}: machine {slot} stands at {}, but {of} at {}", digest.applied, newest.applied)
            }));
        }
        faults
    }
}
