//! The extent map on disk: a redb table of leaves, on the [`Disk`] seam.
//!
//! redb commits by writing new pages and then one root, with checksums; it is opened on our own
//! backend so that the simulated disk reaches it.

use super::leaf::Leaf;
use super::map::Map;
use super::record::{KEY_BYTES, RecordError, decode_key, decode_leaf, encode_key};
use super::room::Room;
use super::{ChunkError, Result};
use crate::reserve::is_full;
use parking_lot::RwLock;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::fmt::Display;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_base::disk::{Disk, DiskFile};
use strake_base::process::usable_memory_bytes;
use strake_types::ChunkId;

/// The file's name.
pub(super) const FILE: &str = "map.redb";
const LEAVES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("leaves");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Key in META: number of the last log whose edits the table contains.
const GENERATION: &str = "generation";

/// A map from this size on is read in one go before it is walked through.
const LARGE_BYTES: u64 = 64 << 20;
/// Bytes read at a time then.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of maps that have been read ahead for targets that are being opened, of all those of this process.
static AHEAD_BYTES: AtomicU64 = AtomicU64::new(0);

type Leaves = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Pairs = redb::Range<'static, &'static [u8], &'static [u8]>;
/// Keys to write: `None` deletes.
pub(super) type Writes = Vec<([u8; KEY_BYTES], Option<Vec<u8>>)>;

/// The extent map on disk.
pub(super) struct Table {
    target: String,
    database: Database,
    /// On the disk, for what is written to it.
    pub(super) room: Arc<Room>,
    /// As of the last commit.
    leaves: RwLock<Arc<Leaves>>,
}

impl Table {
    /// Makes the table.
    pub(super) fn create(disk: &dyn Disk, cache_bytes: u64, reserve_bytes: u64) -> Result<Self> {
        let file = disk.open(FILE, true).map_err(|error| ChunkError::io(&disk.path(), &error))?;
        Self::open_in(file, disk, cache_bytes, reserve_bytes)
    }

    /// Opens the table, which must be there: a new one in its place would give all contents up.
    pub(super) fn open(disk: &dyn Disk, cache_bytes: u64, reserve_bytes: u64) -> Result<Self> {
        let target = disk.path();
        let lost = |how: &str| ChunkError::Damaged {
            target: target.clone(),
            cause: format!("{FILE}, its extent map, is {how}"),
        };
        let file = disk.open(FILE, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => lost("missing"),
            _ => ChunkError::io(&target, &error),
        })?;
        match file.is_empty() {
            Ok(false) => Self::open_in(file, disk, cache_bytes, reserve_bytes),
            Ok(true) => Err(lost("empty")),
            Err(error) => Err(ChunkError::io(&target, &error)),
        }
    }

    fn open_in(
        file: Arc<dyn DiskFile>,
        disk: &dyn Disk,
        cache_bytes: u64,
        reserve_bytes: u64,
    ) -> Result<Self> {
        let target = disk.path();
        let room = Room::open(disk, reserve_bytes);
        let room = Arc::new(room.map_err(|error| ChunkError::io(&target, &error))?);
        let mut builder = redb::Builder::new();
        builder.set_cache_size(cache_bytes as usize);
        let backend = Backend { file, room: room.clone() };
        let database =
            builder.create_with_backend(backend).map_err(|error| failure(&target, error))?;
        let transaction = database.begin_write().map_err(|error| failure(&target, error))?;
        transaction.open_table(LEAVES).map_err(|error| failure(&target, error))?;
        transaction.open_table(META).map_err(|error| failure(&target, error))?;
        transaction.commit().map_err(|error| failure(&target, error))?;
        let leaves = read_leaves(&database).map_err(|error| failure(&target, error))?;
        Ok(Self { target, database, room, leaves: RwLock::new(Arc::new(leaves)) })
    }

    /// Keeps room back again that was used up, if there is some by now.
    pub(super) fn refill_reserve(&self) {
        if !self.room.refill() {
            tracing::debug!(target_dir = %self.target, "no room to keep back for the extent map");
        }
    }

    /// How many leaves there are.
    pub(super) fn leaf_count(&self) -> Result<u64> {
        self.leaves.read().len().map_err(|error| failure(&self.target, error))
    }

    /// Number of the last log whose edits the table contains.
    pub(super) fn generation(&self) -> Result<u64> {
        let read = || -> Result<u64, redb::Error> {
            let table = self.database.begin_read()?.open_table(META)?;
            Ok(table.get(GENERATION)?.map_or(0, |value| value.value()))
        };
        read().map_err(|error| failure(&self.target, error))
    }

    /// Writes leaves, all or nothing, durably.
    pub(super) fn commit(&self, writes: &Writes, generation: u64) -> Result<()> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut leaves = transaction.open_table(LEAVES)?;
                for (key, value) in writes {
                    match value {
                        Some(value) => drop(leaves.insert(key.as_slice(), value.as_slice())?),
                        None => drop(leaves.remove(key.as_slice())?),
                    }
                }
                transaction.open_table(META)?.insert(GENERATION, generation)?;
            }
            transaction.commit()?;
            *self.leaves.write() = Arc::new(read_leaves(&self.database)?);
            Ok(())
        };
        write().map_err(|error| failure(&self.target, error))
    }

    /// The map of a chunk; `None` if there is no such chunk.
    pub(super) fn load(&self, chunk: ChunkId) -> Result<Option<Map>> {
        let mut found = None;
        self.scan(encode_key(chunk, 0)..=encode_key(chunk, u8::MAX), |id, map| {
            found = Some((id, map));
            false
        })?;
        match found {
            Some((id, _)) if id != chunk => Err(self.astray(id, chunk)),
            found => Ok(found.map(|(_, map)| map)),
        }
    }

    /// Shows which chunks there are from `first` to `last`, ascending, until `each` says false.
    pub(super) fn ids(
        &self,
        first: ChunkId,
        last: ChunkId,
        mut each: impl FnMut(ChunkId) -> bool,
    ) -> Result<()> {
        let mut previous = None;
        for pair in self.range(encode_key(first, 0)..=encode_key(last, u8::MAX))? {
            let (key, _) = pair.map_err(|error| failure(&self.target, error))?;
            let (chunk, _) = decode_key(key.value()).map_err(|e| self.damaged(&e))?;
            if !(first..=last).contains(&chunk) {
                return Err(self.astray(chunk, format_args!("{first} to {last}")));
            }
            if previous.replace(chunk) != Some(chunk) && !each(chunk) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Shows the chunks of a range of keys, ascending, until `each` says false.
    pub(super) fn scan(
        &self,
        keys: impl RangeBounds<[u8; KEY_BYTES]>,
        mut each: impl FnMut(ChunkId, Map) -> bool,
    ) -> Result<()> {
        let mut current: Option<(ChunkId, Map)> = None;
        for pair in self.range(keys)? {
            let (key, value) = pair.map_err(|error| failure(&self.target, error))?;
            let key = key.value();
            let (chunk, nth) = decode_key(key).map_err(|e| self.damaged(&e))?;
            let record = decode_leaf(key, value.value()).map_err(|e| self.damaged(&e))?;
            if current.as_ref().is_some_and(|(id, _)| *id != chunk)
                && let Some((id, map)) = current.take()
                && !each(id, map)
            {
                return Ok(());
            }
            let (_, map) =
                current.get_or_insert_with(|| (chunk, Map { exists: true, ..Map::default() }));
            if nth == 0 {
                map.len = record.len;
            }
            map.stored |= 1 << nth;
            if map.leaves.len() <= usize::from(nth) {
                map.leaves.resize_with(usize::from(nth) + 1, Arc::<Leaf>::default);
            }
            map.leaves[usize::from(nth)] = Arc::new(record.into_leaf());
        }
        if let Some((id, map)) = current {
            each(id, map);
        }
        Ok(())
    }

    /// The leaves of a range of keys, as of the last commit.
    fn range(&self, keys: impl RangeBounds<[u8; KEY_BYTES]>) -> Result<Pairs> {
        let leaves = self.leaves.read().clone();
        let bounds = (
            keys.start_bound().map(|key| key.as_slice()),
            keys.end_bound().map(|key| key.as_slice()),
        );
        leaves.range::<&[u8]>(bounds).map_err(|error| failure(&self.target, error))
    }

    /// In a damaged table a search may end anywhere.
    fn astray(&self, found: ChunkId, wanted: impl Display) -> ChunkError {
        let cause = format!("{FILE} shows {found} where {wanted} is looked for");
        ChunkError::Damaged { target: self.target.clone(), cause }
    }

    fn damaged(&self, error: &RecordError) -> ChunkError {
        ChunkError::Damaged { target: self.target.clone(), cause: error.to_string() }
    }
}

/// A part of the memory, for a map that has been read ahead.
pub(super) struct Ahead {
    all: &'static AtomicU64,
    bytes: u64,
}

impl Ahead {
    /// Takes so many bytes, if all that is taken then is no more than `most`.
    fn take(all: &'static AtomicU64, bytes: u64, most: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Self { all, bytes })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Has the kernel read a large map from its beginning to its end, if it fits into memory beside those of targets that are being opened:
/// after a crash it is walked through three times in the order of its tree, which moves the arm of a disk for each page. What cannot be
/// read is met by these walks. What is returned is held until they are over.
pub(super) fn read_ahead(disk: &dyn Disk) -> Option<Ahead> {
    let file = disk.open(FILE, false).ok()?;
    let len = file.len().ok().filter(|len| *len >= LARGE_BYTES)?;
    let ahead = Ahead::take(&AHEAD_BYTES, len, usable_memory_bytes() / 2);
    let (target_dir, mib, at_once) = (disk.path(), len >> 20, ahead.is_some());
    tracing::info!(%target_dir, mib, at_once, "a large extent map is read, which takes a while");
    let ahead = ahead?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for at in (0..len).step_by(PIECE_BYTES as usize) {
        let part = &mut piece[..PIECE_BYTES.min(len - at) as usize];
        if file.read_exact_at(part, at).is_err() {
            break;
        }
    }
    Some(ahead)
}

fn read_leaves(database: &Database) -> Result<Leaves, redb::Error> {
    Ok(database.begin_read()?.open_table(LEAVES)?)
}

fn failure(target: &str, error: impl Into<redb::Error>) -> ChunkError {
    match error.into() {
        redb::Error::Io(error) => ChunkError::io(target, &error),
        redb::Error::Corrupted(cause) => ChunkError::Damaged { target: target.to_owned(), cause },
        error => ChunkError::Io { target: target.to_owned(), cause: error.to_string() },
    }
}

/// redb's storage: one file, whose space is set aside before it is used where the disk has room. It grows by much at
/// once: on a full disk only what is written takes room, if need be that of the reserve.
struct Backend {
    file: Arc<dyn DiskFile>,
    room: Arc<Room>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let old = self.file.len()?;
        match len.checked_sub(old) {
            Some(more @ 1..) if self.file.allocate(old, more).is_ok() => Ok(()),
            Some(1..) => {
                // Some file systems keep what they had got before they found no more.
                self.file.set_len(old)?;
                self.file.set_len(len)
            }
            _ => self.file.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        loop {
            match self.file.write_all_at(data, offset) {
                Err(error) if is_full(&error) && self.room.release() => {}
                written => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each map was measured by itself, and those of targets that were opened side by side pushed each other out of memory.
    #[test]
    fn maps_that_are_read_ahead_fit_into_memory_together() {
        static ALL: AtomicU64 = AtomicU64::new(0);
        let first = Ahead::take(&ALL, 60, 100);
        assert!(first.is_some() && Ahead::take(&ALL, 60, 100).is_none());
        let second = Ahead::take(&ALL, 40, 100);
        assert!(second.is_some());
        drop(first);
        assert!(Ahead::take(&ALL, 60, 100).is_some());
        drop(second);
        assert_eq!(ALL.load(Ordering::Relaxed), 0);
    }
}
