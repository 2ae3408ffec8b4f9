//! Buffers that begin where a page does, as `O_DIRECT` demands.

use std::ops::{Deref, DerefMut};

/// What every disk and file system accepts for `O_DIRECT`.
pub const ALIGNMENT: usize = 4096;

/// Bytes whose first lies at a multiple of [`ALIGNMENT`].
pub struct AlignedBuffer {
    /// Longer than asked for, and never resized: so its bytes never move.
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// So many zeros.
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, length }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_wherever_it_is_moved() {
        for length in [1, 512, 4096, 100_000] {
            let buffer = AlignedBuffer::new(length);
            let moved = Box::new(buffer);
            assert_eq!(moved.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(moved.len(), length);
        }
    }
}
