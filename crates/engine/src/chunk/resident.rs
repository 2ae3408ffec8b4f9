//! The chunks whose maps are in memory: those in use, and those that wait for a checkpoint.
//!
//! A map that is not here is in the table as it stands there. So a map is dropped only when it is
//! clean and nobody holds it, and is loaded under the lock of its shard.

use super::Result;
use super::map::{Chunk, Map};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::ChunkId;

const SHARDS: u64 = 16;
/// Memory of the map of a full chunk of 1 MiB.
const TYPICAL_BYTES: u64 = 3584;
/// Chunks that may come in before a shard is looked through again.
const INSERTS_MIN: usize = 32;

/// The chunks whose maps are in memory.
pub(super) struct Resident {
    shards: Vec<RwLock<Shard>>,
    shard_bytes_max: u64,
}

#[derive(Default)]
struct Shard {
    chunks: BTreeMap<ChunkId, Arc<Chunk>>,
    /// Look for something to drop at so many chunks.
    sweep_at: usize,
}

impl Resident {
    /// Keeps about `bytes_max` of maps that are not being changed.
    pub(super) fn new(bytes_max: u64) -> Self {
        let mut shards = Vec::new();
        shards.resize_with(SHARDS as usize, RwLock::default);
        Self { shards, shard_bytes_max: bytes_max / SHARDS }
    }

    /// A chunk, if its map is here.
    pub(super) fn get(&self, id: ChunkId) -> Option<Arc<Chunk>> {
        let shard = self.shard(id).read();
        let chunk = shard.chunks.get(&id)?;
        chunk.touched.store(true, Ordering::Relaxed);
        Some(chunk.clone())
    }

    /// A chunk, whose map is loaded if it is not here. If there is no such chunk: an empty one
    /// where `create` says so, else `None`.
    pub(super) fn get_or_load(
        &self,
        id: ChunkId,
        create: bool,
        load: impl FnOnce() -> Result<Option<Map>>,
    ) -> Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.get(id) {
            return Ok(Some(chunk));
        }
        let mut shard = self.shard(id).write();
        if let Some(chunk) = shard.chunks.get(&id) {
            return Ok(Some(chunk.clone()));
        }
        let map = match load()? {
            Some(map) => map,
            None if create => Map::default(),
            None => return Ok(None),
        };
        if shard.chunks.len() >= shard.sweep_at.max(INSERTS_MIN) {
            shard.sweep(self.shard_bytes_max);
        }
        let chunk = Chunk::new(id, map);
        shard.chunks.insert(id, chunk.clone());
        Ok(Some(chunk))
    }

    /// At most `limit` chunks of each shard between `first` and `last` that are here, unordered.
    pub(super) fn between(&self, first: ChunkId, last: ChunkId, limit: usize) -> Vec<ChunkId> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            let shard = shard.read();
            ids.extend(shard.chunks.range(first..=last).take(limit).map(|(id, _)| *id));
        }
        ids
    }

    /// Chunks of one file are spread: a file that is larger than a shard's share is nothing special.
    fn shard(&self, id: ChunkId) -> &RwLock<Shard> {
        let name = id.ino.0 ^ u64::from(id.volume.0) << 40 ^ id.index.0.rotate_left(20);
        let mixed = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[((mixed >> 32) % SHARDS) as usize]
    }
}

impl Shard {
    /// Drops clean maps until the rest is within the bound: first those not used since last time.
    fn sweep(&mut self, bytes_max: u64) {
        let mut bytes: u64 = self.chunks.values().map(|chunk| chunk.map.read().weight()).sum();
        for spare_touched in [true, false] {
            self.chunks.retain(|_, chunk| {
                if bytes <= bytes_max {
                    return true;
                }
                let touched = chunk.touched.swap(false, Ordering::Relaxed);
                let map = chunk.map.read();
                if Arc::strong_count(chunk) > 1 || map.queued || (touched && spare_touched) {
                    return true;
                }
                bytes -= map.weight();
                false
            });
        }
        let more = bytes_max.saturating_sub(bytes) / TYPICAL_BYTES;
        self.sweep_at = self.chunks.len() + INSERTS_MIN + more as usize;
    }
}
