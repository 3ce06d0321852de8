//! Chance from a seed: the same numbers for ever, whatever happens to anybody else's generator.

use std::ops::Range;

/// A splitmix64 stream.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A stream of its own for each purpose, so that one that draws more does not change the others.
    pub fn of(seed: u64, purpose: &str) -> Self {
        let named = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ named);
        chance.draw();
        chance
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 for 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    pub fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True in so many of 1,000 cases.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1_000) < times
    }

    /// One of them; they must not be none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// A new stream that starts from this one.
    pub fn fork(&mut self) -> Self {
        Self(self.draw())
    }

    pub fn uuid(&mut self) -> uuid::Uuid {
        let (high, low) = (self.draw(), self.draw());
        uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change here would make every seed that was ever kept mean something else.
    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut chance = Chance::of(7, "net");
        let found: Vec<u64> = (0..4).map(|_| chance.below(1_000)).collect();
        let mut again = Chance::of(7, "net");
        assert_eq!(found, (0..4).map(|_| again.below(1_000)).collect::<Vec<_>>());
        assert_ne!(Chance::of(7, "net").draw(), Chance::of(7, "disk").draw());
        assert_ne!(Chance::of(7, "net").draw(), Chance::of(8, "net").draw());
    }
}
