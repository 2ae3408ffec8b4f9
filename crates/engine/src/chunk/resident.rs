//! The chunks whose maps are in memory: those in use, and those that wait for a checkpoint.
//!
//! A map that is not here is in the table as it stands there. So a map is dropped only when it is
//! clean and nobody holds it, and comes in only from whoever holds the lock for loading of its shard.
//! Those who look for what is here never wait for a disk: they do not need that lock.

use super::Result;
use super::map::{Chunk, Map};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_types::ChunkId;

const SHARDS: u64 = 16;
/// A shard is looked through again when it has grown by this part of what it keeps,
const SLACK_PART: u64 = 8;
/// and by so much: a full chunk of 1 MiB, or some small ones.
const SLACK_BYTES_MIN: u64 = 4096;

/// The chunks whose maps are in memory.
pub(super) struct Resident {
    parts: Vec<Part>,
    shard_bytes_max: u64,
}

/// A part of the chunks.
#[derive(Default)]
struct Part {
    /// Held while a chunk comes in, so also while its map is read from the disk.
    loading: Mutex<()>,
    /// Held for moments only, never while waiting for a disk.
    shard: RwLock<Shard>,
    /// Bytes of its maps, about: what they were when they were looked through, and what has come since.
    bytes: AtomicU64,
}

#[derive(Default)]
struct Shard {
    chunks: BTreeMap<ChunkId, Arc<Chunk>>,
    /// Look for something to drop at so many bytes.
    sweep_at: u64,
}

impl Resident {
    /// Keeps about `bytes_max` of maps that are not being changed.
    pub(super) fn new(bytes_max: u64) -> Self {
        let mut parts = Vec::new();
        parts.resize_with(SHARDS as usize, Part::default);
        Self { parts, shard_bytes_max: bytes_max / SHARDS }
    }

    /// A chunk, if its map is here.
    pub(super) fn get(&self, id: ChunkId) -> Option<Arc<Chunk>> {
        let shard = self.part(id).shard.read();
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
        let part = self.part(id);
        let _loading = part.loading.lock();
        // Nobody else brings it in from here on: if it is not here, the table has it as it stands.
        if let Some(chunk) = self.get(id) {
            return Ok(Some(chunk));
        }
        let map = match load()? {
            Some(map) => map,
            None if create => Map::default(),
            None => return Ok(None),
        };
        let weight = map.weight();
        let mut shard = part.shard.write();
        if part.bytes.fetch_add(weight, Ordering::Relaxed) + weight > shard.sweep_at {
            let kept = shard.sweep(self.shard_bytes_max);
            part.bytes.store(kept + weight, Ordering::Relaxed);
        }
        let chunk = Chunk::new(id, map);
        shard.chunks.insert(id, chunk.clone());
        Ok(Some(chunk))
    }

    /// The map of a chunk has grown by so many bytes. What has become smaller is found when the shard is looked through.
    pub(super) fn note_growth(&self, id: ChunkId, bytes: u64) {
        if bytes > 0 {
            self.part(id).bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// At most `limit` chunks of each shard between `first` and `last` that are here, unordered.
    pub(super) fn between(&self, first: ChunkId, last: ChunkId, limit: usize) -> Vec<ChunkId> {
        let mut ids = Vec::new();
        for part in &self.parts {
            let shard = part.shard.read();
            ids.extend(shard.chunks.range(first..=last).take(limit).map(|(id, _)| *id));
        }
        ids
    }

    /// Chunks of one file are spread: a file that is larger than a shard's share is nothing special.
    fn part(&self, id: ChunkId) -> &Part {
        let name = id.ino.0 ^ u64::from(id.volume.0) << 40 ^ id.index.0.rotate_left(20);
        let mixed = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[((mixed >> 32) % SHARDS) as usize]
    }
}

impl Shard {
    /// Drops clean maps until the rest is within the bound: first those not used since last time. Returns the bytes of the rest.
    fn sweep(&mut self, bytes_max: u64) -> u64 {
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
        let kept = bytes.max(bytes_max);
        self.sweep_at = kept + (kept / SLACK_PART).max(SLACK_BYTES_MIN);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::LEAF_BLOCKS;
    use super::super::leaf::Block;
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use strake_types::{ChunkIndex, Ino, VolumeId};

    fn chunk(index: u64) -> ChunkId {
        ChunkId { volume: VolumeId(1), ino: Ino(1), index: ChunkIndex(index) }
    }

    /// A disk that did not answer for one map kept the lock that every look needs, of threads that must not wait, too.
    #[test]
    fn chunks_in_memory_are_found_while_the_map_of_another_one_is_read() {
        const COUNT: u64 = 16 * SHARDS;
        let resident = Arc::new(Resident::new(1 << 30));
        for index in 0..COUNT {
            resident.get_or_load(chunk(index), true, || Ok(None)).unwrap();
        }
        let others = resident.clone();
        let load = move || {
            let (found, heard) = mpsc::channel();
            std::thread::spawn(move || {
                let all = (0..COUNT).filter(|index| others.get(chunk(*index)).is_some()).count();
                let listed = others.between(chunk(0), chunk(COUNT), usize::MAX).len();
                found.send((all as u64, listed as u64)).unwrap();
            });
            let found = heard.recv_timeout(Duration::from_secs(30));
            assert_eq!(found, Ok((COUNT, COUNT)));
            Ok(Some(Map::default()))
        };
        assert!(resident.get_or_load(chunk(COUNT), false, load).unwrap().is_some());
        assert!(resident.get(chunk(COUNT)).is_some());
    }

    /// Each of those who wait for the same map takes the one that came in first.
    #[test]
    fn a_map_is_read_once_whoever_waits_for_it() {
        let resident = Arc::new(Resident::new(1 << 30));
        let loads = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let readers = (0..8).map(|_| {
            let (resident, loads) = (resident.clone(), loads.clone());
            std::thread::spawn(move || {
                let load = || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok(Some(Map::default()))
                };
                resident.get_or_load(chunk(1), false, load).unwrap().unwrap()
            })
        });
        let readers: Vec<_> = readers.collect();
        let found: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    }

    /// As many stayed as of maps of 1 MiB would have fitted, and at least 32 in each shard: 220 MB where 32 were to be kept.
    #[test]
    fn maps_of_large_chunks_count_by_what_they_are_also_if_they_came_in_small() {
        const BYTES_MAX: u64 = 4 << 20;
        const COUNT: u64 = 400;
        let mut large = Map { exists: true, ..Map::default() };
        for block in 0..64 * LEAF_BLOCKS {
            large.replace(block, Block::Data(block, 0));
        }
        assert!(large.weight() > 64 * 3_000);
        let kept = |resident: &Resident| {
            resident.between(chunk(0), chunk(u64::MAX), usize::MAX).len() as u64 * large.weight()
        };
        let resident = Resident::new(BYTES_MAX);
        for index in 0..COUNT {
            resident.get_or_load(chunk(index), false, || Ok(Some(large.clone()))).unwrap();
        }
        // One more than fits is in each shard.
        let most = 2 * BYTES_MAX + SHARDS * large.weight();
        assert!(kept(&resident) <= most, "{}", kept(&resident));
        let resident = Resident::new(BYTES_MAX);
        for index in 0..COUNT {
            let small = resident.get_or_load(chunk(index), true, || Ok(None)).unwrap().unwrap();
            *small.map.write() = large.clone();
            resident.note_growth(small.id, large.weight());
        }
        assert!(kept(&resident) <= most, "{}", kept(&resident));
    }
}
