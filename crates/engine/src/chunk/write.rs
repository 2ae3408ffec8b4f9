//! Writes: new bytes go to free places, then the edit that names them is committed.
//!
//! What is on disk is never overwritten. A block that is changed in part is read, checked, changed
//! and written to a new place.

use super::leaf::Block;
use super::map::Chunk;
use super::record::Edit;
use super::room::{FOR_GROWTH, FOR_LITTLE, FOR_PROMISED, Purpose};
use super::space::{Places, each_place, push_places};
use super::{BLOCK_BYTES, ChunkError, ChunkStore, Result, crc};
use bytes::Bytes;
use std::sync::Arc;
use strake_types::ChunkId;
use strake_types::limits::CHUNK_BYTES_MAX;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Contents of one block.
type BlockBytes = Box<[u8; BLOCK]>;

/// How a range of bytes falls on blocks: at most one block in part at each end.
struct Cut<'a> {
    /// First block touched.
    first: u64,
    /// Bytes of the first block before the range; the head is `data[..head.len()]` if not whole.
    skip: usize,
    head: &'a [u8],
    middle: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Cut<'a> {
    fn new(offset: u64, data: &'a [u8]) -> Self {
        let skip = (offset % BLOCK_BYTES) as usize;
        let head_len = if skip == 0 { 0 } else { (BLOCK - skip).min(data.len()) };
        let (head, rest) = data.split_at(head_len);
        let (middle, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
        Self { first: offset / BLOCK_BYTES, skip, head, middle, tail }
    }

    /// CRC of each whole block, and of everything.
    fn sums(&self) -> (Vec<u32>, u32) {
        let mut whole = crc::of(self.head);
        let sums: Vec<u32> = self.middle.chunks_exact(BLOCK).map(crc::of).collect();
        for sum in &sums {
            whole = crc::append_block(whole, *sum);
        }
        let whole = match self.tail {
            [] => whole,
            tail => crc::append(whole, crc::of(tail), tail.len() as u64),
        };
        (sums, whole)
    }

    fn blocks(&self) -> u64 {
        let ends = u64::from(!self.head.is_empty()) + u64::from(!self.tail.is_empty());
        ends + (self.middle.len() / BLOCK) as u64
    }
}

impl ChunkStore {
    /// Stores bytes. `sum` is the CRC32C of `data`; a mismatch is refused.
    pub fn write(&self, id: ChunkId, offset: u64, data: &Bytes, sum: u32) -> Result<()> {
        self.write_for(id, offset, data, sum, Purpose::New)
    }

    /// As [`ChunkStore::write`], of what other copies have already: it is made also where little is left for the extent map.
    pub fn write_copy(&self, id: ChunkId, offset: u64, data: &Bytes, sum: u32) -> Result<()> {
        self.write_for(id, offset, data, sum, Purpose::Copy)
    }

    fn write_for(
        &self,
        id: ChunkId,
        offset: u64,
        data: &Bytes,
        sum: u32,
        purpose: Purpose,
    ) -> Result<()> {
        check_range(id, offset, data.len() as u64)?;
        let cut = Cut::new(offset, data);
        let (sums, whole) = cut.sums();
        if whole != sum {
            return Err(ChunkError::BadPayload { chunk: id, offset });
        }
        if data.is_empty() {
            return Ok(());
        }
        self.check_poison()?;
        let chunk = self.chunk_or_new(id)?;
        let _writer = chunk.writer.lock();
        self.write_cut(&chunk, offset + data.len() as u64, &cut, sums, purpose)
    }

    /// Writes to a chunk whose writer lock the caller holds; for the target's own copies.
    pub(super) fn write_locked(&self, chunk: &Arc<Chunk>, offset: u64, data: &[u8]) -> Result<()> {
        let cut = Cut::new(offset, data);
        let (sums, _) = cut.sums();
        self.write_cut(chunk, offset + data.len() as u64, &cut, sums, Purpose::New)
    }

    fn write_cut(
        &self,
        chunk: &Arc<Chunk>,
        end: u64,
        cut: &Cut<'_>,
        sums: Vec<u32>,
        purpose: Purpose,
    ) -> Result<()> {
        let blocks = cut.first..cut.first + cut.blocks();
        let (len, old) = {
            let map = chunk.map.read();
            (map.len, map.range(blocks.clone()))
        };
        let (mut head, mut tail) = (None, None);
        let mut all_sums = Vec::with_capacity(old.len());
        if !cut.head.is_empty() {
            let bytes = self.changed(chunk.id, cut.first, old[0], cut.skip, cut.head)?;
            all_sums.push(crc::of(&*bytes));
            head = Some(bytes);
        }
        all_sums.extend(sums);
        if !cut.tail.is_empty() {
            // After the chunk's end there are zeros: what is overwritten to there need not be read,
            // and may be damaged.
            let known = if end >= len { Block::Hole } else { old[old.len() - 1] };
            let bytes = self.changed(chunk.id, blocks.end - 1, known, 0, cut.tail)?;
            all_sums.push(crc::of(&*bytes));
            tail = Some(bytes);
        }
        let parts = [
            head.as_ref().map_or(&[][..], |bytes| &bytes[..]),
            cut.middle,
            tail.as_ref().map_or(&[][..], |bytes| &bytes[..]),
        ];
        let mut edit = Edit::new(chunk.id, len.max(end));
        let taken = self.place(&mut edit, cut.first, &old, &parts, &all_sums, purpose)?;
        self.commit(chunk, &edit, &taken)
    }

    /// A block, read and checked, with some of its bytes replaced.
    pub(super) fn changed(
        &self,
        chunk: ChunkId,
        nth: u64,
        old: Block,
        skip: usize,
        new: &[u8],
    ) -> Result<BlockBytes> {
        let mut bytes = self.read_block(chunk, nth, old)?;
        bytes[skip..skip + new.len()].copy_from_slice(new);
        Ok(bytes)
    }

    /// Writes whole blocks (all of `parts` in a row) to free places, or to those reserved for them,
    /// and adds them to `edit`. Returns the places taken.
    pub(super) fn place(
        &self,
        edit: &mut Edit,
        first: u64,
        old: &[Block],
        parts: &[&[u8]],
        sums: &[u32],
        purpose: Purpose,
    ) -> Result<Vec<Places>> {
        let reserved = old.iter().filter(|block| matches!(block, Block::Reserved(_))).count();
        match purpose {
            Purpose::New if reserved < old.len() => self.check_map_room(FOR_GROWTH)?,
            Purpose::New => self.check_map_room(FOR_PROMISED)?,
            Purpose::Copy => self.check_map_room(FOR_LITTLE)?,
            Purpose::Cut => {}
        }
        let taken = self.take((old.len() - reserved) as u64, purpose == Purpose::Cut)?;
        let places = if reserved == 0 { taken.clone() } else { merge(old, &taken) };
        if let Err(error) = self.write_parts(&places, parts) {
            self.space.lock().untake(&taken);
            return Err(self.write_failed(&error));
        }
        for ((block, at), sum) in (first..).zip(each_place(&places)).zip(sums) {
            edit.push(block, Block::Data(at, *sum));
        }
        Ok(taken)
    }

    /// Writes the concatenation of `parts` to runs of places.
    fn write_parts(&self, places: &[Places], parts: &[&[u8]]) -> std::io::Result<()> {
        let mut parts = parts.iter().copied().filter(|part| !part.is_empty());
        let mut part: &[u8] = &[];
        for &(at, count) in places {
            let (mut done, len) = (0, count as usize * BLOCK);
            while done < len {
                if part.is_empty() {
                    part = parts.next().unwrap_or_default();
                }
                let (now, rest) = part.split_at(part.len().min(len - done));
                if now.is_empty() {
                    return Ok(());
                }
                self.data.write(now, at, done as u64)?;
                (part, done) = (rest, done + now.len());
            }
        }
        Ok(())
    }

    /// True if [`ChunkStore::write`] there needs free room: not all of it is reserved. What was written
    /// once is no longer reserved, for a change goes to new places.
    pub fn write_takes_room(&self, id: ChunkId, offset: u64, len: u64) -> Result<bool> {
        check_range(id, offset, len)?;
        let mut blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let Some(chunk) = self.chunk(id, false)? else { return Ok(!blocks.is_empty()) };
        let map = chunk.map.read();
        Ok(blocks.any(|nth| !matches!(map.get(nth), Block::Reserved(_))))
    }

    /// Bytes of free room that [`ChunkStore::allocate`] there needs: of whole blocks.
    pub fn allocate_takes(&self, id: ChunkId, offset: u64, len: u64) -> Result<u64> {
        check_range(id, offset, len)?;
        let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let holes = match self.chunk(id, false)? {
            Some(chunk) => {
                let map = chunk.map.read();
                blocks.filter(|nth| map.get(*nth) == Block::Hole).count()
            }
            None => blocks.count(),
        };
        Ok(holes as u64 * BLOCK_BYTES)
    }

    /// Makes a chunk that is not there, with nothing in it; another stays as it is.
    pub fn touch(&self, id: ChunkId) -> Result<()> {
        self.check_poison()?;
        let chunk = self.chunk_or_new(id)?;
        let _writer = chunk.writer.lock();
        if chunk.map.read().exists {
            return Ok(());
        }
        self.check_map_room(FOR_LITTLE)?;
        self.commit(&chunk, &Edit::new(id, 0), &[])
    }

    /// Reserves space for a range, so that writing there once cannot fail for lack of room. Does not
    /// change the chunk's length.
    pub fn allocate(&self, id: ChunkId, offset: u64, len: u64) -> Result<()> {
        check_range(id, offset, len)?;
        self.check_poison()?;
        if len == 0 {
            return Ok(());
        }
        let chunk = self.chunk_or_new(id)?;
        let _writer = chunk.writer.lock();
        let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let (mut edit, holes) = {
            let map = chunk.map.read();
            let holes = blocks.filter(|b| map.get(*b) == Block::Hole).collect::<Vec<_>>();
            (Edit::new(id, map.len), holes)
        };
        if holes.is_empty() {
            return Ok(());
        }
        self.check_map_room(FOR_GROWTH)?;
        let taken = self.take(holes.len() as u64, false)?;
        for (block, at) in holes.into_iter().zip(each_place(&taken)) {
            edit.push(block, Block::Reserved(at));
        }
        self.commit(&chunk, &edit, &taken)
    }
}

/// Where the blocks go: reserved ones to their places, the others in order to those taken.
fn merge(old: &[Block], taken: &[Places]) -> Vec<Places> {
    let mut free = each_place(taken);
    let mut places = Vec::new();
    for block in old {
        let at = match block {
            Block::Reserved(at) => Some(*at),
            _ => free.next(),
        };
        if let Some(at) = at {
            push_places(&mut places, at, 1);
        }
    }
    places
}

/// Refuses what no chunk can hold.
pub(super) fn check_range(chunk: ChunkId, offset: u64, len: u64) -> Result<()> {
    if offset.checked_add(len).is_none_or(|end| end > CHUNK_BYTES_MAX) {
        return Err(ChunkError::OutOfRange { chunk, offset, len });
    }
    Ok(())
}
