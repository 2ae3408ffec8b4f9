//! The B-tree of redb, as the second engine.
//!
//! Commits go into redb without durability: the journal above ([`super::embedded`]) has them. A
//! checkpoint is one durable commit, in two phases so that redb need not walk through the whole
//! file after a crash, with the version up to which the file then holds everything.

use super::embedded::{Embedded, Store, StoreError, View};
use super::{Pair, Writes};
use ::redb::{
    Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition,
    TableError,
};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for pages.
const CACHE_BYTES: usize = 64 << 20;
/// The file.
const FILE: &str = "store.redb";
/// The file in the making.
const FILE_NEW: &str = "store.redb.new";

const MAP: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("map");
const MARKS: TableDefinition<'_, &str, u64> = TableDefinition::new("marks");
/// The mark of the version up to which the file holds everything.
const DURABLE: &str = "durable";

/// The engine.
pub type RedbKv = Embedded<BTree>;

/// A redb database.
pub struct BTree {
    database: Database,
    /// The next version.
    next: AtomicU64,
    /// The version last applied.
    applied: AtomicU64,
}

impl From<::redb::Error> for StoreError {
    fn from(error: ::redb::Error) -> Self {
        match error {
            ::redb::Error::Io(error) => Self::Io(error),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

/// Any error of redb, through its common type.
fn failed(error: impl Into<::redb::Error>) -> StoreError {
    error.into().into()
}

impl Store for BTree {
    const NAME: &'static str = "redb";
    const CHECKPOINT_BYTES: u64 = 8 << 20;
    type View = BTreeView;

    fn open(directory: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join(FILE);
        if !path.try_exists()? {
            make(directory)?;
        }
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.open(&path).map_err(|error| match error {
            DatabaseError::UpgradeRequired(format) => {
                StoreError::Corrupt(format!("redb's file has the old format {format}"))
            }
            // Ours is the lock of the directory, so this is not another Strake.
            DatabaseError::DatabaseAlreadyOpen => {
                StoreError::Io(io::Error::other("another program has store.redb open"))
            }
            error => failed(error),
        })?;
        Ok(Self { database, next: AtomicU64::new(1), applied: AtomicU64::new(0) })
    }

    fn durable(&self) -> Result<u64, StoreError> {
        let read = self.database.begin_read().map_err(failed)?;
        let marks = read.open_table(MARKS).map_err(missing_is_corrupt)?;
        let mark = marks.get(DURABLE).map_err(failed)?;
        mark.map(|mark| mark.value())
            .ok_or_else(|| StoreError::Corrupt("the mark is missing".into()))
    }

    fn resume_after(&self, version: u64) {
        self.next.fetch_max(version + 1, Ordering::AcqRel);
        self.applied.fetch_max(version, Ordering::AcqRel);
    }

    fn next_version(&self) -> u64 {
        self.next.fetch_add(1, Ordering::AcqRel)
    }

    fn apply(&self, version: u64, writes: &Writes) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::None).map_err(failed)?;
        {
            let mut map = transaction.open_table(MAP).map_err(failed)?;
            for (key, value) in writes {
                match value {
                    Some(value) => map.insert(&**key, &**value).map_err(failed)?,
                    None => map.remove(&**key).map_err(failed)?,
                };
            }
        }
        transaction.commit().map_err(failed)?;
        self.applied.store(version, Ordering::Release);
        Ok(())
    }

    fn view(&self, _version: u64) -> Result<BTreeView, StoreError> {
        let read = self.database.begin_read().map_err(failed)?;
        Ok(BTreeView { map: read.open_table(MAP).map_err(missing_is_corrupt)? })
    }

    fn seal(&self, _version: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn checkpoint(&self, _oldest: u64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_quick_repair(true);
        {
            let mut marks = transaction.open_table(MARKS).map_err(failed)?;
            // Nobody else writes now, so this is what the file holds.
            marks.insert(DURABLE, self.applied.load(Ordering::Acquire)).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn compact(&self, _oldest: u64) -> Result<bool, StoreError> {
        Ok(false)
    }
}

/// Makes the file under another name, so that it is either whole or not there.
fn make(directory: &Path) -> Result<(), StoreError> {
    let new = directory.join(FILE_NEW);
    if new.try_exists()? {
        std::fs::remove_file(&new)?;
    }
    let database = Database::create(&new).map_err(failed)?;
    let transaction = database.begin_write().map_err(failed)?;
    transaction.open_table(MAP).map_err(failed)?;
    transaction.open_table(MARKS).map_err(failed)?.insert(DURABLE, 0).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    drop(database);
    std::fs::rename(&new, directory.join(FILE))?;
    Ok(File::open(directory)?.sync_all()?)
}

fn missing_is_corrupt(error: TableError) -> StoreError {
    match error {
        TableError::Storage(error) => failed(error),
        error => StoreError::Corrupt(error.to_string()),
    }
}

/// The B-tree as it was when the view was made.
pub struct BTreeView {
    map: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl View for BTreeView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.map.get(key).map_err(failed)?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        let mut pairs = Vec::new();
        for entry in self.map.range::<&[u8]>((from, to)).map_err(failed)?.take(limit) {
            let (key, value) = entry.map_err(failed)?;
            pairs
                .push((Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value())));
        }
        Ok(pairs)
    }
}
