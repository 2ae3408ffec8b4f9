//! Inputs made of others by the kinds of damage that break decoders.

/// Numbers at the edges of what lengths and counts can be.
const EDGES: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];
/// Longest input made.
const BYTES_MAX: usize = 16 << 10;

/// Mutations of one input, the same for the same seed.
pub struct Mutations<'a> {
    input: &'a [u8],
    /// Another input, to take parts from.
    other: &'a [u8],
    /// State of splitmix64.
    state: u64,
}

impl<'a> Mutations<'a> {
    /// Mutations of `input`, some with parts of `other`.
    pub fn new(input: &'a [u8], other: &'a [u8], seed: u64) -> Self {
        Self { input, other, state: seed }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    /// A range within so many bytes, most often a short one.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let from = self.below(len);
        let most = if self.random().is_multiple_of(4) { len } else { 16 };
        let to = len.min(from + self.below(most) + 1);
        from..to
    }

    /// One piece of damage. The first byte, which chooses the form, stays.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = bytes.len().min(1 + self.below(bytes.len().saturating_sub(1)));
        match self.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.random() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, self.random() as u8),
            4 => {
                let number = EDGES[self.below(EDGES.len())].to_le_bytes();
                let width = (1 << self.below(4)).min(bytes.len() - at);
                bytes[at..][..width].copy_from_slice(&number[..width]);
            }
            5 if at < bytes.len() => {
                let range = self.range(bytes.len() - at);
                bytes.drain(at + range.start..at + range.end);
            }
            6 if at < bytes.len() => {
                let range = self.range(bytes.len() - at);
                let part = bytes[at..][range].to_vec();
                let to = at + self.below(bytes.len() - at);
                bytes.splice(to..to, part);
            }
            _ if !self.other.is_empty() => {
                let part = self.other[self.range(self.other.len())].to_vec();
                bytes.truncate(at);
                bytes.extend(part);
            }
            _ => {}
        }
        bytes.truncate(BYTES_MAX);
    }
}

impl Iterator for Mutations<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut bytes = self.input.to_vec();
        // Most often once: what is damaged in many places is refused for the first of them.
        for _ in 0..=self.below(4) * self.below(2) {
            self.damage(&mut bytes);
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn mutations_differ_among_each_other_and_not_between_runs() {
        let make = || Mutations::new(b"\x05some input", b"another", 7).take(200);
        let different: HashSet<_> = make().collect();
        assert!(different.len() > 150, "{}", different.len());
        assert!(different.iter().all(|input| input.is_empty() || input[0] == 5));
        assert!(make().eq(make()));
        // What is too short to be damaged stays short and does no harm.
        assert_eq!(Mutations::new(b"", b"", 1).take(100).filter(|i| i.len() > 8).count(), 0);
    }
}
