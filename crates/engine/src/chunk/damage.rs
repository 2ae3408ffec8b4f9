//! Damage: which blocks of a chunk cannot be read, and blocks whose contents are lost.

use super::leaf::Block;
use super::read::Wait;
use super::record::Edit;
use super::room::Purpose;
use super::{BLOCK_BYTES, ChunkError, ChunkStore, Result};
use std::ops::Range;
use strake_types::ChunkId;

/// Blocks read at a time.
const PIECE_BLOCKS: u64 = 256;

impl ChunkStore {
    /// Which of these blocks of a chunk the disk does not read, or do not match their checksums, ascending. Reads them all.
    pub fn damaged(&self, id: ChunkId, blocks: Range<u64>) -> Result<Vec<u32>> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut first = blocks.start;
        loop {
            let end = blocks.end.min(chunk.map.read().len.div_ceil(BLOCK_BYTES));
            if first >= end {
                return Ok(found);
            }
            let count = PIECE_BLOCKS.min(end - first);
            let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
            first = match self.read_or_find(&chunk, offset, len, Wait::Yes)? {
                Ok(_) => first + count,
                Err(block) => {
                    found.push(block as u32);
                    block + 1
                }
            };
        }
    }

    /// Says that the contents of some blocks, each with its CRC32C, are not to be had: whatever was
    /// there before is not, and reading them is an error until they are written. A block that has
    /// that checksum already stays as it is.
    pub fn lose(&self, id: ChunkId, blocks: &[(u32, u32)]) -> Result<()> {
        self.check_poison()?;
        let Some(chunk) = self.chunk(id, false)? else { return Ok(()) };
        let _writer = chunk.writer.lock();
        let zeros = [0; BLOCK_BYTES as usize];
        for &(block, sum) in blocks {
            let block = u64::from(block);
            let (len, old) = {
                let map = chunk.map.read();
                (map.len, map.get(block))
            };
            if block >= len.div_ceil(BLOCK_BYTES) {
                let (offset, len) = (block * BLOCK_BYTES, BLOCK_BYTES);
                return Err(ChunkError::OutOfRange { chunk: id, offset, len });
            }
            if matches!(old, Block::Data(_, kept) if kept == sum) {
                continue;
            }
            let mut edit = Edit::new(id, len);
            let taken = self.place(&mut edit, block, &[old], &[&zeros], &[sum], Purpose::Copy)?;
            self.commit(&chunk, &edit, &taken)?;
        }
        Ok(())
    }
}
