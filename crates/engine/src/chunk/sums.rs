//! What a chunk's bytes are, told by the checksums of its blocks: to find out where two copies differ.
//!
//! Nothing here depends on where blocks lie, or on how they came to be there. Bytes that differ with
//! checksums that do not are taken for the same, which happens by chance once in 2^32 blocks that differ.
//! A block of zeros that were written is one with a checksum here, other than a hole: the checksum of zeros
//! could be that of other bytes, and a copy that has none of a file's blocks yet must get them all.
//!
//! Which blocks are reserved is no part of the bytes, and is compared by itself: copies of earlier releases do not
//! say it.

use super::leaf::Block;
use super::{BLOCK_BYTES, crc};
use std::collections::BTreeSet;
use std::ops::Range;
use strake_types::limits::CHUNK_BYTES_MAX;

/// A chunk's length, the checksums of its blocks that hold data, and which blocks are reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    len: u64,
    /// Number of the block within the chunk, ascending, and CRC32C of its bytes.
    blocks: Vec<(u32, u32)>,
    /// Numbers of the blocks that are reserved, ascending, also behind the length; `None`: it is not known.
    reserved: Option<Vec<u32>>,
}

/// Sums that no chunk can have, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checksums of a chunk's blocks: {0}")]
pub struct SumsError(&'static str);

/// What makes a copy of a chunk equal to another: its length is set first, then ranges are punched,
/// released and written, in any order, and at last reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The length that the copy gets.
    pub len: u64,
    /// Bytes that it gets. Ascending, whole blocks but at the end of the chunk.
    pub send: Vec<Range<u64>>,
    /// Bytes that become zeros. Ascending, whole blocks, the last of which may end after the chunk.
    pub punch: Vec<Range<u64>>,
    /// Whole blocks that are reserved there and not here, and hold nothing: to be punched. Ascending.
    pub release: Vec<Range<u64>>,
    /// Whole blocks that are reserved here and not there, also behind the length. Ascending. A range goes on over blocks
    /// that hold data: these it leaves as they are, once they are sent.
    pub reserve: Vec<Range<u64>>,
}

impl BlockSums {
    /// Sums that somebody else has made: numbers of blocks, ascending and within the length, each with
    /// its CRC32C; and numbers of blocks that are reserved, ascending, if that is known.
    pub fn new(
        len: u64,
        blocks: Vec<(u32, u32)>,
        reserved: Option<Vec<u32>>,
    ) -> Result<Self, SumsError> {
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
        if let Some(reserved) = &reserved {
            if !reserved.is_sorted_by(|before, after| before < after) {
                return Err(SumsError("reserved blocks out of order"));
            }
            let end = reserved.last().map_or(0, |last| u64::from(*last) + 1);
            if end > CHUNK_BYTES_MAX / BLOCK_BYTES {
                return Err(SumsError("reserved blocks where no chunk has any"));
            }
        }
        Ok(Self { len, blocks, reserved })
    }

    /// Those of a chunk that was made a moment ago: there is nothing in it, and nothing is reserved.
    pub fn empty() -> Self {
        Self { reserved: Some(Vec::new()), ..Self::default() }
    }

    /// The sums of a chunk's blocks, from its first on.
    pub(super) fn of_chunk(len: u64, all: impl Iterator<Item = Block>) -> Self {
        let count = len.div_ceil(BLOCK_BYTES) as u32;
        let (mut blocks, mut reserved) = (Vec::new(), Vec::new());
        for (nth, block) in (0..).zip(all) {
            match block {
                Block::Data(_, sum) if nth < count => blocks.push((nth, sum)),
                Block::Reserved(_) => reserved.push(nth),
                Block::Data(..) | Block::Hole => {}
            }
        }
        Self { len, blocks, reserved: Some(reserved) }
    }

    /// End of the chunk's last stored byte.
    pub fn chunk_len(&self) -> u64 {
        self.len
    }

    /// The blocks that hold data, ascending: number within the chunk, and CRC32C.
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks
    }

    /// The blocks that are reserved, ascending: numbers within the chunk. `None`: it is not known.
    pub fn reserved(&self) -> Option<&[u32]> {
        self.reserved.as_deref()
    }

    /// A hash of which blocks are reserved, the same in all releases (docs/FORMATS.md); 0: none, as far as is known.
    pub fn reserved_digest(&self) -> u64 {
        let blocks = self.reserved().unwrap_or_default();
        if blocks.is_empty() {
            return 0;
        }
        hash(&blocks.iter().flat_map(|block| block.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// A hash of the chunk's length and contents, the same in all releases (docs/FORMATS.md). Holes,
    /// reserved blocks and blocks of zeros count alike.
    pub fn digest(&self) -> u64 {
        let mut message = self.len.to_le_bytes().to_vec();
        for (block, sum) in self.blocks.iter().filter(|(_, sum)| *sum != *crc::ZERO_BLOCK) {
            message.extend_from_slice(&block.to_le_bytes());
            message.extend_from_slice(&sum.to_le_bytes());
        }
        hash(&message)
    }

    /// Those of the blocks that these ranges of bytes touch, which ascend; as if the chunk were so long, which is not less
    /// than they need.
    pub fn within(&self, ranges: &[Range<u64>], len: u64) -> Self {
        let touched = |block: u32| {
            let start = u64::from(block) * BLOCK_BYTES;
            let next = ranges.partition_point(|range| range.end <= start);
            ranges.get(next).is_some_and(|range| range.start < start + BLOCK_BYTES)
        };
        let blocks = self.blocks.iter().copied().filter(|(block, _)| touched(*block)).collect();
        let reserved = self.reserved.as_ref().map(|blocks| {
            blocks.iter().copied().filter(|block| touched(*block)).collect::<Vec<u32>>()
        });
        Self { len, blocks, reserved }
    }

    /// True if a block holds data.
    fn has(&self, block: u32) -> bool {
        self.blocks.binary_search_by_key(&block, |(nth, _)| *nth).is_ok()
    }

    /// True if all whole blocks of a range hold data; of none, too.
    fn has_all(&self, bytes: Range<u64>) -> bool {
        let at = |end: u64| {
            self.blocks.partition_point(|(block, _)| u64::from(*block) * BLOCK_BYTES < end)
        };
        (at(bytes.end) - at(bytes.start)) as u64 == (bytes.end - bytes.start) / BLOCK_BYTES
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
    add_reserved(&mut difference, ours, theirs);
    difference
}

/// Adds what makes the same blocks reserved, if both say which are.
fn add_reserved(difference: &mut Difference, ours: &BlockSums, theirs: &BlockSums) {
    let (Some(wanted), Some(known)) = (ours.reserved(), theirs.reserved()) else { return };
    // A cut takes what is reserved behind it.
    let kept = match theirs.len > ours.len {
        true => ours.len.div_ceil(BLOCK_BYTES),
        false => u64::MAX,
    };
    let known = known.iter().copied().filter(|block| u64::from(*block) < kept);
    let known: BTreeSet<u32> = known.collect();
    let wanted: BTreeSet<u32> = wanted.iter().copied().collect();
    let bytes = |block: u32| {
        let start = u64::from(block) * BLOCK_BYTES;
        start..start + BLOCK_BYTES
    };
    // What is to be written there is written to what is reserved for it.
    for &block in known.difference(&wanted).filter(|block| !ours.has(**block)) {
        push(&mut difference.release, bytes(block));
    }
    for &block in wanted.difference(&known) {
        let bytes = bytes(block);
        match difference.reserve.last_mut() {
            // Room that is set aside in many places costs few calls.
            Some(last) if ours.has_all(last.end..bytes.start) => last.end = bytes.end,
            _ => difference.reserve.push(bytes),
        }
    }
}

/// The first 8 bytes of the BLAKE3 hash.
fn hash(message: &[u8]) -> u64 {
    let hash = blake3::hash(message);
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
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
