//! What a chunk's bytes are, told by the checksums of its blocks: to find out where two copies differ.
//!
//! Nothing here depends on where blocks lie, or on how they came to be there. Bytes that differ with
//! checksums that do not are taken for the same, which happens by chance once in 2^32 blocks that differ.
//! A block of zeros that were written is one with a checksum here, other than a hole: the checksum of zeros
//! could be that of other bytes, and a copy that has none of a file's blocks yet must get them all.

use super::leaf::Block;
use super::{BLOCK_BYTES, crc};
use std::ops::Range;
use strake_types::limits::CHUNK_BYTES_MAX;

/// A chunk's length, and the checksums of its blocks that hold data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    len: u64,
    /// Number of the block within the chunk, ascending, and CRC32C of its bytes.
    blocks: Vec<(u32, u32)>,
}

/// Sums that no chunk can have, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checksums of a chunk's blocks: {0}")]
pub struct SumsError(&'static str);

/// What makes a copy of a chunk equal to another: its length is set first, then ranges are punched and
/// written, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The length that the copy gets.
    pub len: u64,
    /// Bytes that it gets. Ascending, whole blocks but at the end of the chunk.
    pub send: Vec<Range<u64>>,
    /// Bytes that become zeros. Ascending, whole blocks, the last of which may end after the chunk.
    pub punch: Vec<Range<u64>>,
}

impl BlockSums {
    /// Sums that somebody else has made: numbers of blocks, ascending and within the length, each with
    /// its CRC32C.
    pub fn new(len: u64, blocks: Vec<(u32, u32)>) -> Result<Self, SumsError> {
        if len > CHUNK_BYTES_MAX {
            return Err(SumsError("longer than a chunk can be"));
        }
        if !blocks.is_sorted_by(|(before, _), (after, _)| before < after) {
            return Err(SumsError("blocks out of order"));
        }
        let end = blocks.last().map_or(0, |(last, _)| u64::from(*last) + 1);
        if end > len.div_ceil(BLOCK_BYTES) {
            return Err(SumsError("blocks after the end"));
        }
        Ok(Self { len, blocks })
    }

    /// The sums of a chunk's blocks, from its first on.
    pub(super) fn of_chunk(len: u64, blocks: impl Iterator<Item = Block>) -> Self {
        let count = len.div_ceil(BLOCK_BYTES) as u32;
        let data = (0..count).zip(blocks).filter_map(|(nth, block)| match block {
            Block::Data(_, sum) => Some((nth, sum)),
            Block::Hole | Block::Reserved(_) => None,
        });
        Self { len, blocks: data.collect() }
    }

    /// End of the chunk's last stored byte.
    pub fn chunk_len(&self) -> u64 {
        self.len
    }

    /// The blocks that hold data, ascending: number within the chunk, and CRC32C.
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks
    }

    /// A hash of the chunk's length and contents, the same in all releases (docs/FORMATS.md). Holes,
    /// reserved blocks and blocks of zeros count alike.
    pub fn digest(&self) -> u64 {
        let mut message = self.len.to_le_bytes().to_vec();
        for (block, sum) in self.blocks.iter().filter(|(_, sum)| *sum != *crc::ZERO_BLOCK) {
            message.extend_from_slice(&block.to_le_bytes());
            message.extend_from_slice(&sum.to_le_bytes());
        }
        let hash = blake3::hash(&message);
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The sum of each of the first `count` blocks; `None`: it holds no data.
    fn table(&self, count: u64) -> Vec<Option<u32>> {
        let mut table = vec![None; count as usize];
        for (block, sum) in &self.blocks {
            if let Some(slot) = table.get_mut(*block as usize) {
                *slot = Some(*sum);
            }
        }
        table
    }
}

/// What makes a copy with the sums `theirs` equal to one with the sums `ours`. Blocks that are equal are
/// not touched.
pub fn difference(ours: &BlockSums, theirs: &BlockSums) -> Difference {
    let mut difference = Difference { len: ours.len, ..Difference::default() };
    // What theirs has beyond goes with its length.
    let count = ours.len.div_ceil(BLOCK_BYTES);
    let blocks = (0..).zip(ours.table(count)).zip(theirs.table(count));
    for ((block, ours), theirs) in blocks {
        let bytes = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        match (ours, theirs) {
            _ if ours == theirs => {}
            (Some(_), _) => {
                push(&mut difference.send, bytes.start..bytes.end.min(difference.len));
            }
            (None, _) => push(&mut difference.punch, bytes),
        }
    }
    difference
}

/// Appends a range, to the last one if it goes on there.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests;
