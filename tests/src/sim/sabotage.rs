//! The deliberate bugs, by name.

use shard::testing::Sabotage;

pub const ALL: [Sabotage; 3] = [Sabotage::EpochUnchecked, Sabotage::RevisionUnchecked, Sabotage::VoteUnsynced];

pub fn named(name: &str) -> Option<Sabotage> {
    ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name)
}
