//! A read that begins after something was acknowledged shows it.

use super::Check;
use crate::sim::court::Sight;
use grain_contract::GrainId;
use std::collections::HashMap;

/// For tallies that only grow.
pub const GROWING: &str = "meter";

#[derive(Default)]
pub struct Reads {
    /// Moments at which somebody was told a sum.
    told: HashMap<GrainId, Vec<(u64, i64)>>,
}

impl Check for Reads {
    fn name(&self) -> &'static str {
        "no stale reads"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let mut faults = Vec::new();
        match sight {
            Sight::Added { tally, ended_us, sum } if tally.key.starts_with(GROWING) => {
                self.told.entry(tally.clone()).or_default().push((*ended_us, *sum));
            }
            Sight::Read { tally, began_us, ended_us, sum } if tally.key.starts_with(GROWING) => {
                let told = self.told.entry(tally.clone()).or_default();
                let known = told.iter().filter(|(ended, _)| ended < began_us).map(|(_, sum)| *sum).max();
                if known > Some(*sum) {
                    faults.push(format!(
                        "a read of {tally} that began at {began_us} us says {sum}, but {} was told before",
                        known.unwrap_or_default()
                    ));
                }
                told.push((*ended_us, *sum));
            }
            _ => {}
        }
        faults
    }
}
