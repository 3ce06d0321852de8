//! A command is carried out once, however often it is sent.

use super::{Check, FirstSeen};
use crate::sim::court::Sight;
use grain_contract::GrainId;
use std::collections::HashMap;

#[derive(Default)]
pub struct Commands {
    first: FirstSeen,
    done: HashMap<(GrainId, Vec<u8>), u64>,
}

impl Check for Commands {
    fn name(&self) -> &'static str {
        "commands once"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let Some(turn) = self.first.accepted(sight).filter(|turn| !turn.entry.command_id.is_empty()) else {
            return Vec::new();
        };
        let command = String::from_utf8_lossy(&turn.entry.command_id).into_owned();
        match self.done.insert((turn.grain.clone(), turn.entry.command_id.clone()), turn.revision) {
            None => Vec::new(),
            Some(before) => vec![format!(
                "command {command} of {} was carried out at revision {before} and at {}",
                turn.grain, turn.revision
            )],
        }
    }
}
