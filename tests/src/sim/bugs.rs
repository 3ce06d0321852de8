//! Whether the simulator finds what it must: each deliberate bug within a few seeds, by the words that this bug must cause,
//! where the same seed without the bug is fine.

use super::sabotage::Sabotage;
use super::{Options, Profile, runner};
use std::ops::RangeInclusive;

pub struct Bug {
    pub sabotage: Sabotage,
    /// The trouble that this bug takes to show.
    pub profile: Profile,
    /// Seeds that are tried, in order, until one finds it.
    pub seeds: RangeInclusive<u64>,
    /// What a checker says of it: any of these.
    pub words: &'static [&'static str],
}

impl Bug {
    /// # Panics
    /// If no seed finds the bug, or the seed that does finds something without it as well.
    pub fn is_found(&self) {
        let mut others = Vec::new();
        for seed in self.seeds.clone() {
            let options = Options { load_ms: self.profile.load_ms(), profile: self.profile, ..Options::of(seed) };
            let report = runner::run(&Options { sabotage: Some(self.sabotage), ..options.clone() });
            if report.faults.iter().any(|fault| self.words.iter().any(|words| fault.contains(words))) {
                let sound = runner::run(&options);
                assert!(sound.faults.is_empty(), "seed {seed} fails without any bug: {:#?}", sound.faults);
                eprintln!("{} is found by seed {seed}: {}", self.sabotage.name(), report.faults[0]);
                return;
            }
            others.extend(report.faults.into_iter().take(2).map(|fault| format!("seed {seed}: {fault}")));
        }
        panic!("{} is not found by seeds {:?}; other faults: {others:#?}", self.sabotage.name(), self.seeds);
    }
}
