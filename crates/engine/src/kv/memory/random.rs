//! Reproducible chance.

use strake_base::random::SplitMix64;

/// Draws that follow from a seed.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// True with the given probability; a probability of zero draws nothing.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0
            && ((self.0.next_number() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }
}
