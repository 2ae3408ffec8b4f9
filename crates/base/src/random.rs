//! Randomness.

use std::io;

/// The machine's random numbers.
pub struct SystemRandom;

impl SystemRandom {
    /// A number that nobody can guess.
    pub fn number(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Fills a buffer with bytes that nobody can guess.
    pub fn fill(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut rest = buffer;
        while !rest.is_empty() {
            // SAFETY: the pointer and the length are those of a slice that may be written.
            #[allow(unsafe_code)]
            let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            match usize::try_from(got) {
                Ok(got) => rest = &mut rest[got..],
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// What SplitMix64 adds to its state: 2^64 over the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers that follow from a seed: SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014).
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Begins with a seed; each gives other numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next of 2^64 numbers.
    pub fn next_number(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// 0..bound; 0 where the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_number() % bound.max(1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A number in which every bit depends on every bit of another: SplitMix64's first of that seed.
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.next_number(), random.next_number()], expected);
    }
}
