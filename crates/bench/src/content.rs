//! What test files hold: bytes that nothing can compress, and of which no part is there twice.

use serde::{Deserialize, Serialize};
use strake_base::aligned::AlignedBuffer;
use strake_base::random::mixed;

/// Bytes that are made at once.
const WORD: usize = 8;
/// Most random bytes that records are cut from: as much as file systems compress together.
const POOL_BYTES_MAX: u64 = 1 << 20;
/// Where no file reaches.
const BEYOND: u64 = 1 << 63;
/// Of so many bytes that are not checked, the first word is theirs alone: no file system that keeps
/// equal parts once looks at shorter ones.
const PART: usize = 512;

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
    /// is read. Otherwise records are cut from a [`Pool`], and only the first word of each part is
    /// made anew: cheap enough to be inside the timing.
    pub checked: bool,
}

impl Content {
    /// Fills a buffer once, before the timing, with random bytes that no checked file holds anywhere;
    /// buffers of other offsets get others.
    pub fn prepare(&self, buffer: &mut [u8], offset: u64) {
        fill(buffer, self.key(), BEYOND + offset);
    }

    /// Of how many random bytes records are cut that have so many bytes together; 0 where each is
    /// made as a whole.
    pub fn pool(&self, all: u64) -> u64 {
        if self.checked { 0 } else { all.min(POOL_BYTES_MAX) }
    }

    /// Makes a prepared buffer hold the record at `offset`.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) {
        if self.checked {
            fill(buffer, self.key(), offset);
        } else {
            stamp(buffer, mixed(self.key() ^ mixed(offset)));
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

/// Random bytes that records are cut from, each at another place: copying them to where all would be
/// written from would take longer than many a file system takes to write them.
pub struct Pool {
    bytes: AlignedBuffer,
    /// Before which places records are cut.
    cuts: u64,
}

impl Pool {
    /// For records of at most `length` bytes and of `all` bytes together; `None` where each is made
    /// as a whole.
    pub fn new(content: &Content, length: usize, all: u64) -> Option<Pool> {
        let cuts = content.pool(all);
        // At most POOL_BYTES_MAX.
        let mut bytes = (cuts > 0).then(|| AlignedBuffer::new(cuts as usize + length))?;
        content.prepare(&mut bytes, 0);
        Some(Pool { bytes, cuts })
    }

    /// What to write at an offset. A multiple of a page is cut at one, as `O_DIRECT` demands.
    pub fn record(&mut self, content: &Content, offset: u64, length: usize) -> &[u8] {
        let at = (offset % self.cuts) as usize;
        let record = &mut self.bytes[at..at + length];
        content.fill(record, offset);
        record
    }
}

/// Writes a word of its own into each part of a buffer.
fn stamp(buffer: &mut [u8], first: u64) {
    for (number, part) in (0..).zip(buffer.chunks_mut(PART)) {
        let word = first.wrapping_add(number).to_le_bytes();
        match part.first_chunk_mut() {
            Some(head) => *head = word,
            None => part.copy_from_slice(&word[..part.len()]),
        }
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
    fn unchecked_records_are_cut_at_other_places_and_have_words_of_their_own() {
        let content = Content { checked: false, ..CHECKED };
        let mut pool = Pool::new(&content, 4096, 16 * 4096).unwrap();
        let mut parts = std::collections::BTreeSet::new();
        for at in 0..16 {
            let record = pool.record(&content, at * 4096, 4096);
            assert_eq!(record.as_ptr().align_offset(4096), 0);
            // Without the words, too: nothing is there twice that could be compressed.
            parts.extend(record.chunks(PART).map(|part| part[WORD..].to_vec()));
        }
        assert_eq!(parts.len(), 16 * 8);
        // Beyond the pool only the words differ.
        let first = pool.record(&content, 0, 4096).to_vec();
        let again = pool.record(&content, 16 * 4096, 4096);
        assert!(first.chunks(PART).zip(again.chunks(PART)).all(|(a, b)| a[..WORD] != b[..WORD]));
        assert_eq!(first[WORD..PART], again[WORD..PART]);
        assert!(Pool::new(&CHECKED, 4096, 4096).is_none());
    }
}
