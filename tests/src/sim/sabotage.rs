//! The deliberate bugs of store and silo, by name.

use cluster::sabotage::Sabotage as InSilo;
use shard::testing::Sabotage as InStore;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    Store(InStore),
    Silo(InSilo),
}

pub const ALL: [Sabotage; 8] = [
    Sabotage::Store(InStore::EpochUnchecked),
    Sabotage::Store(InStore::RevisionUnchecked),
    Sabotage::Silo(InSilo::CursorAhead),
    Sabotage::Silo(InSilo::ReminderClearedFirst),
    Sabotage::Silo(InSilo::CommandRepeated),
    Sabotage::Store(InStore::VoteUnsynced),
    Sabotage::Silo(InSilo::ReadUnconfirmed),
    Sabotage::Silo(InSilo::LateHandedOut),
];

impl Sabotage {
    pub fn name(self) -> String {
        match self {
            Self::Store(sabotage) => format!("{sabotage:?}"),
            Self::Silo(sabotage) => format!("{sabotage:?}"),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|sabotage| sabotage.name() == name)
    }

    pub fn in_store(self) -> Option<InStore> {
        if let Self::Store(sabotage) = self { Some(sabotage) } else { None }
    }

    pub fn in_silo(self) -> Option<InSilo> {
        if let Self::Silo(sabotage) = self { Some(sabotage) } else { None }
    }
}
