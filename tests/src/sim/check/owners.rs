//! A shard has one owner an epoch, and only the present owner's turns are accepted.

use super::{Check, FirstSeen};
use crate::sim::court::Sight;
use std::collections::HashMap;

#[derive(Default)]
pub struct Owners {
    first: FirstSeen,
    /// Who has said that it owns a shard in an epoch.
    owners: HashMap<(u32, u64), u64>,
    /// The newest epoch that changed each shard.
    newest: HashMap<u32, u64>,
}

impl Check for Owners {
    fn name(&self) -> &'static str {
        "single owner"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let mut faults = Vec::new();
        if let Sight::Owns { node, shard, epoch } = sight {
            let owner = *self.owners.entry((*shard, *epoch)).or_insert(*node);
            if owner != *node {
                faults.push(format!("nodes {owner} and {node} both own shard {shard} in epoch {epoch}"));
            }
        }
        if let Some(turn) = self.first.accepted(sight) {
            if turn.entry.epoch != turn.term {
                faults.push(format!(
                    "{} was changed by a turn of epoch {} in epoch {} of shard {}",
                    turn.grain, turn.entry.epoch, turn.term, turn.shard
                ));
            }
            let newest = self.newest.entry(turn.shard).or_default();
            if turn.entry.epoch < *newest {
                faults.push(format!(
                    "{} was changed by epoch {} after epoch {newest} of shard {}",
                    turn.grain, turn.entry.epoch, turn.shard
                ));
            }
            *newest = (*newest).max(turn.entry.epoch);
        }
        faults
    }
}
