//! What there is on a target, to be compared with another: from the map alone, without reading data.
//!
//! A chunk whose map is not in memory is looked up in the table and not kept: a walk over the whole target
//! leaves in memory what is in use.

use super::cut::after;
use super::map::Map;
use super::{BlockSums, ChunkDigest, ChunkError, ChunkPage, ChunkStore, Result};
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Chunks looked up at a time.
const CHUNKS: usize = 256;
/// Chunks passed over or digested for one page.
const PAGE_CHUNKS_MAX: usize = 16 * CHUNKS;

impl ChunkStore {
    /// Digests of the chunks after a cursor whose index `wanted` accepts, in the order of their ids.
    /// At most `limit`, and at least one. A page ends early, perhaps empty, where many chunks were
    /// passed over. Each digest is of one moment after the call began: no write that was acknowledged
    /// before is missing in it, and none is in it by half. A chunk whose map is damaged is shown with
    /// length 0 and a digest that no other chunk has.
    pub fn chunks_after(
        &self,
        cursor: Option<ChunkId>,
        wanted: impl Fn(ChunkIndex) -> bool,
        limit: usize,
    ) -> Result<ChunkPage> {
        let zero = ChunkId { volume: VolumeId(0), ino: Ino(0), index: ChunkIndex(0) };
        let last =
            ChunkId { volume: VolumeId(u32::MAX), ino: Ino(u64::MAX), index: ChunkIndex(u64::MAX) };
        let mut page = ChunkPage { chunks: Vec::new(), next: cursor };
        for _ in 0..PAGE_CHUNKS_MAX / CHUNKS {
            if page.next == Some(last) {
                break;
            }
            let ids = self.ids_between(page.next.map_or(zero, after), last, CHUNKS)?;
            let is_end = ids.len() < CHUNKS;
            for id in ids {
                page.next = Some(id);
                if !wanted(id.index) {
                    continue;
                }
                page.chunks.extend(self.digest_of(id)?);
                if page.chunks.len() >= limit.max(1) {
                    return Ok(page);
                }
            }
            if is_end {
                page.next = None;
                return Ok(page);
            }
        }
        page.next = page.next.filter(|id| *id != last);
        Ok(page)
    }

    /// What a chunk is compared by. One whose map is damaged is shown with a digest that neither bytes have nor what is damaged on
    /// another target: nobody takes it for equal, or for one that is not there, and the chunks behind it are compared.
    fn digest_of(&self, id: ChunkId) -> Result<Option<ChunkDigest>> {
        match self.blocks_of(id) {
            Ok(sums) => Ok(sums.map(|sums| {
                let (len, digest) = (sums.chunk_len(), sums.digest());
                ChunkDigest { id, len, digest, reserved: sums.reserved_digest() }
            })),
            Err(error @ ChunkError::Damaged { .. }) => {
                // Each page tells it. Who compares, or verifies, warns.
                tracing::debug!(chunk = %id, %error, "the map of a chunk cannot be read");
                Ok(Some(ChunkDigest { id, len: 0, digest: self.boot.number(), reserved: 0 }))
            }
            Err(error) => Err(error),
        }
    }

    /// Checksums of a chunk's blocks, of one moment as in [`ChunkStore::chunks_after`]; `None`: there is
    /// no such chunk.
    pub fn blocks_of(&self, id: ChunkId) -> Result<Option<BlockSums>> {
        // In this order: a map that is not in memory is in the table as it was then, or newer.
        if let Some(chunk) = self.resident.get(id) {
            let map = chunk.map.read();
            return Ok(map.exists.then(|| sums_of(&map)));
        }
        Ok(self.table.load(id)?.map(|map| sums_of(&map)))
    }
}

fn sums_of(map: &Map) -> BlockSums {
    BlockSums::of_chunk(map.len, map.iter())
}
