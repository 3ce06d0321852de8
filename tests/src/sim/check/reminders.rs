//! A reminder comes once and never early, by the wall clock of whoever owns the grain then.

use super::{Check, FirstSeen};
use crate::sim::court::{End, Sight};
use crate::sim::net::Slot;
use crate::sim::tally;
use grain_contract::GrainId;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub struct Reminders {
    first: FirstSeen,
    /// Set and not yet come.
    set: BTreeMap<(GrainId, String), i64>,
    come: HashMap<(GrainId, String, String), u64>,
    /// What was acknowledged to be set.
    acknowledged: BTreeMap<(GrainId, String), i64>,
    /// How far back each machine's wall clock was ever set: between a look at it and the next it may go back by this.
    set_back: HashMap<Slot, i64>,
}

impl Check for Reminders {
    fn name(&self) -> &'static str {
        "reminders once and never early"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let mut faults = Vec::new();
        match sight {
            Sight::ClockSet { slot, by_ms } => {
                let back = self.set_back.entry(*slot).or_default();
                *back = (*back).max(-by_ms);
            }
            Sight::Reminded { slot, tally, name, due, now } => {
                let slack = self.set_back.get(slot).copied().unwrap_or_default();
                if now.0 + slack < due.0 {
                    faults.push(format!("{name} of {tally} came {} ms early on machine {slot}", due.0 - now.0));
                }
            }
            Sight::ReminderSet { tally, name, due } => {
                self.acknowledged.insert((tally.clone(), name.clone()), due.0);
            }
            _ => {}
        }
        let Some(turn) = self.first.accepted(sight).filter(|turn| turn.grain.kind.as_str() == tally::KIND) else {
            return faults;
        };
        for put in turn.entry.reminders.iter().filter(|put| !put.clear) {
            self.set.insert((turn.grain.clone(), put.name.clone()), put.due_ms);
        }
        for message in &turn.entry.outbox {
            let Some((_, what)) = tally::event(&message.event) else { continue };
            let Some((name, due)) = what.strip_prefix("reminded,").and_then(|what| what.split_once(',')) else {
                continue;
            };
            self.set.remove(&(turn.grain.clone(), name.to_owned()));
            let key = (turn.grain.clone(), name.to_owned(), due.to_owned());
            if let Some(before) = self.come.insert(key, turn.revision) {
                faults.push(format!("{name} of {} came at revision {before} and at {}", turn.grain, turn.revision));
            }
        }
        faults
    }

    fn is_settled(&self) -> bool {
        self.set.is_empty()
    }

    fn end(&mut self, _: &End) -> Vec<String> {
        let mut faults: Vec<String> =
            self.set.iter().map(|((tally, name), due)| format!("{name} of {tally}, due {due}, never came")).collect();
        for ((tally, name), due) in &self.acknowledged {
            if !self.come.contains_key(&(tally.clone(), name.clone(), due.to_string())) {
                faults.push(format!("{name} of {tally} was acknowledged for {due}, but never came"));
            }
        }
        faults
    }
}
