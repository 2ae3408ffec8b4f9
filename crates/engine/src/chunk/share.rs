//! Clones: two chunks name the same places. A place is free when nobody names it any more.

use super::leaf::Block;
use super::map::Chunk;
use super::read::Wait;
use super::record::Edit;
use super::room::{FOR_GROWTH, FOR_PROMISED};
use super::write::check_range;
use super::{BLOCK_BYTES, ChunkStore, Result};
use std::ops::Range;
use std::sync::Arc;
use strake_types::ChunkId;

impl ChunkStore {
    /// Makes a range of one chunk the same as a range of another. Where both begin at the same place
    /// within a block the whole blocks between are shared, else the bytes are copied. Past the end
    /// of the source there are zeros. After a crash, the bytes of the two partial blocks at the ends
    /// may be old where those between are new.
    pub fn clone_range(
        &self,
        from: ChunkId,
        from_offset: u64,
        to: ChunkId,
        to_offset: u64,
        len: u64,
    ) -> Result<()> {
        check_range(from, from_offset, len)?;
        check_range(to, to_offset, len)?;
        self.check_poison()?;
        if len == 0 || (from == to && from_offset == to_offset) {
            return Ok(());
        }
        let (source, target) = (self.chunk_or_new(from)?, self.chunk_or_new(to)?);
        // In the order of their names, so that two clones never wait for each other.
        let (first, second) = if from < to { (&source, &target) } else { (&target, &source) };
        let _first = first.writer.lock();
        let _second = (from != to).then(|| second.writer.lock());

        let whole = whole_blocks(to_offset, len);
        if from_offset % BLOCK_BYTES != to_offset % BLOCK_BYTES || whole.is_empty() || from == to {
            return self.copy(&source, from_offset, &target, to_offset, len);
        }
        let head = whole.start * BLOCK_BYTES - to_offset;
        let tail = to_offset + len - whole.end * BLOCK_BYTES;
        self.copy(&source, from_offset, &target, to_offset, head)?;
        self.share(&source, (from_offset + head) / BLOCK_BYTES, &target, whole)?;
        self.copy(&source, from_offset + len - tail, &target, to_offset + len - tail, tail)
    }

    /// Copies bytes; both writer locks are held.
    fn copy(
        &self,
        source: &Arc<Chunk>,
        from_offset: u64,
        target: &Arc<Chunk>,
        to_offset: u64,
        len: u64,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let read = self.read_chunk(source, from_offset, len, Wait::Yes)?;
        let (bytes, _) = read.unwrap_or_default();
        if bytes.len() as u64 == len {
            return self.write_locked(target, to_offset, &bytes);
        }
        let mut padded = bytes.to_vec();
        padded.resize(len as usize, 0);
        self.write_locked(target, to_offset, &padded)
    }

    /// Makes whole blocks of the target name the places of the source's.
    fn share(
        &self,
        source: &Arc<Chunk>,
        first: u64,
        target: &Arc<Chunk>,
        blocks: Range<u64>,
    ) -> Result<()> {
        let shared = source.map.read().range(first..first + (blocks.end - blocks.start));
        let (mut edit, old, grows) = {
            let map = target.map.read();
            let edit = Edit::new(target.id, map.len.max(blocks.end * BLOCK_BYTES));
            let grows = !map.exists || edit.len > map.len;
            (edit, map.range(blocks.clone()), grows)
        };
        let mut places = Vec::new();
        for ((nth, block), old) in blocks.zip(shared).zip(old) {
            match block {
                // Cloned before.
                Block::Data(..) | Block::Hole if block == old => {}
                Block::Data(at, _) => {
                    places.push(at);
                    edit.push(nth, block);
                }
                // A reserved place is written to in place, so it has one owner only.
                Block::Hole | Block::Reserved(_) => edit.push(nth, Block::Hole),
            }
        }
        if edit.runs.is_empty() && !grows {
            return Ok(());
        }
        if places.is_empty() {
            // Holes take no places, but they may make the chunk, or leave what is there in more runs.
            self.check_map_room(FOR_PROMISED)?;
        } else {
            self.check_map_room(FOR_GROWTH)?;
            let mut space = self.space.lock();
            places.iter().for_each(|at| space.share(*at));
        }
        let outcome = self.commit(target, &edit, &[]);
        if outcome.is_err() {
            let mut space = self.space.lock();
            places.iter().for_each(|at| space.give_up(*at));
        }
        outcome
    }
}

/// The blocks that lie whole within a range of bytes.
fn whole_blocks(offset: u64, len: u64) -> Range<u64> {
    let first = offset.div_ceil(BLOCK_BYTES);
    first..((offset + len) / BLOCK_BYTES).max(first)
}
