//! Scrub: every stored block is read and checked, a portion at a time.

use super::cut::after;
use super::map::Chunk;
use super::read::Wait;
use super::{BLOCK_BYTES, ChunkError, ChunkStore, Result, ScrubReport};
use std::sync::Arc;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Chunks looked up at a time.
const CHUNKS: usize = 64;
/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl ChunkStore {
    /// Verifies the checksums of the chunks after a cursor, until about `budget_bytes` are read.
    pub fn scrub(&self, cursor: Option<ChunkId>, budget_bytes: u64) -> Result<ScrubReport> {
        let zero = ChunkId { volume: VolumeId(0), ino: Ino(0), index: ChunkIndex(0) };
        let last =
            ChunkId { volume: VolumeId(u32::MAX), ino: Ino(u64::MAX), index: ChunkIndex(u64::MAX) };
        let mut first = cursor.map_or(zero, after);
        let mut report = ScrubReport::default();
        loop {
            let ids = self.ids_between(first, last, CHUNKS)?;
            if ids.is_empty() {
                return Ok(report);
            }
            for id in ids {
                self.scrub_chunk(id, &mut report)?;
                first = after(id);
                if id == last {
                    return Ok(report);
                }
                if report.bytes >= budget_bytes {
                    report.next = Some(id);
                    return Ok(report);
                }
            }
        }
    }

    fn scrub_chunk(&self, id: ChunkId, report: &mut ScrubReport) -> Result<()> {
        let chunk = match self.chunk(id, false) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(()),
            // Its map is damaged, which says nothing of the chunks behind it.
            Err(error @ ChunkError::Damaged { .. }) => {
                tracing::error!(chunk = %id, %error, "the map of a chunk cannot be read");
                report.chunks += 1;
                report.bytes += BLOCK_BYTES;
                report.corrupt.push(id);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (exists, len, occupied) = {
            let map = chunk.map.read();
            (map.exists, map.len, map.occupied())
        };
        if !exists {
            return Ok(());
        }
        report.chunks += 1;
        report.bytes += occupied.max(BLOCK_BYTES);
        if !self.is_sound(&chunk, len)? {
            report.corrupt.push(id);
        }
        Ok(())
    }

    fn is_sound(&self, chunk: &Arc<Chunk>, len: u64) -> Result<bool> {
        for piece in 0..len.div_ceil(PIECE_BYTES) {
            match self.read_chunk(chunk, piece * PIECE_BYTES, PIECE_BYTES, Wait::Yes) {
                Ok(_) => {}
                Err(ChunkError::Corrupt { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
