//! When what goes wrong, drawn from the seed.

use super::chance::Chance;
use super::faults::Fault;
use super::{Options, Profile};
use std::iter::Peekable;
use std::vec::IntoIter;

/// Of 1,000 faults, in so many's place a shard's leadership goes to and fro between two machines.
const RESTLESS: u64 = 80;

/// Moments, in microseconds, at which faults begin (true) and end.
#[derive(Default)]
pub struct Script(Vec<(u64, Fault, bool)>);

impl Script {
    pub fn of(chance: &mut Chance, options: &Options, from_us: u64) -> Self {
        let mut script = Self::default();
        let until_us = from_us + options.load_ms * 1_000;
        if options.faults {
            match options.profile {
                Profile::Everything => script.everything(chance, options, from_us, until_us, 100_000..2_500_000),
                Profile::PowerCuts => script.power_cuts(chance, options, from_us, until_us),
                Profile::Restless => {
                    let mut at = from_us + chance.between(200_000..1_500_000);
                    while at < until_us {
                        at += script.restless(chance, options, at) + chance.between(1..1_000_000);
                    }
                    script.everything(chance, options, from_us, until_us, 3_000_000..8_000_000);
                }
                Profile::Roaming => {
                    script.roaming(chance, options, from_us, until_us);
                    script.everything(chance, options, from_us, until_us, 2_000_000..6_000_000);
                }
                Profile::Sleepers => {
                    script.sleepers(chance, options, from_us, until_us);
                    // Others are rare: a sleeper is to wake in a cluster that has gone on without it.
                    script.everything(chance, options, from_us, until_us, 8_000_000..20_000_000);
                }
            }
        }
        script
    }

    fn add(&mut self, at: u64, fault: Fault, lasts: u64) {
        self.0.push((at, fault.clone(), true));
        self.0.push((at + lasts, fault, false));
    }

    /// One after the other mostly, and sometimes one on top of another.
    fn everything(
        &mut self,
        chance: &mut Chance,
        options: &Options,
        from_us: u64,
        until_us: u64,
        between_us: std::ops::Range<u64>,
    ) {
        let mut at = from_us + chance.between(200_000..1_500_000);
        while at < until_us {
            let lasts = if chance.permille(RESTLESS) {
                self.restless(chance, options, at)
            } else {
                let fault = Fault::draw(chance, options);
                let lasts = fault.lasts(chance);
                self.add(at, fault, lasts);
                lasts
            };
            at += if chance.permille(350) { chance.between(1..lasts.max(2)) } else { lasts };
            at += chance.between(between_us.clone());
        }
    }

    /// Most of them soon after the one before: in the middle of elections and of catching up.
    fn power_cuts(&mut self, chance: &mut Chance, options: &Options, from_us: u64, until_us: u64) {
        let mut at = from_us + chance.between(200_000..1_500_000);
        while at < until_us {
            let slot = chance.below(options.nodes as u64) as usize;
            let fault = match chance.below(3) {
                0 => Fault::CutPowerOfAll,
                1 => Fault::CutPower(slot),
                _ => Fault::Kill(slot),
            };
            let lasts = chance.between(10_000..800_000);
            self.add(at, fault, lasts);
            at += lasts + chance.between(100_000..2_500_000);
        }
    }

    /// An owner that loses its shard and has it back soon: what it remembers of the leadership before is out of date. Gives
    /// back how long it lasts.
    fn restless(&mut self, chance: &mut Chance, options: &Options, from_us: u64) -> u64 {
        let shard = chance.below(u64::from(options.shards)) as u32;
        let mut pair = [chance.below(options.nodes as u64) as usize, chance.below(options.nodes as u64) as usize];
        let until = from_us + chance.between(2_000_000..5_000_000);
        let mut at = from_us;
        while at < until {
            self.add(at, Fault::Transfer(shard, pair[0]), 1);
            pair.swap(0, 1);
            at += chance.between(150_000..900_000);
        }
        until - from_us
    }

    /// One more machine to begin with, so that one can go. What the cluster is not ready for at its moment does not happen.
    fn roaming(&mut self, chance: &mut Chance, options: &Options, from_us: u64, until_us: u64) {
        let mut at = from_us + chance.between(200_000..1_500_000);
        self.add(at, Fault::Join, 1);
        while at < until_us {
            at += chance.between(1_500_000..5_000_000);
            let slot = chance.below(options.nodes as u64 + 1) as usize;
            let fault = match chance.below(4) {
                0 => Fault::Join,
                1 | 2 => Fault::Remove(slot),
                _ => Fault::LoseVolume(slot),
            };
            let lasts = fault.lasts(chance);
            self.add(at, fault, lasts);
        }
    }

    /// Owners that stand still for so long that everything is long past when they wake.
    fn sleepers(&mut self, chance: &mut Chance, options: &Options, from_us: u64, until_us: u64) {
        let mut at = from_us + chance.between(2_000_000..8_000_000);
        while at < until_us {
            let fault = Fault::FreezeOwner(chance.below(u64::from(options.shards)) as u32);
            let lasts = fault.lasts(chance);
            self.add(at, fault, lasts);
            at += lasts + chance.between(1_000_000..5_000_000);
        }
    }

    pub fn in_order(mut self) -> Peekable<IntoIter<(u64, Fault, bool)>> {
        self.0.sort_by_key(|(at, _, begins)| (*at, *begins));
        self.0.into_iter().peekable()
    }
}
