//! The contents of chunks on one target.

mod api;
mod error;

pub use api::{ChunkOptions, ChunkStat, Identity, ScrubReport, StoreStat};
pub use error::{ChunkError, Result};

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use strake_base::disk::Disk;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// First landing: the API over memory, so that others can build against it.
type Contents = BTreeMap<ChunkId, Vec<u8>>;
static FORMATTED: LazyLock<Mutex<HashMap<String, (Identity, Arc<Mutex<Contents>>)>>> =
    LazyLock::new(Mutex::default);

/// The contents of chunks on one target. All calls may block on the disk.
pub struct ChunkStore {
    identity: Identity,
    contents: Arc<Mutex<Contents>>,
}

impl Identity {
    /// The identity of the target on a disk, without opening it; `None` if there is no target.
    pub fn read(disk: &dyn Disk) -> Result<Option<Identity>> {
        Ok(FORMATTED.lock().get(&disk.path()).map(|f| f.0.clone()))
    }

    /// Changes the identity of the (closed) target on a disk: when it enters a cluster.
    pub fn write(&self, disk: &dyn Disk) -> Result<()> {
        if let Some(f) = FORMATTED.lock().get_mut(&disk.path()) {
            f.0 = self.clone();
        }
        Ok(())
    }
}

impl ChunkStore {
    /// Makes a target on an empty disk.
    pub fn format(
        disk: &Arc<dyn Disk>,
        identity: &Identity,
        _options: &ChunkOptions,
    ) -> Result<()> {
        FORMATTED.lock().insert(disk.path(), (identity.clone(), Arc::default()));
        Ok(())
    }

    /// Opens a target, with an exclusive lock.
    pub fn open(disk: Arc<dyn Disk>, _options: ChunkOptions) -> Result<Self> {
        let target = disk.path();
        match FORMATTED.lock().get(&target).cloned() {
            Some((identity, contents)) => Ok(Self { identity, contents }),
            None => Err(ChunkError::Missing { target }),
        }
    }

    /// Whom the target belongs to.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Stores bytes. `crc` is the CRC32C of `data`; a mismatch is refused.
    pub fn write(&self, chunk: ChunkId, offset: u64, data: &Bytes, crc: u32) -> Result<()> {
        if crc_fast::crc32_iscsi(data) != crc {
            return Err(ChunkError::BadPayload { chunk, offset });
        }
        let mut contents = self.contents.lock();
        let stored = contents.entry(chunk).or_default();
        let end = offset as usize + data.len();
        stored.resize(stored.len().max(end), 0);
        stored[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    /// Bytes of a chunk and their CRC32C: fewer than asked where the chunk ends before, zeros where
    /// nothing was written.
    pub fn read(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<(Bytes, u32)> {
        let contents = self.contents.lock();
        let stored = contents.get(&chunk).map(Vec::as_slice).unwrap_or_default();
        let start = (offset as usize).min(stored.len());
        let end = (offset as usize).saturating_add(len as usize).min(stored.len());
        let data = Bytes::copy_from_slice(&stored[start..end]);
        let crc = crc_fast::crc32_iscsi(&data);
        Ok((data, crc))
    }

    /// As [`ChunkStore::read`], but only if it need not wait for the disk; else `None`.
    pub fn read_cached(
        &self,
        chunk: ChunkId,
        offset: u64,
        len: u64,
    ) -> Result<Option<(Bytes, u32)>> {
        self.read(chunk, offset, len).map(Some)
    }

    /// Cuts a chunk to a length; one that is shorter stays as it is.
    pub fn truncate(&self, chunk: ChunkId, len: u64) -> Result<()> {
        if let Some(stored) = self.contents.lock().get_mut(&chunk) {
            stored.truncate(len as usize);
        }
        Ok(())
    }

    /// Makes a range read as zeros and frees its space. Does not change the chunk's length.
    pub fn punch(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<()> {
        if let Some(stored) = self.contents.lock().get_mut(&chunk) {
            let end = (offset.saturating_add(len) as usize).min(stored.len());
            let start = (offset as usize).min(end);
            stored[start..end].fill(0);
        }
        Ok(())
    }

    /// Reserves space for a range, so that writing there once cannot fail for lack of room. Does not
    /// change the chunk's length.
    pub fn allocate(&self, _chunk: ChunkId, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Deletes a file's chunks from an index on.
    pub fn delete_from(&self, volume: VolumeId, ino: Ino, from: ChunkIndex) -> Result<()> {
        self.contents.lock().retain(|c, _| c.volume != volume || c.ino != ino || c.index < from);
        Ok(())
    }

    /// Deletes everything of a volume.
    pub fn drop_volume(&self, volume: VolumeId) -> Result<()> {
        self.contents.lock().retain(|c, _| c.volume != volume);
        Ok(())
    }

    /// Makes a range of one chunk the same as a range of another, sharing the space where both lie
    /// on block boundaries.
    pub fn clone_range(
        &self,
        from: ChunkId,
        from_offset: u64,
        to: ChunkId,
        to_offset: u64,
        len: u64,
    ) -> Result<()> {
        let (data, _) = self.read(from, from_offset, len)?;
        let mut data = data.to_vec();
        data.resize(len as usize, 0);
        let crc = crc_fast::crc32_iscsi(&data);
        self.write(to, to_offset, &data.into(), crc)
    }

    /// Ranges `(start, len)` that hold data, ascending; what is only reserved is a hole.
    pub fn extents(&self, chunk: ChunkId) -> Result<Vec<(u64, u64)>> {
        let contents = self.contents.lock();
        let len = contents.get(&chunk).map_or(0, |s| s.len() as u64);
        Ok(if len == 0 { vec![] } else { vec![(0, len)] })
    }

    /// The chunks of a file, ascending.
    pub fn chunks_of(&self, volume: VolumeId, ino: Ino) -> Result<Vec<ChunkStat>> {
        let contents = self.contents.lock();
        let own = contents.iter().filter(|(c, _)| c.volume == volume && c.ino == ino);
        Ok(own
            .map(|(c, s)| ChunkStat {
                index: c.index,
                len: s.len() as u64,
                occupied: s.len() as u64,
            })
            .collect())
    }

    /// Makes everything acknowledged before the call durable. Concurrent calls share one flush.
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// State of the target.
    pub fn stat(&self) -> StoreStat {
        StoreStat {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            chunks: self.contents.lock().len() as u64,
            ..Default::default()
        }
    }

    /// Verifies the checksums of the chunks after a cursor, until about `budget_bytes` are read.
    pub fn scrub(&self, _after: Option<ChunkId>, _budget_bytes: u64) -> Result<ScrubReport> {
        Ok(ScrubReport::default())
    }
}
