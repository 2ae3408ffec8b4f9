//! Transactions, journal and group commit for stores that are just ordered maps.
//!
//! A commit takes the commit lock, is compared with the writes since its snapshot
//! ([`RecentWrites`]), is appended to the [`journal`] - from here on it survives the
//! death of the process - and goes into the [`Store`]; then the [`Horizon`] moves, and it is
//! visible, all of it at once. Syncs are gathered: one thread flushes the journal for all that
//! wait, and once a second for nobody. When the journal has grown enough the store is made durable
//! and the journal before it removed.
//!
//! The store keeps no journal of its own. What it must do in a crash is little: come back as it
//! was at some checkpoint, which is the same duty for an LSM tree and for a B-tree.
//!
//! After the first error of a write or a flush nothing is known about what the disk holds, so the
//! store is poisoned: reads go on, writes are refused until a restart has read the journal back.

mod directory;
mod journal;
mod keeper;
mod store;

pub(super) use directory::Directory;
pub use journal::FORMS;
pub use store::{Store, StoreError, View};

use super::conflicts::RecentWrites;
use super::error::FREE_DISK;
use super::horizon::Horizon;
use super::{Kv, KvError, Outcome, Pair, Result, Snapshot, Writes, is_empty_range, step};
use crate::reserve::{Reserve, is_full};
use async_trait::async_trait;
use bytes::Bytes;
use directory::io_error;
use journal::{AppendError, Draft, Journal, RECORD_BYTES_MAX, RecoveryError, Salt};
use keeper::{Keeper, Sealed};
use parking_lot::Mutex;
use std::hash::RandomState;
use std::io;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use strake_base::disk::Disk;
use strake_base::random::SystemRandom;

/// The longest key: what the strictest store takes, less one byte.
const KEY_BYTES_MAX: usize = 60_000;

/// What to do while the reserve is not whole: what frees room is carried out from it.
const DELETE_OR_FREE: &str = "delete files, or free some on the metadata server's disk";

/// Sealed parts of the store that may wait for their checkpoint; then commits wait.
const SEALED_MAX: usize = 3;

/// Bytes of the reserve given up at once for the journal: less than what a target takes of a disk at
/// once, which might take it first.
const RELEASE_BYTES: u64 = 256 << 10;

/// Most bytes kept back.
const RESERVE_BYTES_MAX: u64 = 32 << 20;
/// Of a small disk, this part is kept back.
const RESERVE_PART: u64 = 64;

/// An engine over a [`Store`].
pub struct Embedded<S: Store> {
    core: Arc<Core<S>>,
    _keeper: Keeper,
}

/// Everything that threads and snapshots share.
struct Core<S> {
    store: S,
    /// Where it lies, for messages.
    path: String,
    disk: Arc<dyn Disk>,
    /// See [`Kv::boot`].
    boot: String,
    reserve: Reserve,
    commit: Mutex<Commit>,
    /// The hasher of `commit.recent`.
    hasher: RandomState,
    horizon: Horizon,
    /// The first error after which nothing more is written.
    poison: OnceLock<String>,
    /// Work for the background threads.
    work: keeper::Work,
    checkpoint_bytes: u64,
    _lock: Box<dyn Send + Sync>,
}

/// What the commit lock guards.
struct Commit {
    journal: Journal,
    recent: RecentWrites,
    /// The newest version.
    newest: u64,
    /// Length of the segment at which the next checkpoint begins.
    seal_at: u64,
}

impl<S: Store> Embedded<S> {
    /// Opens the engine in a directory, which is made if it is missing.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, S::CHECKPOINT_BYTES)
    }

    /// Opens it with `checkpoint_bytes` of journal between two checkpoints.
    pub(super) fn open_with(path: &Path, checkpoint_bytes: u64) -> Result<Self> {
        let directory = directory::open(path, S::NAME)?;
        let store = path.join(S::NAME);
        Self::open_in(directory, path, checkpoint_bytes, || S::open(&store))
    }

    /// Opens it in a directory that is locked already; `path` is for messages.
    pub(super) fn open_in(
        Directory { disk, failures, lock }: Directory,
        path: &Path,
        checkpoint_bytes: u64,
        open: impl FnOnce() -> Result<S, StoreError>,
    ) -> Result<Self> {
        let path = path.display().to_string();
        let boot = boot_of(&*disk, failures).map_err(|error| io_error(&path, &error))?;
        let reserve = open_reserve(&*disk).map_err(|error| io_error(&path, &error))?;
        // What the last process left must be read back and made durable, which takes room.
        let needed = checkpoint_bytes.saturating_mul(SEALED_MAX as u64 + 1);
        if reserve.is_short() || disk.space().is_ok_and(|(_, free)| free < needed) {
            reserve.lend();
        }
        step::step("open store");
        // The stores check what they read, but not everything they read before they check it.
        let restored =
            std::panic::catch_unwind(AssertUnwindSafe(|| restore(open, (&disk, &reserve), &path)));
        let (store, journal, newest) = match restored {
            Ok(restored) => restored.map_err(|error| recovery_error(&path, error))?,
            Err(panic) => {
                return Err(KvError::Corrupt { store: path, cause: panic_text(&*panic) });
            }
        };
        reserve.refill();
        let recent = RecentWrites::new(newest);
        let core = Arc::new(Core {
            store,
            path,
            disk,
            boot,
            reserve,
            hasher: recent.hasher(),
            commit: Mutex::new(Commit { journal, recent, newest, seal_at: checkpoint_bytes }),
            horizon: Horizon::default(),
            poison: OnceLock::new(),
            work: keeper::Work::new(newest),
            checkpoint_bytes,
            _lock: lock,
        });
        core.horizon.advance(newest);
        let keeper = Keeper::start(&core).map_err(|error| io_error(&core.path, &error))?;
        Ok(Self { core, _keeper: keeper })
    }
}

/// The boot of kernel and file system. Each failure of the disk ends it for all that is told from then on.
fn boot_of(disk: &dyn Disk, failures: u64) -> io::Result<String> {
    let boot = disk.boot_id()?;
    match failures {
        0 => Ok(boot),
        nth => Ok(format!("{boot} after failure {nth} of the disk")),
    }
}

/// Of a small disk a part is kept back, of a large one a fixed amount.
fn open_reserve(disk: &dyn Disk) -> io::Result<Reserve> {
    Reserve::open(disk, (disk.space()?.0 / RESERVE_PART).min(RESERVE_BYTES_MAX))
}

/// Opens the store, brings it up to date from the journal, and begins a new journal after the
/// newest version, which comes last.
fn restore<S: Store>(
    open: impl FnOnce() -> Result<S, StoreError>,
    (disk, reserve): (&Arc<dyn Disk>, &Reserve),
    path: &str,
) -> Result<(S, Journal, u64), RecoveryError> {
    let store = open().map_err(RecoveryError::Store)?;
    let durable = store.durable().map_err(RecoveryError::Store)?;
    let recovered =
        journal::recover(&**disk, durable, |version, writes| store.apply(version, writes))?;
    let newest = recovered.newest;
    store.resume_after(newest);
    if recovered.cut > 0 {
        tracing::warn!(
            store = path,
            bytes = recovered.cut,
            "the end of the journal had not reached the disk; cut off after version {newest}"
        );
    }
    step::step("open replayed");
    if recovered.commits > 0 {
        store.seal(newest).map_err(RecoveryError::Store)?;
        let mut done = store.checkpoint(newest);
        // Nobody deletes anything before it is open.
        if matches!(&done, Err(StoreError::Io(error)) if is_full(error))
            && reserve.release(u64::MAX)
        {
            done = store.checkpoint(newest);
        }
        done.map_err(RecoveryError::Store)?;
    }
    step::step("open checkpointed");
    let mut salt = [0; 8];
    SystemRandom.fill(&mut salt)?;
    let journal = Journal::create(disk.clone(), recovered.number + 1, newest, Salt(salt))?;
    step::step("open journal");
    for segment in &recovered.segments {
        disk.remove(segment)?;
    }
    Ok((store, journal, newest))
}

impl<S: Store> Core<S> {
    fn commit(&self, since: u64, writes: &Writes) -> Result<Outcome> {
        self.check_keys(writes)?;
        let mut draft = Draft::new(writes).ok_or_else(|| KvError::Io {
            store: self.path.clone(),
            cause: format!("a transaction has more than {RECORD_BYTES_MAX} bytes"),
        })?;
        let hashes = RecentWrites::hashes(&self.hasher, writes);
        let mut commit = self.commit.lock();
        self.check_poison()?;
        if commit.recent.conflict(since, &hashes) {
            return Ok(Outcome::Conflict);
        }
        let (version, previous) = (self.store.next_version(), commit.newest);
        step::step("append");
        self.append(&mut commit, &mut draft, version, previous)?;
        step::step("appended");
        self.store.apply(version, writes).map_err(|error| self.poison_by(error))?;
        step::step("applied");
        commit.newest = version;
        let oldest = self.horizon.advance(version);
        commit.recent.note(version, &hashes, oldest);
        if commit.journal.len() >= commit.seal_at {
            self.seal(&mut commit)?;
        }
        Ok(Outcome::Committed)
    }

    /// True while what takes room is refused whatever is kept back.
    fn lacks_room(&self) -> bool {
        self.work.is_full() || self.work.is_lending()
    }

    /// What who takes room is told while there is none.
    fn full(&self) -> KvError {
        KvError::Full { store: self.path.clone(), next: DELETE_OR_FREE }
    }

    /// Appends to the journal, if need be at the cost of the reserve.
    fn append(
        &self,
        commit: &mut Commit,
        draft: &mut Draft,
        version: u64,
        previous: u64,
    ) -> Result<()> {
        loop {
            match commit.journal.append(draft, version, previous) {
                Err(AppendError::Full) if self.reserve.release(RELEASE_BYTES) => {}
                outcome => return outcome.map_err(|error| self.append_error(error)),
            }
        }
    }

    /// Ends the segment of the journal and marks what it held for the next checkpoint.
    fn seal(&self, commit: &mut Commit) -> Result<()> {
        if self.work.sealed() >= SEALED_MAX {
            return Ok(());
        }
        let rotated = match commit.journal.rotate(commit.newest) {
            Ok(rotated) => rotated,
            Err(error) => {
                tracing::warn!(store = self.path, %error, "no new segment of the journal");
                commit.seal_at = commit.journal.len() + self.checkpoint_bytes;
                return Ok(());
            }
        };
        step::step("rotated");
        commit.seal_at = self.checkpoint_bytes;
        self.store.seal(commit.newest).map_err(|error| self.poison_by(error))?;
        step::step("sealed");
        self.work.push_sealed(Sealed { number: rotated.0, file: rotated.1 });
        Ok(())
    }

    fn check_keys(&self, writes: &Writes) -> Result<()> {
        match writes.keys().find(|key| key.len() > KEY_BYTES_MAX) {
            None => Ok(()),
            Some(key) => Err(KvError::Io {
                store: self.path.clone(),
                cause: format!("a key has {} bytes, more than {KEY_BYTES_MAX}", key.len()),
            }),
        }
    }

    fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => {
                Err(KvError::Poisoned { store: self.path.clone(), cause: cause.clone() })
            }
        }
    }

    /// Refuses every write from now on.
    fn poison(&self, cause: String) -> KvError {
        let first = || {
            let what =
                "the metadata store stops: nothing in it is changed before its server is restarted";
            tracing::error!(store = self.path, cause, "{what}");
            directory::note_failure(&*self.disk);
            cause
        };
        let cause = self.poison.get_or_init(first).clone();
        self.work.relieve();
        KvError::Poisoned { store: self.path.clone(), cause }
    }

    fn poison_by(&self, error: StoreError) -> KvError {
        self.poison(match error {
            StoreError::Io(error) => error.to_string(),
            StoreError::Corrupt(cause) => cause,
        })
    }

    fn append_error(&self, error: AppendError) -> KvError {
        match error {
            AppendError::Full => KvError::Full { store: self.path.clone(), next: FREE_DISK },
            AppendError::Broken(error) => self.poison(error.to_string()),
        }
    }

    fn read_error(&self, error: StoreError) -> KvError {
        store_error(&self.path, error)
    }
}

fn store_error(path: &str, error: StoreError) -> KvError {
    match error {
        StoreError::Io(error) => io_error(path, &error),
        StoreError::Corrupt(cause) => KvError::Corrupt { store: path.to_owned(), cause },
    }
}

fn recovery_error(path: &str, error: RecoveryError) -> KvError {
    let store = path.to_owned();
    match error {
        RecoveryError::Disk(error) => io_error(path, &error),
        RecoveryError::Corrupt(cause) => KvError::Corrupt { store, cause },
        RecoveryError::Newer(found) => KvError::Newer { store, found, known: journal::FORMAT },
        RecoveryError::Store(error) => store_error(path, error),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unreadable").to_owned()
}

#[async_trait]
impl<S: Store> Kv for Embedded<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn commits_at_once(&self) -> bool {
        true
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let version = self.core.horizon.hold();
        match self.core.store.view(version) {
            Ok(view) => Ok(Arc::new(Held { core: self.core.clone(), version, view })),
            Err(error) => {
                self.core.horizon.release(version);
                Err(self.core.read_error(error))
            }
        }
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        let since = snapshot
            .as_any()
            .downcast_ref::<Held<S>>()
            .expect("a snapshot is committed to the engine that gave it: a caller's bug otherwise")
            .version;
        if writes.is_empty() {
            return Ok(Outcome::Committed);
        }
        while self.core.work.sealed() >= SEALED_MAX {
            let relief = self.core.work.relief();
            if self.core.work.sealed() < SEALED_MAX {
                break;
            }
            self.core.check_poison()?;
            if self.core.work.is_full() {
                return Err(KvError::Full { store: self.core.path.clone(), next: FREE_DISK });
            }
            relief.await;
        }
        self.core.commit(since, &writes)
    }

    fn check_room(&self) -> Result<()> {
        match self.core.lacks_room() || self.core.reserve.is_short() {
            true => Err(self.core.full()),
            false => Ok(()),
        }
    }

    fn full(&self) -> Option<KvError> {
        let is_full = || self.core.lacks_room() || self.core.reserve.is_marked_short();
        let stopped = self.core.check_poison().err();
        stopped.or_else(|| is_full().then(|| self.core.full()))
    }

    fn boot(&self) -> Option<String> {
        Some(self.core.boot.clone())
    }

    async fn sync(&self) -> Result<()> {
        let newest = self.core.horizon.newest();
        self.core.check_poison()?;
        match self.core.work.wait_synced(newest) {
            None => Ok(()),
            // The sender is dropped only when the engine is, or is poisoned.
            Some(answer) => answer.await.unwrap_or_else(|_| {
                let cause = || "closed before the sync".to_owned();
                let cause = self.core.poison.get().cloned().unwrap_or_else(cause);
                Err(KvError::Poisoned { store: self.core.path.clone(), cause })
            }),
        }
    }
}

/// A snapshot of an embedded engine.
struct Held<S: Store> {
    core: Arc<Core<S>>,
    version: u64,
    view: S::View,
}

impl<S: Store> Drop for Held<S> {
    fn drop(&mut self) {
        self.core.horizon.release(self.version);
    }
}

#[async_trait]
impl<S: Store> Snapshot for Held<S> {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.view.get(key).map_err(|error| self.core.read_error(error))
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let values = keys.iter().map(|key| self.view.get(key)).collect::<Result<_, _>>();
        values.map_err(|error| self.core.read_error(error))
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        if is_empty_range(from, to) || limit == 0 {
            return Ok(Vec::new());
        }
        self.view.scan(from, to, limit).map_err(|error| self.core.read_error(error))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
