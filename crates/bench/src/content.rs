//! What test files hold: bytes that nothing can compress, and that say where they belong.

use serde::{Deserialize, Serialize};
use strake_base::random::mixed;

/// Bytes that are made at once.
const WORD: usize = 8;

/// What a file holds, or should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Differs from file to file; names and orders follow from it, too.
    pub seed: u64,
    /// Differs wherever a plan writes the same file again: in another run, repetition, cell or
    /// directory. It is 0 in a plan, and chosen when a step begins.
    pub salt: u64,
    /// Differs from one writing of a file to the next.
    pub generation: u64,
    /// True where every byte is a function of the fields above and its offset, and is compared when it
    /// is read. Otherwise records hold the same random bytes, and begin with their offset: cheap
    /// enough to be inside the timing.
    pub checked: bool,
}

impl Content {
    /// Fills a buffer once, before the timing.
    pub fn prepare(&self, buffer: &mut [u8]) {
        fill(buffer, self.key(), 0);
    }

    /// Makes a prepared buffer hold the record at `offset`.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) {
        if self.checked {
            fill(buffer, self.key(), offset);
        } else if let Some(head) = buffer.first_chunk_mut::<WORD>() {
            *head = offset.to_le_bytes();
        }
    }

    /// Where the bytes read from `offset` on first differ from what was written; `None` if nowhere,
    /// or if nobody looks.
    pub fn difference(&self, buffer: &[u8], offset: u64) -> Option<u64> {
        if !self.checked {
            return None;
        }
        let mut expected = [0; 4096];
        for (at, piece) in buffer.chunks(expected.len()).enumerate() {
            let from = offset + (at * expected.len()) as u64;
            let expected = &mut expected[..piece.len()];
            fill(expected, self.key(), from);
            if let Some(wrong) = (0..piece.len()).find(|&at| piece[at] != expected[at]) {
                return Some(from + wrong as u64);
            }
        }
        None
    }

    fn key(&self) -> u64 {
        mixed(self.seed ^ mixed(self.generation ^ mixed(self.salt)))
    }
}

/// Fills a buffer with what a file of this key holds from `offset` on.
fn fill(buffer: &mut [u8], key: u64, offset: u64) {
    let (mut word, skip) = (offset / WORD as u64, (offset % WORD as u64) as usize);
    let (head, rest) = buffer.split_at_mut(((WORD - skip) % WORD).min(buffer.len()));
    if !head.is_empty() {
        head.copy_from_slice(&word_at(key, word)[skip..skip + head.len()]);
        word += 1;
    }
    for piece in rest.chunks_mut(WORD) {
        piece.copy_from_slice(&word_at(key, word)[..piece.len()]);
        word += 1;
    }
}

fn word_at(key: u64, word: u64) -> [u8; WORD] {
    mixed(key.wrapping_add(word)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED: Content = Content { seed: 7, salt: 0, generation: 1, checked: true };

    #[test]
    fn a_byte_depends_on_its_offset_only_and_not_on_how_the_file_is_cut() {
        let mut whole = vec![0; 10_000];
        CHECKED.fill(&mut whole, 0);
        for (offset, length) in [(0, 1), (3, 2), (5, 4096), (4095, 5000), (9999, 1)] {
            let mut piece = vec![0; length];
            CHECKED.fill(&mut piece, offset as u64);
            assert_eq!(piece, whole[offset..offset + length], "{length} bytes at {offset}");
        }
    }

    #[test]
    fn one_flipped_bit_is_found_where_it_is() {
        let mut piece = vec![0; 9000];
        CHECKED.fill(&mut piece, 12_345);
        assert_eq!(CHECKED.difference(&piece, 12_345), None);
        piece[8191] ^= 0x10;
        assert_eq!(CHECKED.difference(&piece, 12_345), Some(12_345 + 8191));
    }

    #[test]
    fn other_seeds_salts_and_generations_are_other_bytes() {
        let mut piece = vec![0; 64];
        CHECKED.fill(&mut piece, 0);
        for other in [
            Content { seed: 8, ..CHECKED },
            Content { salt: 1, ..CHECKED },
            Content { generation: 2, ..CHECKED },
        ] {
            assert_eq!(other.difference(&piece, 0), Some(0));
        }
    }

    #[test]
    fn unchecked_records_differ_from_each_other() {
        let content = Content { checked: false, ..CHECKED };
        let mut record = vec![0; 32];
        content.prepare(&mut record);
        let before = record.clone();
        content.fill(&mut record, 4096);
        assert_eq!(record[..8], 4096u64.to_le_bytes());
        assert_eq!(record[8..], before[8..]);
    }
}
