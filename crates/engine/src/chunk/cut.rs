//! Taking away: truncate, punch, delete. None of them fails for lack of places: a block that is cut in
//! part goes to one of those kept back for that. A punch may make the map larger, and is refused when next to nothing is
//! left for that; one that other copies have made already, when nothing is.

use super::leaf::Block;
use super::map::{Chunk, Map};
use super::record::Edit;
use super::room::{FOR_LITTLE, Purpose};
use super::space::Places;
use super::write::check_range;
use super::{BLOCK_BYTES, ChunkError, ChunkStore, LEAF_BLOCKS, Result, crc};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Chunks looked up at a time to be deleted.
const DELETED_CHUNKS: usize = 1024;

/// What becomes of a damaged block that is cut in part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Nothing: the cut fails.
    Fails,
    /// It is lost, and what is left of it cannot be read before it is written.
    IsLost,
}

impl ChunkStore {
    /// Cuts a chunk to a length; one that is shorter stays as it is.
    pub fn truncate(&self, id: ChunkId, len: u64) -> Result<()> {
        self.check_poison()?;
        let Some(chunk) = self.chunk(id, false)? else { return Ok(()) };
        let _writer = chunk.writer.lock();
        let (old_len, end) = {
            let map = chunk.map.read();
            (map.len, map.end() * BLOCK_BYTES)
        };
        if len >= old_len.max(end) {
            return Ok(());
        }
        self.cut(&chunk, len..old_len.max(end), old_len.min(len), Damage::Fails)
    }

    /// Makes a chunk exactly so long, also one that is not there: what comes after is cut, what is
    /// new reads as zeros.
    pub fn set_len(&self, id: ChunkId, len: u64) -> Result<()> {
        self.resize(id, len, Damage::Fails)
    }

    /// The same; where damage is cut in part, what is left of the block is lost.
    pub fn set_len_or_lose(&self, id: ChunkId, len: u64) -> Result<()> {
        self.resize(id, len, Damage::IsLost)
    }

    fn resize(&self, id: ChunkId, len: u64, damage: Damage) -> Result<()> {
        check_range(id, 0, len)?;
        self.check_poison()?;
        let chunk = self.chunk_or_new(id)?;
        let _writer = chunk.writer.lock();
        let (exists, old_len, end) = {
            let map = chunk.map.read();
            (map.exists, map.len, map.end() * BLOCK_BYTES)
        };
        match exists {
            true if len == old_len => Ok(()),
            true if len < old_len => self.cut(&chunk, len..old_len.max(end), len, damage),
            _ => {
                self.check_map_room(FOR_LITTLE)?;
                self.commit(&chunk, &Edit::new(id, len), &[])
            }
        }
    }

    /// Makes a range read as zeros and frees its space. Does not change the chunk's length. Where next to nothing is left
    /// for the extent map, one that leaves a part of a MiB is refused ([`ChunkError::Full`]).
    pub fn punch(&self, id: ChunkId, offset: u64, len: u64) -> Result<()> {
        self.punch_for(id, offset, len, Purpose::New)
    }

    /// As [`ChunkStore::punch`], of what other copies have punched already: it is refused only where nothing is left.
    pub fn punch_copy(&self, id: ChunkId, offset: u64, len: u64) -> Result<()> {
        self.punch_for(id, offset, len, Purpose::Copy)
    }

    fn punch_for(&self, id: ChunkId, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.check_poison()?;
        let Some(chunk) = self.chunk(id, false)? else { return Ok(()) };
        let _writer = chunk.writer.lock();
        let (old_len, range, may_grow) = {
            let map = chunk.map.read();
            let range = within(&map, offset, len);
            let may_grow = leaves_pieces(&map, &range);
            (map.len, range, may_grow)
        };
        if range.is_empty() {
            return Ok(());
        }
        // What others have made takes the last of it: this copy leaves its group for what it refuses. With nothing left it does: for a
        // map that cannot be written the target would leave all of them.
        if may_grow && (purpose == Purpose::New || self.table.room.is_used_up()) {
            self.check_map_room(FOR_LITTLE)?;
        }
        self.cut(&chunk, range, old_len, Damage::Fails)
    }

    /// True if a punch there may leave the chunk in more runs than before: it makes the extent map larger.
    pub fn punch_leaves_pieces(&self, id: ChunkId, offset: u64, len: u64) -> Result<bool> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok(false) };
        let map = chunk.map.read();
        Ok(leaves_pieces(&map, &within(&map, offset, len)))
    }

    /// Makes a range zeros: whole blocks become holes.
    fn cut(
        &self,
        chunk: &Arc<Chunk>,
        range: Range<u64>,
        new_len: u64,
        damage: Damage,
    ) -> Result<()> {
        let mut edit = Edit::new(chunk.id, new_len);
        let mut taken = Vec::new();
        let outcome = self.build_cut(chunk, &range, damage, &mut edit, &mut taken);
        if let Err(error) = outcome {
            self.space.lock().untake(&taken);
            return Err(error);
        }
        self.commit(chunk, &edit, &taken)
    }

    fn build_cut(
        &self,
        chunk: &Arc<Chunk>,
        range: &Range<u64>,
        damage: Damage,
        edit: &mut Edit,
        taken: &mut Vec<Places>,
    ) -> Result<()> {
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let old = chunk.map.read().range(blocks.clone());
        for (nth, old) in blocks.zip(old) {
            let start = nth * BLOCK_BYTES;
            let from = range.start.max(start) - start;
            let to = range.end.min(start + BLOCK_BYTES) - start;
            if to - from == BLOCK_BYTES {
                if old != Block::Hole {
                    edit.push(nth, Block::Hole);
                }
            } else if matches!(old, Block::Data(..)) {
                let zeros = vec![0; (to - from) as usize];
                let (bytes, sum) = match self.changed(chunk.id, nth, old, from as usize, &zeros) {
                    Ok(bytes) => {
                        let sum = crc::of(&*bytes);
                        (bytes, sum)
                    }
                    // What is left of it is not known: an error, by a checksum that these bytes do not have.
                    Err(ChunkError::Corrupt { .. }) if damage == Damage::IsLost => {
                        (Box::new([0; BLOCK_BYTES as usize]), !*crc::ZERO_BLOCK)
                    }
                    Err(error) => return Err(error),
                };
                let sums = [sum];
                taken.extend(self.place(edit, nth, &[old], &[&bytes[..]], &sums, Purpose::Cut)?);
            }
        }
        Ok(())
    }

    /// Deletes a file's chunks with these indices. Each chunk goes all at once; after a crash some
    /// may be left, so whoever must be sure calls again.
    pub fn delete_range(
        &self,
        volume: VolumeId,
        ino: Ino,
        indices: RangeInclusive<ChunkIndex>,
    ) -> Result<()> {
        let (first, last) = indices.into_inner();
        let [first, last] = [first, last].map(|index| ChunkId { volume, ino, index });
        self.delete_between(first, last)
    }

    /// Deletes everything of a volume; as to crashes see [`ChunkStore::delete_range`].
    pub fn drop_volume(&self, volume: VolumeId) -> Result<()> {
        let first = ChunkId { volume, ino: Ino(0), index: ChunkIndex(0) };
        let last = ChunkId { volume, ino: Ino(u64::MAX), index: ChunkIndex(u64::MAX) };
        self.delete_between(first, last)
    }

    /// Of a file's chunks with these indices the first, and each `nth` behind it, ascending. Some may have been deleted.
    pub fn every_nth(
        &self,
        volume: VolumeId,
        ino: Ino,
        indices: RangeInclusive<ChunkIndex>,
        nth: usize,
    ) -> Result<Vec<ChunkIndex>> {
        let (first, last) = indices.into_inner();
        let [mut first, last] = [first, last].map(|index| ChunkId { volume, ino, index });
        let (mut found, nth) = (Vec::new(), nth.max(1));
        loop {
            let ids = self.ids_between(first, last, nth)?;
            let (Some(begin), Some(end)) = (ids.front(), ids.back()) else { return Ok(found) };
            found.push(begin.index);
            if ids.len() < nth || *end == last {
                return Ok(found);
            }
            first = after(*end);
        }
    }

    fn delete_between(&self, mut first: ChunkId, last: ChunkId) -> Result<()> {
        self.check_poison()?;
        loop {
            let ids = self.ids_between(first, last, DELETED_CHUNKS)?;
            let Some(next) = ids.back().copied() else { return Ok(()) };
            for id in ids {
                self.delete(id)?;
            }
            if next == last {
                return Ok(());
            }
            first = after(next);
        }
    }

    fn delete(&self, id: ChunkId) -> Result<()> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok(()) };
        let _writer = chunk.writer.lock();
        if !chunk.map.read().exists {
            return Ok(());
        }
        self.commit(&chunk, &Edit::removal(id), &[])
    }
}

/// The part of a range in which a chunk may hold something.
fn within(map: &Map, offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len).min(map.end() * BLOCK_BYTES)
}

/// True if a range holds anything, and something is left of the leaves in which it begins and ends when it is cut out: that may be in
/// more runs than before.
fn leaves_pieces(map: &Map, range: &Range<u64>) -> bool {
    let mut inside = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
    if range.is_empty() || inside.all(|nth| map.get(nth) == Block::Hole) {
        return false;
    }
    let begin = range.start / BLOCK_BYTES / LEAF_BLOCKS * LEAF_BLOCKS;
    let end = range.end.div_ceil(BLOCK_BYTES).next_multiple_of(LEAF_BLOCKS);
    let mut outside =
        (begin..range.start.div_ceil(BLOCK_BYTES)).chain(range.end / BLOCK_BYTES..end);
    outside.any(|nth| map.get(nth) != Block::Hole)
}

/// The next chunk in order; the last one has none and is its own.
pub(super) fn after(id: ChunkId) -> ChunkId {
    let ChunkId { volume, ino, index } = id;
    if let Some(next) = index.0.checked_add(1) {
        return ChunkId { volume, ino, index: ChunkIndex(next) };
    }
    match (ino.0.checked_add(1), volume.0.checked_add(1)) {
        (Some(ino), _) => ChunkId { volume, ino: Ino(ino), index: ChunkIndex(0) },
        (None, Some(volume)) => {
            ChunkId { volume: VolumeId(volume), ino: Ino(0), index: ChunkIndex(0) }
        }
        (None, None) => id,
    }
}
