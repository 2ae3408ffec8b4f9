//! Where the blocks of one chunk lie.
//!
//! In memory a chunk is a list of leaves of 256 blocks (1 MiB), a leaf a plain array with one entry
//! of 12 bytes per block: every operation is then an assignment to a range. That is 3 MiB per GiB
//! of chunks that are in use; the others rest in the table. Leaves are shared with readers and
//! with the checkpoint, and copied when they change under them.

use super::leaf::{Block, Leaf};
use super::record::{Edit, Kind};
use super::{BLOCK_BYTES, LEAF_BLOCKS};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strake_types::ChunkId;

/// Where the blocks of a chunk lie.
#[derive(Clone, Default)]
pub(super) struct Map {
    /// False: the chunk has been deleted, or nothing was ever written to it.
    pub(super) exists: bool,
    /// End of the last stored byte. Bytes of blocks beyond it are zeros.
    pub(super) len: u64,
    pub(super) leaves: Vec<Arc<Leaf>>,
    /// Bit i: leaf i has changed since the last checkpoint began.
    pub(super) dirty: u64,
    /// Bit i: leaf i is in the table, as of the last checkpoint that began.
    pub(super) stored: u64,
    /// Waits for the next checkpoint.
    pub(super) queued: bool,
}

impl Map {
    pub(super) fn get(&self, block: u64) -> Block {
        let leaf = self.leaves.get((block / LEAF_BLOCKS) as usize);
        leaf.map_or(Block::Hole, |leaf| leaf.get(block % LEAF_BLOCKS))
    }

    /// The blocks of a range.
    pub(super) fn range(&self, blocks: std::ops::Range<u64>) -> Vec<Block> {
        blocks.map(|block| self.get(block)).collect()
    }

    /// One past the last block that is not a hole.
    pub(super) fn end(&self) -> u64 {
        let leaf = self.leaves.iter().rposition(|leaf| !leaf.is_empty());
        leaf.map_or(0, |i| i as u64 * LEAF_BLOCKS + self.leaves[i].end())
    }

    /// All blocks up to [`Map::end`].
    pub(super) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        (0..self.end()).map(|block| self.get(block))
    }

    /// Bytes of disk that the chunk occupies.
    pub(super) fn occupied(&self) -> u64 {
        self.iter().filter(|b| b.place().is_some()).count() as u64 * BLOCK_BYTES
    }

    /// Ranges `(start, len)` that are reserved, ascending.
    pub(super) fn reserved(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let all = (0u64..).zip(self.iter());
        for (nth, _) in all.filter(|(_, block)| matches!(block, Block::Reserved(_))) {
            let start = nth * BLOCK_BYTES;
            match ranges.last_mut() {
                Some((first, len)) if *first + *len == start => *len += BLOCK_BYTES,
                _ => ranges.push((start, BLOCK_BYTES)),
            }
        }
        ranges
    }

    /// Bytes of memory, about.
    pub(super) fn weight(&self) -> u64 {
        let leaves: u64 = self.leaves.iter().map(|leaf| leaf.weight()).sum();
        256 + leaves
    }

    /// How many leaves an edit changes, at most, that have not changed since the last checkpoint began.
    pub(super) fn newly_dirty(&self, edit: &Edit) -> u64 {
        let leaves = if edit.remove { self.stored } else { edit.leaves() };
        u64::from((leaves & !self.dirty).count_ones())
    }

    /// Carries out an edit; says which places it takes and which it gives up.
    pub(super) fn apply(&mut self, edit: &Edit, taken: &mut Vec<u64>, given_up: &mut Vec<u64>) {
        if edit.remove {
            given_up.extend(self.iter().filter_map(Block::place));
            // Not those that never were in the table: what is written there next is counted.
            self.dirty |= self.stored;
            (self.exists, self.len) = (false, 0);
            self.leaves.clear();
            return;
        }
        self.exists = true;
        self.len = edit.len;
        // Leaf 0 carries the length.
        self.dirty |= 1;
        let mut crcs = edit.crcs.iter().copied();
        for run in &edit.runs {
            for nth in 0..u64::from(run.count) {
                let new = match run.kind {
                    Kind::Hole => Block::Hole,
                    Kind::Reserved => Block::Reserved(run.at + nth),
                    Kind::Data => Block::Data(run.at + nth, crcs.next().unwrap_or_default()),
                };
                let old = self.replace(u64::from(run.first) + nth, new);
                if old.place() != new.place() {
                    given_up.extend(old.place());
                    taken.extend(new.place());
                }
            }
        }
        for leaf in self.leaves.iter_mut().filter_map(Arc::get_mut) {
            leaf.trim();
        }
        while self.leaves.last().is_some_and(|leaf| leaf.is_empty()) {
            self.leaves.pop();
        }
    }

    /// Sets one block and returns what it was.
    pub(super) fn replace(&mut self, block: u64, new: Block) -> Block {
        let index = (block / LEAF_BLOCKS) as usize;
        if index >= self.leaves.len() {
            if new == Block::Hole {
                return Block::Hole;
            }
            self.leaves.resize_with(index + 1, Arc::default);
        }
        let old = self.leaves[index].get(block % LEAF_BLOCKS);
        if old != new {
            Arc::make_mut(&mut self.leaves[index]).set(block % LEAF_BLOCKS, new);
            self.dirty |= 1 << index;
        }
        old
    }
}

/// A chunk whose map is in memory.
pub(super) struct Chunk {
    pub(super) id: ChunkId,
    /// Held by whoever changes the chunk, from reading what is there to the acknowledgement.
    pub(super) writer: Mutex<()>,
    /// Held for moments only, never while waiting for a disk.
    pub(super) map: RwLock<Map>,
    /// Used since the cache last looked for something to drop.
    pub(super) touched: AtomicBool,
}

impl Chunk {
    pub(super) fn new(id: ChunkId, map: Map) -> Arc<Self> {
        let (writer, map) = (Mutex::new(()), RwLock::new(map));
        Arc::new(Self { id, writer, map, touched: AtomicBool::new(true) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::{ChunkIndex, Ino, VolumeId};

    /// All leaves of a chunk that was deleted counted as changed: what was then written there counted nothing, and no room for it was
    /// kept back for the map.
    #[test]
    fn a_chunk_that_is_deleted_and_written_again_counts_all_of_its_leaves() {
        let id = ChunkId { volume: VolumeId(1), ino: Ino(1), index: ChunkIndex(0) };
        let mut map = Map::default();
        let mut change = |edit: &Edit| {
            let counted = map.newly_dirty(edit);
            map.apply(edit, &mut Vec::new(), &mut Vec::new());
            counted
        };
        let mut small = Edit::new(id, BLOCK_BYTES);
        small.push(0, Block::Reserved(0));
        assert_eq!(change(&small), 1);
        let mut large = Edit::new(id, 64 * LEAF_BLOCKS * BLOCK_BYTES);
        (0..64).for_each(|leaf| large.push(leaf * LEAF_BLOCKS, Block::Reserved(1 + leaf)));
        let counted = change(&Edit::removal(id)) + change(&large);
        assert_eq!(counted, 63, "the first counts already");
    }
}
