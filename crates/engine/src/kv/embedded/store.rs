//! What an embedded engine has to do below the transactions and the journal.

use super::super::{Pair, Writes};
use bytes::Bytes;
use std::io;
use std::ops::Bound;
use std::path::Path;

/// A failure below.
#[derive(Debug)]
pub enum StoreError {
    /// An error of the disk.
    Io(io::Error),
    /// What is stored makes no sense.
    Corrupt(String),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An ordered map with versions. It may forget in a crash everything after its last checkpoint:
/// the journal brings it back.
///
/// One thread at a time calls `next_version`, `apply` and `seal`; everything else runs beside them.
pub trait Store: Send + Sync + Sized + 'static {
    /// The engine's name.
    const NAME: &'static str;

    /// Bytes of journal between two checkpoints.
    const CHECKPOINT_BYTES: u64;

    /// The map at one version.
    type View: View;

    /// Opens what lies in the directory, or makes it.
    fn open(directory: &Path) -> Result<Self, StoreError>;

    /// The version up to which everything is there after any crash.
    fn durable(&self) -> Result<u64, StoreError>;

    /// From now on versions are greater than `version`.
    fn resume_after(&self, version: u64);

    /// A version greater than all before.
    fn next_version(&self) -> u64;

    /// Writes at a version. Not yet visible to a view of an older one.
    fn apply(&self, version: u64, writes: &Writes) -> Result<(), StoreError>;

    /// The map as of `version`, the newest that was applied when the call began or an older one
    /// that is held; it may show what was applied during the call.
    fn view(&self, version: u64) -> Result<Self::View, StoreError>;

    /// Marks everything applied, which is up to `version`, for the next checkpoint.
    fn seal(&self, version: u64) -> Result<(), StoreError>;

    /// Makes everything sealed durable. Versions older than `oldest` are not looked at any more. One that meets a full disk leaves
    /// nothing there.
    fn checkpoint(&self, oldest: u64) -> Result<(), StoreError>;

    /// Puts the house in order after a checkpoint; true if there is more to do. One that meets a full disk leaves nothing there.
    fn compact(&self, oldest: u64) -> Result<bool, StoreError>;
}

/// The map at one version.
pub trait View: Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// At most `limit` pairs of a range that is not empty, ascending.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError>;
}
