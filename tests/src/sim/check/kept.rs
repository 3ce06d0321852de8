//! What somebody was told of a run holds for whoever looks later, at whatever node: it is there, an ended one has ended as it
//! did, and a journal only grows.

use super::Check;
use crate::sim::court::{Looks, Sight};
use grain_contract::GrainId;
use std::collections::HashMap;

#[derive(Default)]
pub struct Kept {
    runs: HashMap<GrainId, Told>,
}

/// What was told of a run, and when first.
#[derive(Default)]
struct Told {
    accepted_us: Option<u64>,
    ended: Option<(u64, String)>,
    /// Moments at which somebody was told a journal's length.
    journal: Vec<(u64, usize)>,
}

impl Told {
    /// What is wrong with what a look that began then has found.
    fn against(&self, began_us: u64, looks: &Looks) -> Option<String> {
        let accepted_us = self.accepted_us.filter(|at| *at < began_us);
        match looks {
            Looks::Missing => accepted_us.map(|at| format!("it is not there, but it was accepted at {at} us")),
            Looks::State(state) => {
                let (at, ended) = self.ended.as_ref().filter(|(at, ended)| *at < began_us && ended != state)?;
                Some(format!("it is {state}, but somebody was told at {at} us that it is {ended}"))
            }
            Looks::Journal(entries) => {
                let earlier = self.journal.iter().filter(|(at, _)| *at < began_us).map(|(_, entries)| *entries);
                // The entry of its acceptance is there at least.
                let known = earlier.max().unwrap_or(0).max(usize::from(accepted_us.is_some()));
                (*entries < known).then(|| format!("its journal has {entries} entries, but it had {known}"))
            }
        }
    }
}

impl Check for Kept {
    fn name(&self) -> &'static str {
        "what is there stays there"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        match sight {
            Sight::Accepted { run, at_us } => {
                self.runs.entry(run.clone()).or_default().accepted_us.get_or_insert(*at_us);
                Vec::new()
            }
            Sight::Looked { run, slot, began_us, ended_us, looks } => {
                let told = self.runs.entry(run.clone()).or_default();
                let against = told.against(*began_us, looks);
                match looks {
                    Looks::State(state) if matches!(state.as_str(), "Completed" | "Failed" | "Cancelled") => {
                        told.ended.get_or_insert_with(|| (*ended_us, state.clone()));
                    }
                    Looks::Journal(entries) => told.journal.push((*ended_us, *entries)),
                    Looks::Missing | Looks::State(_) => {}
                }
                let say = |what| format!("a look at {run} by machine {slot} that began at {began_us} us says {what}");
                against.map(say).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_held_against_looks_that_began_later() {
        let told =
            Told { accepted_us: Some(10), ended: Some((30, "Completed".into())), journal: vec![(20, 3), (25, 2)] };
        let state = |state: &str| Looks::State(state.into());
        for (began_us, looks, is_wrong) in [
            (10, Looks::Missing, false),
            (11, Looks::Missing, true),
            (30, state("Running"), false),
            (31, state("Running"), true),
            (31, state("Cancelled"), true),
            (31, state("Completed"), false),
            (10, Looks::Journal(0), false),
            (11, Looks::Journal(0), true),
            (20, Looks::Journal(1), false),
            (21, Looks::Journal(2), true),
            (26, Looks::Journal(2), true),
            (26, Looks::Journal(3), false),
        ] {
            assert_eq!(told.against(began_us, &looks).is_some(), is_wrong, "{began_us} {looks:?}");
        }
    }
}
