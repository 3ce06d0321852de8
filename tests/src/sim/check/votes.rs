//! A node promises its vote of a term once, whatever becomes of its process.

use super::Check;
use crate::sim::court::Sight;
use std::collections::HashMap;

#[derive(Default)]
pub struct Votes {
    promised: HashMap<(u64, u32, u64), u64>,
}

impl Check for Votes {
    fn name(&self) -> &'static str {
        "one vote a term"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let Sight::Voted { node, shard, term, candidate } = sight else { return Vec::new() };
        let before = *self.promised.entry((*node, *shard, *term)).or_insert(*candidate);
        if before == *candidate {
            return Vec::new();
        }
        vec![format!("node {node} promised its vote of term {term} of shard {shard} to {before} and to {candidate}")]
    }
}
