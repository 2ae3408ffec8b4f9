//! An ordered byte map with transactions: the contract that every metadata store must meet.
//!
//! The contract is the weakest that PostgreSQL-protocol engines, etcd, TiKV, FoundationDB and the
//! embedded stores all give: **snapshot isolation with write-write conflicts on point keys**. A
//! transaction reads from a snapshot; it commits only if no key *it writes* was committed by
//! another since that snapshot. Reads and ranges never conflict, so write skew is possible, and
//! whoever needs a read to hold must write that key too ([`Transaction::guard`]).
//!
//! A commit is acknowledged when it survives the death of the process; [`Kv::sync`] makes
//! everything acknowledged before it survive the loss of power.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

mod background;
mod conflicts;
mod database;
pub mod dump;
mod embedded;
mod engine_kind;
mod error;
mod etcd;
mod fjall;
mod gone_back;
pub mod group;
mod horizon;
pub mod memory;
mod moved;
mod parts;
mod pause;
mod postgres;
mod redb;
mod room;
mod step;
#[cfg(test)]
mod tests;

pub use background::Background;
pub use database::{
    DATABASE_FORMS, WAIT_MS_DEFAULT, database_engine, database_shown, how_to_empty,
    is_database_engine, open_database,
};
pub use embedded::FORMS;
pub use engine_kind::{EngineKind, UnknownEngine, open};
pub use error::{KvError, Result};
pub use etcd::WRITE_BYTES;
pub use moved::Moved;
pub use parts::{Alone, DatabaseOptions, Part, Store};
pub use pause::Pause;
pub use room::Room;

/// A key and its value.
pub type Pair = (Bytes, Bytes);

/// Keys to write: `None` deletes.
pub type Writes = BTreeMap<Vec<u8>, Option<Bytes>>;

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Every write is there, all at once.
    Committed,
    /// Nothing was written: another transaction wrote one of the keys since the snapshot.
    Conflict,
    /// The answer was lost: either all or nothing was written, and it does not change any more
    /// once a later read has been answered. Embedded engines never say this.
    Unknown,
}

/// An engine.
#[async_trait]
pub trait Kv: Send + Sync + 'static {
    /// The engine's name, as in `--meta` and in messages.
    fn name(&self) -> &'static str;

    /// True if a commit is over in less time than it takes to gather what could go along with it.
    fn commits_at_once(&self) -> bool {
        false
    }

    /// The map as it is now: every transaction committed before this call is seen.
    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Applies `writes` all at once if no key among them was committed by another since `snapshot`.
    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome>;

    /// The same where writers of other parts may write some of the keys, too: the store itself finds out whether one has since
    /// `snapshot`. Of the other keys it may go by what this writer has done. `contended` are put and not deleted.
    async fn commit_contended(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
        _contended: &[Vec<u8>],
    ) -> Result<Outcome> {
        self.commit(snapshot, writes).await
    }

    /// Returns when all that was asked for before has happened, or never will, where a commit that comes late could lie over what
    /// the writer of another part has changed since.
    async fn drain(&self) -> Result<()> {
        Ok(())
    }

    /// Asked by who is about to write what takes more room than it frees. [`KvError::Full`], with what is full and what to
    /// do, while there is so little that a commit may be refused soon.
    fn check_room(&self) -> Result<()> {
        Ok(())
    }

    /// What [`Kv::check_room`] says, for who only tells of it: this waits for no disk, and where one who writes is let through
    /// now and then it takes nobody's turn. [`KvError::Poisoned`], once no change is taken any more.
    fn full(&self) -> Option<KvError> {
        self.check_room().err()
    }

    /// True once it is known that another has opened this part, or that the database has gone back to an earlier state: nothing
    /// can be read or written any more before it is opened anew.
    fn is_taken_over(&self) -> bool {
        false
    }

    /// Where a loss of power takes what was committed and not synced: under which boot of its machine it is written. Another
    /// one than an earlier process was told means that this may have happened. `None`: what is committed stays.
    fn boot(&self) -> Option<String> {
        None
    }

    /// Returns when everything committed before the call survives the loss of power. Concurrent
    /// calls share one disk flush (group commit).
    async fn sync(&self) -> Result<()>;
}

/// The map as it was at one moment. Later commits do not show.
#[async_trait]
pub trait Snapshot: Send + Sync + std::any::Any {
    /// The value of a key.
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// The values of several keys, in their order.
    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// At most `limit` pairs of a range, ascending.
    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>>;

    /// For the engine's own downcast at commit.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A transaction: reads see the snapshot and the transaction's own writes.
pub struct Transaction {
    snapshot: Arc<dyn Snapshot>,
    writes: Writes,
    /// Of keys and values in them.
    bytes: usize,
    contended: Vec<Vec<u8>>,
}

impl Transaction {
    /// Begins on the present state.
    pub async fn begin(kv: &dyn Kv) -> Result<Self> {
        let (snapshot, contended) = (kv.snapshot().await?, Vec::new());
        Ok(Self { snapshot, writes: Writes::new(), bytes: 0, contended })
    }

    /// The value of a key.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.writes.get(key) {
            Some(written) => Ok(written.clone()),
            None => self.snapshot.get(key).await,
        }
    }

    /// The values of several keys, in their order.
    pub async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let mut values = self.snapshot.multi_get(keys).await?;
        for (key, value) in keys.iter().zip(&mut values) {
            if let Some(written) = self.writes.get(key) {
                *value = written.clone();
            }
        }
        Ok(values)
    }

    /// At most `limit` pairs of a range, ascending.
    pub async fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>> {
        if is_empty_range(from, to) {
            return Ok(Vec::new());
        }
        if self.writes.range::<[u8], _>((from, to)).next().is_none() {
            return self.snapshot.scan(from, to, limit).await;
        }
        // Own deletions may hide pairs of the snapshot: ask for that many more.
        let own: Vec<_> = self.writes.range::<[u8], _>((from, to)).collect();
        let stored = self.snapshot.scan(from, to, limit.saturating_add(own.len())).await?;
        let mut merged: BTreeMap<Bytes, Bytes> = stored.into_iter().collect();
        for (key, value) in own {
            match value {
                Some(value) => merged.insert(Bytes::copy_from_slice(key), value.clone()),
                None => merged.remove(key.as_slice()),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }

    /// Sets a key.
    pub fn put(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.set(key, Some(value.into()));
    }

    /// Sets a key that the writers of several parts write: [`Kv::commit_contended`].
    pub fn put_contended(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.contended.push(key.clone());
        self.put(key, value);
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.set(key, None);
    }

    /// Sets a key, or removes it.
    pub fn set(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        let key_bytes = key.len();
        self.bytes += value.as_ref().map_or(0, Bytes::len);
        match self.writes.insert(key, value) {
            Some(before) => self.bytes -= before.map_or(0, |before| before.len()),
            None => self.bytes += key_bytes,
        }
    }

    /// Reads a key and makes the commit conflict if another writes it: the value is written back.
    pub async fn guard(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.get(key).await?;
        if !self.writes.contains_key(key) {
            self.set(key.to_vec(), value.clone());
        }
        Ok(value)
    }

    /// How many keys it writes.
    pub fn written(&self) -> usize {
        self.writes.len()
    }

    /// How many bytes these and their values have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if nothing is to be written.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Commits. A transaction without writes is always committed.
    pub async fn commit(self, kv: &dyn Kv) -> Result<Outcome> {
        if self.writes.is_empty() {
            return Ok(Outcome::Committed);
        }
        match self.contended.is_empty() {
            true => kv.commit(self.snapshot, self.writes).await,
            false => kv.commit_contended(self.snapshot, self.writes, &self.contended).await,
        }
    }
}

/// True if no key can lie between the bounds, also where they are the wrong way round (which
/// [`BTreeMap::range`] answers with a panic).
fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        _ => false,
    }
}
