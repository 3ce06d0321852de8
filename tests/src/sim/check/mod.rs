//! What must hold, one property a file. A checker sees everything in the order in which it happened and says at once what is
//! wrong; some can only say at the end.

mod acknowledged;
mod attempts;
mod commands;
mod events;
mod kept;
mod owners;
mod reads;
pub use reads::GROWING;
mod reminders;
mod replicas;
mod revisions;
mod runs;
mod tenants;
mod votes;

use super::court::{End, Sight};
use grain_contract::GrainId;
use granary_proto::storage::TurnEntry;
use std::collections::BTreeSet;

pub trait Check: Send {
    fn name(&self) -> &'static str;

    /// What is wrong with this, in sentences.
    fn see(&mut self, sight: &Sight) -> Vec<String>;

    /// Whether nothing is outstanding that time alone will bring.
    fn is_settled(&self) -> bool {
        true
    }

    fn end(&mut self, _end: &End) -> Vec<String> {
        Vec::new()
    }
}

pub fn all() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(owners::Owners::default()),
        Box::new(revisions::Revisions::default()),
        Box::new(votes::Votes::default()),
        Box::new(replicas::Replicas::default()),
        Box::new(commands::Commands::default()),
        Box::new(acknowledged::Acknowledged::default()),
        Box::new(reads::Reads::default()),
        Box::new(kept::Kept::default()),
        Box::new(events::Events::default()),
        Box::new(reminders::Reminders::default()),
        Box::new(attempts::Attempts::default()),
        Box::new(tenants::Tenants),
        Box::new(runs::Runs),
    ]
}

/// Tells the first replica that applies an entry from those that come after it: for properties of the log, not of a replica.
#[derive(Default)]
pub struct FirstSeen(BTreeSet<(u32, u64)>);

impl FirstSeen {
    /// The entry of an accepted turn that no replica had applied before, and its grain.
    pub fn accepted<'a>(&mut self, sight: &'a Sight) -> Option<Accepted<'a>> {
        let Sight::Applied { shard, term, index, revision, entry, .. } = sight else { return None };
        if !self.0.insert((*shard, *index)) {
            return None;
        }
        let (grain, _) = GrainId::from_storage_bytes(&entry.grain)?;
        Some(Accepted { term: *term, index: *index, shard: *shard, revision: (*revision)?, grain, entry })
    }
}

/// A turn that became part of its grain's history.
pub struct Accepted<'a> {
    pub shard: u32,
    pub term: u64,
    pub index: u64,
    pub revision: u64,
    pub grain: GrainId,
    pub entry: &'a TurnEntry,
}
