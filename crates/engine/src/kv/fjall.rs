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
use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter,
    UserKey,
};
use parking_lot::Mutex;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Memory for blocks of tables.
const CACHE_BYTES: u64 = 64 << 20;
/// Table files kept open.
const OPEN_FILES_MAX: usize = 256;
/// Runs of tables in the first level at which a checkpoint first compacts. The tree writes their
/// number as one byte and, past 255, a list of tables that cannot be read back.
const FIRST_LEVEL_RUNS_MAX: usize = 64;
/// Where the mark lies.
const MARK_KEY: &[u8] = &[0];
/// What the keys of the map begin with.
const KEY_PREFIX: u8 = 1;

/// The engine.
pub type FjallKv = Embedded<Lsm>;

/// An LSM tree.
pub struct Lsm {
    tree: AnyTree,
    /// Shared with the tree, which takes numbers for its own changes from it.
    versions: SequenceNumberCounter,
    strategy: Arc<Leveled>,
    /// Held during a compaction, so that who needs its result waits for it.
    compacting: Mutex<()>,
}

impl Lsm {
    /// Merges runs of the first level until there is room for another.
    fn make_room(&self, oldest: u64) -> Result<(), StoreError> {
        while self.tree.l0_run_count() >= FIRST_LEVEL_RUNS_MAX {
            if !self.compact(oldest)? {
                let runs = self.tree.l0_run_count();
                let cause = format!("{runs} runs of tables in the first level do not merge");
                return Err(StoreError::Io(io::Error::other(cause)));
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
            versions,
            strategy: Arc::new(Leveled::default()),
            compacting: Mutex::new(()),
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
        let lock = self.tree.get_flush_lock();
        self.tree.flush(&lock, oldest)?;
        Ok(())
    }

    fn compact(&self, oldest: u64) -> Result<bool, StoreError> {
        let _alone = self.compacting.lock();
        let before = self.tree.current_version().id();
        self.tree.compact(self.strategy.clone(), oldest)?;
        Ok(self.tree.current_version().id() != before)
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
mod tests {
    use super::*;

    fn one(n: u32) -> Writes {
        [(n.to_be_bytes().to_vec(), Some(Bytes::from_static(b"value")))].into()
    }

    /// The tree counts the runs of a level in one byte: with a flush at every start and no
    /// compaction in between, the 256th start left a store that could not be opened.
    #[test]
    fn a_store_opens_after_more_checkpoints_than_its_first_level_can_count() {
        let directory = tempfile::tempdir().unwrap();
        let lsm = Lsm::open(directory.path()).unwrap();
        for n in 0..270 {
            let version = lsm.next_version();
            lsm.apply(version, &one(n)).unwrap();
            lsm.seal(version).unwrap();
            lsm.checkpoint(version).unwrap();
        }
        drop(lsm);
        let lsm = Lsm::open(directory.path()).unwrap();
        let view = lsm.view(SeqNo::MAX - 1).unwrap();
        let pairs = view.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
        assert_eq!(pairs.len(), 270);
    }
}
