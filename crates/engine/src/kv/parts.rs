//! Stores and their parts: what is written by one server at a time.
//!
//! A store in a database may be open in several servers at once. Each of its parts has one writer: whoever
//! opens a part shuts out the one before him. So a server whose part was given to another, and that does not
//! know it yet, changes nothing any more.

use super::{Kv, KvError, Result};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// A part of a store. The keys of different parts are different; a writer keeps to those of his own, or, where
/// [commits span parts](Store::spans_parts), agrees with the writers of those that he changes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it: every other writer is shut out.
    Whole,
    /// The control plane: who belongs to the cluster.
    Control,
    /// Names and attributes of the volume with this id, from 1.
    Volume(u32),
}

/// A store in a database, to be opened. (No `Debug`: the URL may hold a password.)
#[derive(Clone)]
pub struct DatabaseOptions {
    /// `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE`, `etcd://[USER[:PASSWORD]@]HOST[:PORT],.../NAME` or
    /// `tikv://HOST[:PORT],.../NAME`.
    pub url: String,
    /// Id of the store, known to its owner alone: a database with another one in it is refused.
    pub store: String,
    /// Make the store if there is none; without, an empty database is refused.
    pub create: bool,
    /// This machine's name, to be shown to others.
    pub host: String,
    /// How long to wait for a database that does not answer, in milliseconds.
    pub wait_ms_max: u64,
}

/// A store that is open.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The engine's name, as in `--meta` and in messages.
    fn name(&self) -> &'static str;

    /// True if several servers may have it open at once.
    fn is_shared(&self) -> bool;

    /// True if one commit can change what lies in several parts: of the keys that are said to be
    /// [contended](Kv::commit_contended), if not of all, it finds out whether whichever writer has written them since a snapshot.
    fn spans_parts(&self) -> bool {
        !self.is_shared()
    }

    /// Opens a part to write it. What its earlier writer has under way is waited for; from then on he is told
    /// [`KvError::TakenOver`].
    async fn open(&self, part: Part) -> Result<Arc<dyn Kv>>;

    /// The values of some keys at one time, in their order, whoever writes them.
    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>>;

    /// How often a part that was opened here has met that the database had gone back to an earlier state.
    fn times_gone_back(&self) -> u64 {
        0
    }

    /// What [`Kv::full`] says, of a store of which all parts are one.
    fn full(&self) -> Option<KvError> {
        None
    }
}

/// A store that one process has to itself, and with it every part.
pub struct Alone(pub Arc<dyn Kv>);

#[async_trait]
impl Store for Alone {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn open(&self, _part: Part) -> Result<Arc<dyn Kv>> {
        Ok(self.0.clone())
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.0.snapshot().await?.multi_get(keys).await
    }

    fn full(&self) -> Option<KvError> {
        self.0.full()
    }
}
