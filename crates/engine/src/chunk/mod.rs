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
mod place;
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

use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use store::Store;
use strake_base::disk::{Calls, CountedDisk, Disk, Probe};
use strake_base::threads;

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
    /// Its parts. The thread that makes checkpoints uses them, too.
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
        let spawn = |name: &str, work: fn(&Weak<Store>)| {
            let weak = Arc::downgrade(&store);
            let spawned = background.then(|| threads::spawn(name, move || work(&weak))).transpose();
            spawned.map_err(|error| ChunkError::io(&store.target, &error))
        };
        let _never_joined = spawn("place", place::watch)?;
        let worker = spawn("checkpoint", checkpoint::run_worker)?;
        Ok(Self { store, calls, probe, worker })
    }

    /// Whom the target belongs to.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Which boot the target speaks from: another number than before exactly if something that was
    /// acknowledged and not synced may be lost, because the host lost power, the disk failed or a
    /// copy was put in the target's place. Never 0.
    pub fn boot(&self) -> u64 {
        self.boot.number()
    }

    /// True while enough is left for the extent map to take what is new. Waits for no disk.
    pub fn offers_room(&self) -> bool {
        self.table.room.has_left(room::OFFERED)
    }

    /// True if room that is reserved may be promised to somebody who is about to write there: enough is left for the extent map.
    /// Waits for no disk.
    pub fn keeps_promises(&self) -> bool {
        self.table.room.has_left(room::PROMISED)
    }

    /// State of the target.
    pub fn stat(&self) -> StoreStat {
        let (unsynced_bytes, bytes) = self.amounts();
        let on_disk = self.disk.space().map_or(0, |(_, free)| free);
        let free_bytes = match self.offers_room() {
            true => bytes.free + bytes.growable.min(on_disk),
            // Soon nothing new is taken, wherever there may be free places.
            false => 0,
        };
        StoreStat {
            total_bytes: bytes.total.min(bytes.used + free_bytes),
            free_bytes,
            chunks: self.chunks.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            poisoned: self.poison.get().cloned(),
            place: *self.place.lock(),
            unsynced_bytes,
        }
    }

    /// True if it takes no more writes, after an I/O error.
    pub fn is_poisoned(&self) -> bool {
        self.check_poison().is_err()
    }

    /// Where it lies, for messages.
    pub fn path(&self) -> &str {
        &self.target
    }

    /// The calls to its disk.
    pub fn calls(&self) -> Arc<Calls> {
        self.calls.clone()
    }

    /// What can be asked whether its disk answers ([`Disk::probe`]), for the first who asks for it. It holds nothing of the store.
    pub fn take_probe(&self) -> Option<Box<dyn Probe>> {
        self.probe.lock().take()
    }
}

// For the methods, which lie in this module's files: outside of it nothing of a `Store` can be used.
impl Deref for ChunkStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Drop for ChunkStore {
    /// Ends with a checkpoint, so that nothing is left to the next open.
    fn drop(&mut self) {
        {
            let mut asked = self.signal.state.lock();
            asked.stop = true;
            self.signal.changed.notify_all();
        }
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!(target_dir = %self.target, "the checkpoint thread has panicked");
        }
        match self.checkpoint().and_then(|()| self.check_poison()) {
            Ok(()) => self.boot.close(&self.target),
            Err(error) => tracing::error!(%error, "closing a target"),
        }
    }
}

#[cfg(test)]
mod tests;
