//! The LSM tree of fjall.
//!
//! fjall is a journal and workers around the crate `lsm-tree`. The journal is ours
//! ([`super::embedded`]), because fjall's own takes a damaged record in its middle for its end and
//! drops all that follows without a word, synced or not. Here remain the tree, its flushes and its
//! compactions.
//!
//! A commit's version is the sequence number of its entries, so a snapshot costs nothing but a
//! number. Keys are stored behind one byte, which leaves room for a mark of our own: the version up
//! to which the tables hold everything, written at the end of each memtable.

use super::embedded::{Embedded, Store, StoreError, View};
use super::{Pair, Writes};
use crate::reserve::is_full;
use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::file::{CURRENT_VERSION_FILE, TABLES_FOLDER};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter,
    Table, TableId, UserKey,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for blocks of tables.
const CACHE_BYTES: u64 = 64 << 20;
/// Table files kept open.
const OPEN_FILES_MAX: usize = 256;
/// Runs of tables in the first level at which a checkpoint first compacts. The tree writes their
/// number as one byte and, past 255, a list of tables that cannot be read back.
const FIRST_LEVEL_RUNS_MAX: usize = 64;
/// That many are written, at most, where the disk has no room to merge them.
const UNMERGED_RUNS_MAX: usize = 240;
/// Where the mark lies.
const MARK_KEY: &[u8] = &[0];
/// What the keys of the map begin with.
const KEY_PREFIX: u8 = 1;

/// The engine.
pub type FjallKv = Embedded<Lsm>;

/// An LSM tree.
pub struct Lsm {
    tree: AnyTree,
    /// Its files, one a table.
    tables: PathBuf,
    /// The file that says which version of the tree is the one on disk.
    current: PathBuf,
    /// Shared with the tree, which takes numbers for its own changes from it.
    versions: SequenceNumberCounter,
    strategy: Arc<Leveled>,
    /// Held during a compaction, so that who needs its result waits for it. Tables that were replaced, and whose files somebody may
    /// still read.
    compacting: Mutex<BTreeSet<TableId>>,
}

impl Lsm {
    /// Merges runs of the first level until there is room for another.
    fn make_room(&self, oldest: u64) -> Result<(), StoreError> {
        while self.tree.l0_run_count() >= FIRST_LEVEL_RUNS_MAX {
            let merged = self.compact(oldest);
            let runs = self.tree.l0_run_count();
            match merged {
                Ok(true) => {}
                Ok(false) => {
                    let cause = format!("{runs} runs of tables in the first level do not merge");
                    return Err(StoreError::Io(io::Error::other(cause)));
                }
                // A flush needs less than that.
                Err(StoreError::Io(error)) if is_full(&error) && runs < UNMERGED_RUNS_MAX => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Merges what is due; true if that was anything.
    fn merge(&self, oldest: u64) -> lsm_tree::Result<bool> {
        let mut replaced = self.compacting.lock();
        let (before, named) = (self.tree.current_version().id(), self.named());
        let merged = self.tree.compact(self.strategy.clone(), oldest);
        // The tree removes the file when the last reader is done.
        replaced.retain(|id| self.tables.join(id.to_string()).exists());
        replaced.extend(named.difference(&self.named()));
        merged?;
        Ok(self.tree.current_version().id() != before)
    }

    /// The tables of the present version.
    fn named(&self) -> BTreeSet<TableId> {
        self.tree.current_version().iter_tables().map(Table::id).collect()
    }

    /// What a flush or a compaction came to that began when `first` was the number of the next table. The tree leaves what one
    /// has written that met a full disk to the next start, and each further try would leave as much.
    fn ended<T>(&self, first: TableId, outcome: lsm_tree::Result<T>) -> Result<T, StoreError> {
        let error = match outcome {
            Ok(value) => return Ok(value),
            Err(error) => StoreError::from(error),
        };
        if let StoreError::Io(cause) = &error
            && is_full(cause)
            && let Err(error) = self.remove_unnamed(first)
        {
            tracing::warn!(%error, "what was written before the disk was full stays there");
        }
        Err(error)
    }

    /// Removes the tables from `first` on that belong to nothing.
    fn remove_unnamed(&self, first: TableId) -> io::Result<()> {
        // Nobody writes a table now.
        let _no_flush = self.tree.get_flush_lock();
        let replaced = self.compacting.lock();
        let version = self.tree.current_version().id();
        let current = std::fs::read(&self.current)?;
        // A version may be the one on disk although the last of its syncs has failed. What it names is needed there.
        if current.first_chunk().map(|id| u64::from_le_bytes(*id)) != Some(version) {
            return Ok(());
        }
        let named = self.named();
        let needed = |id: &TableId| *id < first || named.contains(id) || replaced.contains(id);
        for entry in std::fs::read_dir(&self.tables)? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<TableId>().ok());
            if id.is_some_and(|id| !needed(&id)) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl From<lsm_tree::Error> for StoreError {
    fn from(error: lsm_tree::Error) -> Self {
        match error {
            // A damaged length leads beyond the end of a file, or to a number that is no length.
            lsm_tree::Error::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::InvalidData
                        | io::ErrorKind::InvalidInput
                ) =>
            {
                Self::Corrupt(error.to_string())
            }
            lsm_tree::Error::Io(error) => Self::Io(error),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl Store for Lsm {
    const NAME: &'static str = "fjall";
    const CHECKPOINT_BYTES: u64 = 16 << 20;
    type View = LsmView;

    fn open(directory: &Path) -> Result<Self, StoreError> {
        let versions = SequenceNumberCounter::new(1);
        // What is visible is our own affair; the tree wants a counter for it nevertheless.
        let tree = Config::new(directory, versions.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES_MAX))))
            .open()?;
        // Its own marks may have later numbers than the last version that it was told of.
        versions.fetch_max(tree.get_highest_persisted_seqno().map_or(0, |newest| newest + 1));
        Ok(Self {
            tree,
            tables: directory.join(TABLES_FOLDER),
            current: directory.join(CURRENT_VERSION_FILE),
            versions,
            strategy: Arc::new(Leveled::default()),
            compacting: Mutex::default(),
        })
    }

    fn durable(&self) -> Result<u64, StoreError> {
        let Some(mark) = self.tree.get(MARK_KEY, SeqNo::MAX)? else {
            return match self.tree.table_count() {
                0 => Ok(0),
                count => Err(StoreError::Corrupt(format!("{count} tables, and no mark in them"))),
            };
        };
        let mark = <[u8; 8]>::try_from(&*mark);
        mark.map(u64::from_be_bytes)
            .map_err(|_| StoreError::Corrupt("the mark is not a number".into()))
    }

    fn resume_after(&self, version: u64) {
        self.versions.fetch_max(version + 1);
    }

    fn next_version(&self) -> u64 {
        self.versions.next()
    }

    fn apply(&self, version: u64, writes: &Writes) -> Result<(), StoreError> {
        for (key, value) in writes {
            match value {
                Some(value) => self.tree.insert(stored(key), &**value, version),
                None => self.tree.remove(stored(key), version),
            };
        }
        Ok(())
    }

    fn view(&self, version: u64) -> Result<LsmView, StoreError> {
        Ok(LsmView { tree: self.tree.clone(), before: version + 1 })
    }

    fn seal(&self, version: u64) -> Result<(), StoreError> {
        self.tree.insert(MARK_KEY, version.to_be_bytes(), self.versions.next());
        self.tree.rotate_memtable();
        Ok(())
    }

    fn checkpoint(&self, oldest: u64) -> Result<(), StoreError> {
        self.make_room(oldest)?;
        let first = self.tree.next_table_id();
        let flushed = self.tree.flush(&self.tree.get_flush_lock(), oldest);
        self.ended(first, flushed).map(drop)
    }

    fn compact(&self, oldest: u64) -> Result<bool, StoreError> {
        let first = self.tree.next_table_id();
        let merged = self.merge(oldest);
        self.ended(first, merged)
    }
}

/// The tree at one version.
pub struct LsmView {
    tree: AnyTree,
    /// Entries with smaller sequence numbers are seen.
    before: SeqNo,
}

impl View for LsmView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.tree.get(stored(key), self.before)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        let from = match from {
            Bound::Unbounded => Bound::Included(vec![KEY_PREFIX].into()),
            bound => bound.map(stored),
        };
        let to = match to {
            Bound::Unbounded => Bound::Excluded(vec![KEY_PREFIX + 1].into()),
            bound => bound.map(stored),
        };
        let mut pairs = Vec::new();
        for entry in self.tree.range((from, to), self.before, None).take(limit) {
            let (key, value) = entry.into_inner()?;
            pairs.push((Bytes::copy_from_slice(&key[1..]), Bytes::copy_from_slice(&value)));
        }
        Ok(pairs)
    }
}

/// A key as it is stored.
fn stored(key: &[u8]) -> UserKey {
    let mut stored = Vec::with_capacity(1 + key.len());
    stored.push(KEY_PREFIX);
    stored.extend_from_slice(key);
    stored.into()
}

#[cfg(test)]
mod tests;
