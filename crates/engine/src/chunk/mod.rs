//! The contents of chunks on one target.
//!
//! A target is a directory on one disk:
//!
//! | file | holds |
//! |---|---|
//! | `identity` | whom the target belongs to; readable without opening it |
//! | `data-00000`.. | the bytes: sparse segments of 1 GiB, cut into blocks of 4 KiB |
//! | `map.redb` | the extent map: which block of which chunk lies where, and its CRC32C |
//! | `log-0`, `log-1` | the intent log: edits that are acknowledged and not yet in the map |
//! | `reserve` | room kept back for the map, while much has changed more of it |
//! | `boot` | a number that changes when what was acknowledged may be lost |
//! | `probe` | nothing: it is read to learn whether the disk answers |
//!
//! **A write** goes to free places of the data files (never over anything that is in use), then an
//! edit that names them goes to the log, then to the map in memory; then it is acknowledged. All of
//! it is in the page cache by then, so the death of the process loses nothing: at the next open the
//! log is carried out again. **A checkpoint** (every few seconds, or for [`ChunkStore::sync`]) syncs the
//! data files, then commits what has changed to the map on disk, then sets free what the old map
//! named. **A sync** of a few blocks appends a mark to the log instead, with their contents, and syncs
//! the log. So a power loss leaves the state of the last checkpoint, all of whose bytes are on disk,
//! or that of the last mark after it, which brings its bytes along: old or new, and never a checksum
//! that does not match. What the log of another boot says after its last mark is ignored. A log that is
//! damaged in front of what was synced is refused: which chunks it changed is not known.
//!
//! **A read** checks every block against its CRC32C. A mismatch is an error that names the chunk and
//! the place, never wrong bytes.
//!
//! A damaged block can be overwritten as a whole, from another copy. What no copy has any more is marked as lost ([`ChunkStore::lose`]):
//! it has the checksum of what was there, and other bytes.
//!
//! **Copies** of a chunk on two targets are compared by their maps, without reading data: [`BlockSums`] are the
//! checksums of a chunk's blocks, and which are reserved; digests of both go ahead of them ([`ChunkStore::chunks_after`]), and
//! [`difference`] says what makes one copy the other.
//!
//! What this module never does: change a block in place (but one that is reserved and holds nothing),
//! use a place again that a durable map may still name, or panic on what it reads from disk.

mod api;
mod boot;
mod buffer;
mod census;
mod checkpoint;
mod crc;
mod cut;
mod damage;
mod data;
mod error;
mod forms;
mod identity;
mod leaf;
mod log;
mod map;
mod open;
mod read;
mod record;
mod replay;
mod resident;
mod room;
mod scrub;
mod share;
mod space;
mod store;
mod sums;
mod table;
mod write;

pub use api::{ChunkDigest, ChunkOptions, ChunkPage, ChunkStat, ScrubReport, StoreStat};
pub use error::{ChunkError, Result};
pub use forms::FORMS;
pub use identity::Identity;
pub use sums::{BlockSums, Difference, SumsError, difference};

use bytes::Bytes;
use cut::Damage;
use leaf::Block;
use parking_lot::Mutex;
use read::Wait;
use room::Purpose;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::thread::JoinHandle;
use store::Store;
use strake_base::disk::{Calls, CountedDisk, Disk, Probe};
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Unit of space and of checksums.
pub const BLOCK_BYTES: u64 = 4096;
/// Blocks of a data file.
const SEGMENT_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;
/// Blocks of a leaf of a chunk's map.
const LEAF_BLOCKS: u64 = 256;
/// The file that is read to learn whether the disk answers.
const PROBE_FILE: &str = "probe";

/// The contents of chunks on one target. All calls but [`ChunkStore::read_cached`] may block on the
/// disk.
pub struct ChunkStore {
    store: Arc<Store>,
    /// What is asked of its disk,
    calls: Arc<Calls>,
    /// and whether it answers, until somebody watches it.
    probe: Mutex<Option<Box<dyn Probe>>>,
    /// Makes checkpoints in the background.
    worker: Option<JoinHandle<()>>,
}

impl ChunkStore {
    /// Makes a target on an empty disk. Its size is no property of the target: what counts are the
    /// options it is opened with.
    pub fn format(disk: &Arc<dyn Disk>, identity: &Identity, options: &ChunkOptions) -> Result<()> {
        open::format(&**disk, identity, options)
    }

    /// Opens a target, with an exclusive lock, after whatever has happened to it.
    pub fn open(disk: Arc<dyn Disk>, options: ChunkOptions) -> Result<Self> {
        let background = options.background;
        let disk = Arc::new(CountedDisk::new(disk));
        let calls = disk.calls();
        let store = open::open(disk, options)?;
        let probe = store.disk.probe(PROBE_FILE).unwrap_or_else(|error| {
            let target_dir = &store.target;
            tracing::warn!(%target_dir, %error, "no file to probe the disk by: whether it hangs is not known");
            None
        });
        let probe = Mutex::new(probe);
        let weak = Arc::downgrade(&store);
        let worker = std::thread::Builder::new().name("checkpoint".to_owned());
        let worker = match background {
            true => Some(worker.spawn(move || checkpoint::run_worker(&weak))),
            false => None,
        };
        match worker.transpose() {
            Ok(worker) => Ok(Self { store, calls, probe, worker }),
            Err(error) => Err(ChunkError::io(&store.target, &error)),
        }
    }

    /// Whom the target belongs to.
    pub fn identity(&self) -> &Identity {
        &self.store.identity
    }

    /// Which boot the target speaks from: another number than before exactly if something that was
    /// acknowledged and not synced may be lost, because the host lost power, the disk failed or a
    /// copy was put in the target's place. Never 0.
    pub fn boot(&self) -> u64 {
        self.store.boot.number()
    }

    /// Stores bytes. `crc` is the CRC32C of `data`; a mismatch is refused.
    pub fn write(&self, chunk: ChunkId, offset: u64, data: &Bytes, crc: u32) -> Result<()> {
        self.store.write(chunk, offset, data, crc, Purpose::New)
    }

    /// As [`ChunkStore::write`], of what other copies have already: it is made also where little is left for the extent map.
    pub fn write_copy(&self, chunk: ChunkId, offset: u64, data: &Bytes, crc: u32) -> Result<()> {
        self.store.write(chunk, offset, data, crc, Purpose::Copy)
    }

    /// Bytes of a chunk and their CRC32C: fewer than asked where the chunk ends before, zeros where
    /// nothing was written.
    pub fn read(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<(Bytes, u32)> {
        let read = self.store.read(chunk, offset, len, Wait::Yes)?;
        Ok(read.unwrap_or_default())
    }

    /// As [`ChunkStore::read`], but only if it need not wait for the disk; else `None`.
    pub fn read_cached(
        &self,
        chunk: ChunkId,
        offset: u64,
        len: u64,
    ) -> Result<Option<(Bytes, u32)>> {
        self.store.read(chunk, offset, len, Wait::No)
    }

    /// Cuts a chunk to a length; one that is shorter stays as it is.
    pub fn truncate(&self, chunk: ChunkId, len: u64) -> Result<()> {
        self.store.truncate(chunk, len)
    }

    /// Makes a chunk exactly so long, also one that is not there: what comes after is cut, what is
    /// new reads as zeros.
    pub fn set_len(&self, chunk: ChunkId, len: u64) -> Result<()> {
        self.store.set_len(chunk, len, Damage::Fails)
    }

    /// The same; where damage is cut in part, what is left of the block is lost.
    pub fn set_len_or_lose(&self, chunk: ChunkId, len: u64) -> Result<()> {
        self.store.set_len(chunk, len, Damage::IsLost)
    }

    /// Makes a range read as zeros and frees its space. Does not change the chunk's length. Where next to nothing is left
    /// for the extent map, one that leaves a part of a MiB is refused ([`ChunkError::Full`]).
    pub fn punch(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<()> {
        self.store.punch(chunk, offset, len, Purpose::New)
    }

    /// As [`ChunkStore::punch`], of what other copies have punched already: it is refused only where nothing is left.
    pub fn punch_copy(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<()> {
        self.store.punch(chunk, offset, len, Purpose::Copy)
    }

    /// True if a punch there may leave the chunk in more runs than before: it makes the extent map larger.
    pub fn punch_leaves_pieces(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<bool> {
        self.store.punch_leaves_pieces(chunk, offset, len)
    }

    /// Reserves space for a range, so that writing there once cannot fail for lack of room. Does not
    /// change the chunk's length.
    pub fn allocate(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<()> {
        self.store.allocate(chunk, offset, len)
    }

    /// True if [`ChunkStore::write`] there needs free room: not all of it is reserved. What was written
    /// once is no longer reserved, for a change goes to new places.
    pub fn write_takes_room(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<bool> {
        self.store.any_block(chunk, offset, len, |block| !matches!(block, Block::Reserved(_)))
    }

    /// True while enough is left for the extent map to take what is new. Waits for no disk.
    pub fn offers_room(&self) -> bool {
        self.store.table.room.has_left(room::OFFERED)
    }

    /// True if room that is reserved may be promised to somebody who is about to write there: enough is left for the extent map.
    /// Waits for no disk.
    pub fn keeps_promises(&self) -> bool {
        self.store.table.room.has_left(room::PROMISED)
    }

    /// Bytes of free room that [`ChunkStore::allocate`] there needs: of whole blocks.
    pub fn allocate_takes(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<u64> {
        self.store.allocate_takes(chunk, offset, len)
    }

    /// Makes a chunk that is not there, with nothing in it; another stays as it is.
    pub fn touch(&self, chunk: ChunkId) -> Result<()> {
        self.store.touch(chunk)
    }

    /// Deletes a file's chunks with these indices. Each chunk goes all at once; after a crash some
    /// may be left, so whoever must be sure calls again.
    pub fn delete_range(
        &self,
        volume: VolumeId,
        ino: Ino,
        indices: RangeInclusive<ChunkIndex>,
    ) -> Result<()> {
        self.store.delete_range(volume, ino, indices)
    }

    /// Of a file's chunks with these indices the first, and each `nth` behind it, ascending. Some may have been deleted.
    pub fn every_nth(
        &self,
        volume: VolumeId,
        ino: Ino,
        indices: RangeInclusive<ChunkIndex>,
        nth: usize,
    ) -> Result<Vec<ChunkIndex>> {
        self.store.every_nth(volume, ino, indices, nth)
    }

    /// Deletes everything of a volume; as to crashes see [`ChunkStore::delete_range`].
    pub fn drop_volume(&self, volume: VolumeId) -> Result<()> {
        self.store.drop_volume(volume)
    }

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
        self.store.clone_range(from, from_offset, to, to_offset, len)
    }

    /// Ranges `(start, len)` that hold data, ascending; what is only reserved is a hole.
    pub fn extents(&self, chunk: ChunkId) -> Result<Vec<(u64, u64)>> {
        self.store.extents(chunk)
    }

    /// Ranges `(start, len)` that are reserved and hold nothing, ascending: whole blocks, also behind the end.
    pub fn reserved(&self, chunk: ChunkId) -> Result<Vec<(u64, u64)>> {
        self.store.reserved(chunk)
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
        self.store.chunks_of(volume, ino, indices, limit)
    }

    /// Digests of the chunks after a cursor whose index `wanted` accepts, in the order of their ids.
    /// At most `limit`, and at least one. A page ends early, perhaps empty, where many chunks were
    /// passed over. Each digest is of one moment after the call began: no write that was acknowledged
    /// before is missing in it, and none is in it by half. A chunk whose map is damaged is shown with
    /// length 0 and a digest that no other chunk has.
    pub fn chunks_after(
        &self,
        after: Option<ChunkId>,
        wanted: impl Fn(ChunkIndex) -> bool,
        limit: usize,
    ) -> Result<ChunkPage> {
        self.store.chunks_after(after, wanted, limit)
    }

    /// Checksums of a chunk's blocks, of one moment as in [`ChunkStore::chunks_after`]; `None`: there is
    /// no such chunk.
    pub fn blocks_of(&self, chunk: ChunkId) -> Result<Option<BlockSums>> {
        self.store.blocks_of(chunk)
    }

    /// Makes everything acknowledged before the call durable. Concurrent calls share one flush.
    pub fn sync(&self) -> Result<()> {
        self.store.check_poison()?;
        self.store.sync()
    }

    /// True if it takes no more writes, after an I/O error.
    pub fn is_poisoned(&self) -> bool {
        self.store.check_poison().is_err()
    }

    /// Where it lies, for messages.
    pub fn path(&self) -> &str {
        &self.store.target
    }

    /// The calls to its disk.
    pub fn calls(&self) -> Arc<Calls> {
        self.calls.clone()
    }

    /// What can be asked whether its disk answers ([`Disk::probe`]), for the first who asks for it. It holds nothing of the store.
    pub fn take_probe(&self) -> Option<Box<dyn Probe>> {
        self.probe.lock().take()
    }

    /// State of the target.
    pub fn stat(&self) -> StoreStat {
        self.store.stat()
    }

    /// Which of these blocks of a chunk the disk does not read, or do not match their checksums, ascending. Reads them all.
    pub fn damaged(&self, chunk: ChunkId, blocks: Range<u64>) -> Result<Vec<u32>> {
        self.store.damaged_blocks(chunk, blocks)
    }

    /// True if the disk does not read a block, which it may do again later; false if what it reads is wrong or right.
    pub fn is_unreadable(&self, chunk: ChunkId, block: u64) -> Result<bool> {
        self.store.is_unreadable(chunk, block)
    }

    /// Says that the contents of some blocks, each with its CRC32C, are not to be had: whatever was
    /// there before is not, and reading them is an error until they are written. A block that has
    /// that checksum already stays as it is.
    pub fn lose(&self, chunk: ChunkId, blocks: &[(u32, u32)]) -> Result<()> {
        self.store.lose(chunk, blocks)
    }

    /// Verifies the checksums of the chunks after a cursor, until about `budget_bytes` are read.
    pub fn scrub(&self, after: Option<ChunkId>, budget_bytes: u64) -> Result<ScrubReport> {
        self.store.scrub(after, budget_bytes)
    }
}

impl Drop for ChunkStore {
    /// Ends with a checkpoint, so that nothing is left to the next open.
    fn drop(&mut self) {
        {
            let mut asked = self.store.signal.state.lock();
            asked.stop = true;
            self.store.signal.changed.notify_all();
        }
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!(target_dir = %self.store.target, "the checkpoint thread has panicked");
        }
        match self.store.checkpoint().and_then(|()| self.store.check_poison()) {
            Ok(()) => self.store.boot.close(&self.store.target),
            Err(error) => tracing::error!(%error, "closing a target"),
        }
    }
}

#[cfg(test)]
mod tests;
