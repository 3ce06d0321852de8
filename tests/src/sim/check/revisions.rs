//! A grain's revisions are a chain: each turn was decided on the one before, and none is missing.

use super::{Check, FirstSeen};
use crate::sim::court::Sight;
use grain_contract::GrainId;
use std::collections::HashMap;

#[derive(Default)]
pub struct Revisions {
    first: FirstSeen,
    newest: HashMap<GrainId, u64>,
}

impl Check for Revisions {
    fn name(&self) -> &'static str {
        "revision chain"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let Some(turn) = self.first.accepted(sight) else { return Vec::new() };
        let newest = self.newest.entry(turn.grain.clone()).or_default();
        let mut faults = Vec::new();
        if turn.entry.expected_revision != *newest {
            faults.push(format!(
                "{} stood at revision {newest}, but a turn that was decided on {} was accepted",
                turn.grain, turn.entry.expected_revision
            ));
        }
        if turn.revision != *newest + 1 {
            faults.push(format!("{} went from revision {newest} to {}", turn.grain, turn.revision));
        }
        *newest = turn.revision;
        faults
    }
}
