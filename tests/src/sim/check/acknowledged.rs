//! What was acknowledged is there, and what was done was done once.

use super::{Check, FirstSeen};
use crate::sim::court::{End, Sight};
use crate::sim::tally;
use grain_contract::GrainId;
use std::collections::{BTreeSet, HashMap};

#[derive(Default)]
pub struct Acknowledged {
    first: FirstSeen,
    acknowledged: BTreeSet<(GrainId, String)>,
    done: BTreeSet<(GrainId, String)>,
    sums: HashMap<GrainId, i64>,
    /// On their way from one tally to another.
    given: i64,
}

impl Check for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged is kept"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        if let Sight::Done { tally, what } = sight {
            self.acknowledged.insert((tally.clone(), what.clone()));
        }
        let Some(turn) = self.first.accepted(sight).filter(|turn| turn.grain.kind.as_str() == tally::KIND) else {
            return Vec::new();
        };
        let mut faults = Vec::new();
        for put in turn.entry.puts.iter().filter(|put| put.table == u32::from(tally::OPERATIONS.0)) {
            let operation = String::from_utf8_lossy(&put.key).into_owned();
            let times = tally::number(&put.value);
            if times != 1 {
                faults.push(format!("{operation} was done {times} times to {}", turn.grain));
            }
            self.done.insert((turn.grain.clone(), operation));
        }
        if let Some(sum) = turn.entry.puts.iter().find(|put| put.table == u32::from(tally::SUM.0)) {
            self.sums.insert(turn.grain.clone(), tally::number(&sum.value));
        }
        for call in turn.entry.outbox.iter().filter(|message| !message.call_target.is_empty()) {
            self.given += amount(&call.call_body);
        }
        for event in &turn.entry.outbox {
            if let Some((_, what)) = tally::event(&event.event)
                && let Some(taken) = what.strip_prefix("added,").filter(|added| added.contains('/'))
            {
                self.given -= amount(taken.as_bytes());
            }
        }
        faults
    }

    fn is_settled(&self) -> bool {
        self.given == 0
    }

    fn end(&mut self, end: &End) -> Vec<String> {
        let lost = self.acknowledged.difference(&self.done);
        let mut faults: Vec<String> =
            lost.map(|(tally, what)| format!("{what} was acknowledged to {tally}, but is not there")).collect();
        for (tally, sum) in &end.sums {
            let wanted = self.sums.get(tally).copied().unwrap_or_default();
            if *sum != wanted {
                faults.push(format!("{tally} says {sum} at the end, but its turns came to {wanted}"));
            }
        }
        if self.given != 0 {
            faults.push(format!("{} was given by some tallies and not taken by others", self.given));
        }
        faults
    }
}

/// Of `operation,amount`.
fn amount(body: &[u8]) -> i64 {
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.rsplit_once(',').and_then(|(_, amount)| amount.parse().ok()).unwrap_or_default()
}
