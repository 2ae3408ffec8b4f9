//! Reads: blocks are found in the map, read without a lock, and checked.
//!
//! A place can be given up and filled anew while it is being read. Then its checksum does not match,
//! but the map does not name it any more either: the read begins again. A mismatch of a block that
//! the map still names is damage.

use super::data::{Data, is_unreadable};
use super::leaf::Block;
use super::map::Chunk;
use super::{BLOCK_BYTES, ChunkError, ChunkStat, ChunkStore, Result, SEGMENT_BLOCKS, crc};
use bytes::Bytes;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::clock::machine_time;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// After so long a block that is not read is told of in any case.
const UNREAD_PAUSE: Duration = Duration::from_secs(3_600);

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    No,
}

/// Bytes and their CRC32C; `None`: the disk would have to be waited for.
type Read = Option<(Bytes, u32)>;

/// Blocks that the disk did not read, as they are told of.
#[derive(Default)]
pub struct Unread {
    times: u64,
    /// When that was told last.
    told: Duration,
}

impl Unread {
    /// Counts one. How many there were, if that is to be told: ever more seldom, for of a disk that fails they may be all, and
    /// where nothing was told for long, for it may be another block.
    fn count(&mut self, now: Duration) -> Option<u64> {
        self.times += 1;
        let is_told = self.times.is_power_of_two() || now.saturating_sub(self.told) >= UNREAD_PAUSE;
        is_told.then(|| {
            self.told = now;
            self.times
        })
    }
}

/// What became of an attempt to read.
enum Attempt {
    /// The bytes are there; the CRC32C of those asked for.
    Done(u32),
    /// The disk would have to be waited for.
    WouldWait,
    /// This block does not match its checksum.
    Mismatch(usize),
}

impl ChunkStore {
    /// Bytes of a chunk and their CRC32C: fewer than asked where the chunk ends before, zeros where
    /// nothing was written.
    pub fn read(&self, id: ChunkId, offset: u64, len: u64) -> Result<(Bytes, u32)> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok((Bytes::new(), 0)) };
        let read = self.read_chunk(&chunk, offset, len, Wait::Yes)?;
        Ok(read.unwrap_or_default())
    }

    /// As [`ChunkStore::read`], but only if it need not wait for the disk; else `None`.
    pub fn read_cached(&self, id: ChunkId, offset: u64, len: u64) -> Result<Option<(Bytes, u32)>> {
        let Some(chunk) = self.resident.get(id) else { return Ok(None) };
        self.read_chunk(&chunk, offset, len, Wait::No)
    }

    pub(super) fn read_chunk(
        &self,
        chunk: &Arc<Chunk>,
        offset: u64,
        len: u64,
        wait: Wait,
    ) -> Result<Read> {
        let read = self.read_or_find(chunk, offset, len, wait)?;
        read.map_err(|block| self.mismatch(chunk.id, block))
    }

    /// As [`ChunkStore::read_chunk`], but the first damaged block is no error.
    pub(super) fn read_or_find(
        &self,
        chunk: &Arc<Chunk>,
        offset: u64,
        len: u64,
        wait: Wait,
    ) -> Result<Result<Read, u64>> {
        let mut doubted = None;
        loop {
            let (end, blocks) = {
                let map = chunk.map.read();
                let end = offset.saturating_add(len).min(map.len);
                if end <= offset {
                    return Ok(Ok(Some((Bytes::new(), 0))));
                }
                (end, map.range(offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)))
            };
            let mut buffer = self.buffers.take(blocks.len() * BLOCK_BYTES as usize);
            let skip = (offset % BLOCK_BYTES) as usize;
            let wanted = skip..skip + (end - offset) as usize;
            let attempt = self.read_blocks(buffer.as_mut(), &blocks, &wanted, wait);
            match attempt.map_err(|error| self.read_failed(&error))? {
                Attempt::Done(sum) => {
                    return Ok(Ok(Some((buffer.freeze().slice(wanted), sum))));
                }
                Attempt::WouldWait => return Ok(Ok(None)),
                Attempt::Mismatch(nth) => {
                    let block = offset / BLOCK_BYTES + nth as u64;
                    // Its place may have held another block's bytes for a moment, and these again.
                    if chunk.map.read().get(block) == blocks[nth]
                        && doubted.replace((block, blocks[nth])) == Some((block, blocks[nth]))
                    {
                        return Ok(Err(block));
                    }
                }
            }
        }
    }

    fn mismatch(&self, chunk: ChunkId, block: u64) -> ChunkError {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        let (target, offset) = (self.target.clone(), block * BLOCK_BYTES);
        tracing::error!(target_dir = %target, %chunk, offset, "checksum mismatch");
        ChunkError::Corrupt { target, chunk, offset }
    }

    /// Fills `buffer` with blocks, checks them, and gives the CRC of the part `wanted` of them.
    fn read_blocks(
        &self,
        buffer: &mut [u8],
        blocks: &[Block],
        wanted: &std::ops::Range<usize>,
        wait: Wait,
    ) -> io::Result<Attempt> {
        let (mut sum, mut first) = (0, 0);
        while first < blocks.len() {
            let mut count = run_len(&blocks[first..]);
            let range = first * BLOCK_BYTES as usize..(first + count) * BLOCK_BYTES as usize;
            let part = &mut buffer[range];
            match blocks[first] {
                Block::Data(at, _) => match fill(&self.data, part, at, wait) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Attempt::WouldWait),
                    Err(error) if is_damage(&error) && wait == Wait::No => {
                        return Ok(Attempt::WouldWait);
                    }
                    Err(error) if is_damage(&error) => {
                        count = self.fill_block_by_block(part, at)?;
                        if count == 0 {
                            return Ok(Attempt::Mismatch(first));
                        }
                    }
                    Err(error) => return Err(error),
                },
                Block::Hole | Block::Reserved(_) => part.fill(0),
            }
            let filled = part.chunks_exact(BLOCK_BYTES as usize).take(count);
            for (nth, bytes) in (first..).zip(filled) {
                let whole = match blocks[nth] {
                    Block::Data(_, expected) if crc::of(bytes) != expected => {
                        return Ok(Attempt::Mismatch(nth));
                    }
                    Block::Data(_, expected) => expected,
                    Block::Hole | Block::Reserved(_) => *crc::ZERO_BLOCK,
                };
                let start = nth * BLOCK_BYTES as usize;
                let from = wanted.start.max(start) - start;
                let to = wanted.end.min(start + bytes.len()) - start;
                sum = if to - from == bytes.len() {
                    crc::append_block(sum, whole)
                } else {
                    crc::append(sum, crc::of(&bytes[from..to]), (to - from) as u64)
                };
            }
            first += count;
        }
        Ok(Attempt::Done(sum))
    }

    /// Fills what could not be read in one go, up to the first block that the disk does not read. How many blocks that are.
    fn fill_block_by_block(&self, part: &mut [u8], at: u64) -> io::Result<usize> {
        let blocks = part.len() / BLOCK_BYTES as usize;
        for (nth, block) in part.chunks_exact_mut(BLOCK_BYTES as usize).enumerate() {
            match self.data.read(block, at + nth as u64) {
                Ok(()) => {}
                Err(error) if is_damage(&error) => {
                    // A place that was given up meanwhile may be missing.
                    if is_unreadable(&error) {
                        self.tell_unread(at + nth as u64, &error);
                    }
                    return Ok(nth);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(blocks)
    }

    /// Says that the disk does not read a block, ever more seldom.
    fn tell_unread(&self, place: u64, error: &io::Error) {
        if let Some(times) = self.unread.lock().count(machine_time()) {
            tracing::warn!(target_dir = %self.target, place, times, %error, "a block cannot be read");
        }
    }

    /// True if the disk does not read a block, which it may do again later; false if what it reads is wrong or right.
    pub fn is_unreadable(&self, id: ChunkId, block: u64) -> Result<bool> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok(false) };
        let place = chunk.map.read().get(block);
        let Block::Data(at, _) = place else { return Ok(false) };
        let read = self.data.read(&mut [0; BLOCK_BYTES as usize], at);
        Ok(read.is_err_and(|error| is_unreadable(&error)))
    }

    /// The bytes of one block of a chunk whose writer lock the caller holds.
    pub(super) fn read_block(
        &self,
        chunk: ChunkId,
        nth: u64,
        block: Block,
    ) -> Result<Box<[u8; BLOCK_BYTES as usize]>> {
        let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
        if let Block::Data(at, expected) = block {
            match self.data.read(&mut *bytes, at) {
                Ok(()) if crc::of(&*bytes) == expected => {}
                Err(error) if !is_damage(&error) => return Err(self.read_failed(&error)),
                _ => return Err(self.mismatch(chunk, nth)),
            }
        }
        Ok(bytes)
    }

    /// Ranges `(start, len)` that hold data, ascending; what is only reserved is a hole.
    pub fn extents(&self, id: ChunkId) -> Result<Vec<(u64, u64)>> {
        let Some(chunk) = self.chunk(id, false)? else { return Ok(Vec::new()) };
        let map = chunk.map.read();
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for (nth, block) in (0..map.len.div_ceil(BLOCK_BYTES)).zip(map.iter()) {
            let start = nth * BLOCK_BYTES;
            let len = BLOCK_BYTES.min(map.len - start);
            match (block, extents.last_mut()) {
                (Block::Hole | Block::Reserved(_), _) => {}
                (Block::Data(..), Some((first, n))) if *first + *n == start => *n += len,
                (Block::Data(..), _) => extents.push((start, len)),
            }
        }
        Ok(extents)
    }

    /// Ranges `(start, len)` that are reserved and hold nothing, ascending: whole blocks, also behind the end.
    pub fn reserved(&self, id: ChunkId) -> Result<Vec<(u64, u64)>> {
        let chunk = self.chunk(id, false)?;
        Ok(chunk.map_or_else(Vec::new, |chunk| chunk.map.read().reserved()))
    }

    /// The chunks of a file with these indices, ascending; at most `limit`, which is at least 1. Then the index
    /// after which others may come, if there are any.
    pub fn chunks_of(
        &self,
        volume: VolumeId,
        ino: Ino,
        indices: RangeInclusive<ChunkIndex>,
        limit: usize,
    ) -> Result<(Vec<ChunkStat>, Option<ChunkIndex>)> {
        let mut stats = Vec::new();
        let (first, last) = indices.into_inner();
        let [first, last] = [first, last].map(|index| ChunkId { volume, ino, index });
        let ids = self.ids_between(first, last, limit)?;
        let next = ids.back().filter(|_| ids.len() >= limit).map(|id| id.index);
        for id in ids {
            let Some(chunk) = self.chunk(id, false)? else { continue };
            let map = chunk.map.read();
            if map.exists {
                let (index, len, occupied) = (id.index, map.len, map.occupied());
                let reserved = map.reserved().iter().map(|(_, len)| len).sum();
                stats.push(ChunkStat { index, len, occupied, reserved });
            }
        }
        Ok((stats, next))
    }
}

/// Number of blocks at the beginning that can be read at once: data at consecutive places of one
/// segment, or all zeros.
fn run_len(blocks: &[Block]) -> usize {
    let Block::Data(first, _) = blocks[0] else {
        return blocks.iter().take_while(|b| !matches!(b, Block::Data(..))).count();
    };
    let follows = |(place, block): &(u64, &Block)| {
        matches!(block, Block::Data(at, _) if at == place)
            && place / SEGMENT_BLOCKS == first / SEGMENT_BLOCKS
    };
    (first..).zip(blocks).take_while(follows).count()
}

fn fill(data: &Data, part: &mut [u8], at: u64, wait: Wait) -> io::Result<bool> {
    match wait {
        Wait::Yes => data.read(part, at).map(|()| true),
        Wait::No => data.read_cached(part, at),
    }
}

/// Not to be had: damage of these blocks, and no reason not to look at others. The data file may be missing or end too early.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
        || is_unreadable(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a thousand failures of one block the first one of another was not told before there were two thousand.
    #[test]
    fn a_block_that_is_not_read_long_after_others_is_told() {
        let (mut unread, hour) = (Unread::default(), UNREAD_PAUSE);
        let told = (1..=1_030).filter_map(|_| unread.count(hour)).collect::<Vec<_>>();
        assert_eq!(told.len(), 11, "{told:?}");
        assert_eq!(unread.count(2 * hour - Duration::from_secs(1)), None);
        assert_eq!(unread.count(2 * hour), Some(1_032));
        assert_eq!(unread.count(2 * hour), None);
    }
}
