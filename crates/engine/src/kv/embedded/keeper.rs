//! The three threads behind an embedded engine: one flushes the journal, one makes checkpoints,
//! one compacts the store. Each sleeps when there is nothing for it to do.

use super::super::error::FREE_DISK;
use super::super::{KvError, Result, step};
use super::{Core, Store, StoreError};
use crate::reserve::is_full;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use strake_base::disk::DiskFile;
use strake_base::threads;
use tokio::sync::{Notify, oneshot};

/// How long a commit stays unsynced at most, when nobody asks, less the time of the flush.
const SYNC_INTERVAL: Duration = Duration::from_millis(900);

/// How often to look whether there is more room for a checkpoint that met a full disk.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often what is kept back is filled where it is not whole and nobody writes.
const REFILL_INTERVAL: Duration = Duration::from_secs(3);

/// After so many looks it is tried again in any case: of some quotas nothing is seen.
const LOOKS_MAX: usize = 10;

/// The most steps of compaction after one checkpoint.
const COMPACTIONS_MAX: usize = 64;

/// A segment of the journal whose predecessors can go once what was sealed is durable.
pub struct Sealed {
    pub number: u64,
    pub file: Arc<dyn DiskFile>,
}

/// What the threads have before them.
pub struct Work {
    syncs: Mutex<Syncs>,
    sync_wanted: Condvar,
    checkpoints: Mutex<Checkpoints>,
    checkpoint_wanted: Condvar,
    compaction_wanted: Condvar,
    /// Sealed parts that are not durable yet.
    sealed: AtomicUsize,
    /// The last checkpoint met a full disk.
    full: AtomicBool,
    /// A checkpoint gets what is kept back: who takes room is refused.
    lending: AtomicBool,
    relief: Notify,
}

struct Syncs {
    /// Everything up to here survives the loss of power.
    synced: u64,
    waiting: Vec<(u64, oneshot::Sender<Result<()>>)>,
    stop: bool,
}

struct Checkpoints {
    sealed: Vec<Sealed>,
    compact: bool,
    stop: bool,
}

impl Work {
    pub fn new(synced: u64) -> Self {
        Self {
            syncs: Mutex::new(Syncs { synced, waiting: Vec::new(), stop: false }),
            sync_wanted: Condvar::new(),
            // The last process may have ended before it compacted, and the one before it too.
            checkpoints: Mutex::new(Checkpoints { sealed: vec![], compact: true, stop: false }),
            checkpoint_wanted: Condvar::new(),
            compaction_wanted: Condvar::new(),
            sealed: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            lending: AtomicBool::new(false),
            relief: Notify::new(),
        }
    }

    /// How many sealed parts wait for a checkpoint.
    pub fn sealed(&self) -> usize {
        self.sealed.load(Ordering::Acquire)
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub fn is_lending(&self) -> bool {
        self.lending.load(Ordering::Acquire)
    }

    /// Completes when the number of sealed parts, or the reason to wait for it, has changed since
    /// this call.
    pub fn relief(&self) -> tokio::sync::futures::Notified<'_> {
        self.relief.notified()
    }

    /// Wakes those that wait for relief.
    pub fn relieve(&self) {
        self.relief.notify_waiters();
    }

    pub fn push_sealed(&self, sealed: Sealed) {
        self.sealed.fetch_add(1, Ordering::AcqRel);
        self.checkpoints.lock().sealed.push(sealed);
        self.checkpoint_wanted.notify_one();
    }

    /// `None` if `version` is synced; else the answer comes when it is.
    pub fn wait_synced(&self, version: u64) -> Option<oneshot::Receiver<Result<()>>> {
        let mut syncs = self.syncs.lock();
        if version <= syncs.synced {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        // After the stop the sender is dropped, which is an answer too.
        if !syncs.stop {
            syncs.waiting.push((version, sender));
            self.sync_wanted.notify_one();
        }
        Some(receiver)
    }

    /// Waits for a reason to flush; false when it is time to end.
    fn next_sync(&self) -> bool {
        let mut syncs = self.syncs.lock();
        if syncs.waiting.is_empty() && !syncs.stop {
            self.sync_wanted.wait_for(&mut syncs, SYNC_INTERVAL);
        }
        !syncs.stop
    }

    fn answer_syncs(&self, flushed: &Result<u64>) {
        let mut syncs = self.syncs.lock();
        if let Ok(synced) = flushed {
            syncs.synced = syncs.synced.max(*synced);
        }
        let upto = syncs.synced;
        for (version, sender) in std::mem::take(&mut syncs.waiting) {
            let _nobody_waits_any_more = match flushed {
                Ok(_) if version <= upto => sender.send(Ok(())),
                Ok(_) => {
                    syncs.waiting.push((version, sender));
                    Ok(())
                }
                Err(error) => sender.send(Err(error.clone())),
            };
        }
    }

    /// Waits for sealed parts, for a while: then there may be none. `None` when it is time to end.
    fn next_sealed(&self) -> Option<Vec<Sealed>> {
        let mut checkpoints = self.checkpoints.lock();
        if checkpoints.sealed.is_empty() && !checkpoints.stop {
            self.checkpoint_wanted.wait_for(&mut checkpoints, REFILL_INTERVAL);
        }
        (!checkpoints.stop).then(|| std::mem::take(&mut checkpoints.sealed))
    }

    /// Waits for a compaction to be due; false when it is time to end.
    fn next_compaction(&self) -> bool {
        let mut checkpoints = self.checkpoints.lock();
        while !checkpoints.compact && !checkpoints.stop {
            self.compaction_wanted.wait(&mut checkpoints);
        }
        checkpoints.compact = false;
        !checkpoints.stop
    }

    /// Waits before another try; false when it is time to end.
    fn pause(&self) -> bool {
        let mut checkpoints = self.checkpoints.lock();
        if !checkpoints.stop {
            self.checkpoint_wanted.wait_for(&mut checkpoints, RETRY_INTERVAL);
        }
        !checkpoints.stop
    }

    fn is_stopping(&self) -> bool {
        self.checkpoints.lock().stop
    }

    fn stop(&self) {
        self.syncs.lock().stop = true;
        self.checkpoints.lock().stop = true;
        self.sync_wanted.notify_all();
        self.checkpoint_wanted.notify_all();
        self.compaction_wanted.notify_all();
    }
}

/// The running threads; dropping it ends them, after a last flush of the journal.
pub struct Keeper {
    stop: Box<dyn Fn() + Send + Sync>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    pub fn start<S: Store>(core: &Arc<Core<S>>) -> io::Result<Self> {
        let stopped = core.clone();
        let mut keeper = Self { stop: Box::new(move || stopped.work.stop()), threads: Vec::new() };
        keeper.spawn("kv-sync", core, keep_synced)?;
        keeper.spawn("kv-checkpoint", core, keep_short)?;
        keeper.spawn("kv-compact", core, keep_tidy)?;
        Ok(keeper)
    }

    fn spawn<S: Store>(
        &mut self,
        name: &str,
        core: &Arc<Core<S>>,
        body: fn(&Core<S>),
    ) -> io::Result<()> {
        let core = core.clone();
        self.threads.push(threads::spawn(name, move || body(&core))?);
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        (self.stop)();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the metadata store had panicked");
            }
        }
    }
}

fn keep_synced<S: Store>(core: &Core<S>) {
    loop {
        let go_on = core.work.next_sync();
        let flushed = flush(core);
        core.work.answer_syncs(&flushed);
        if !go_on {
            break;
        }
    }
    // The disk of a store that has stopped may hang.
    if core.check_poison().is_err() {
        return;
    }
    let mark = core.commit.lock().journal.mark();
    if let Some(Err(error)) = mark.map(|mark| mark.sync()) {
        tracing::warn!(store = core.path, %error, "up to where the journal is synced may not be stored");
    }
}

/// Flushes the journal; returns the version up to which it is on disk.
fn flush<S: Store>(core: &Core<S>) -> Result<u64> {
    let (unsynced, newest) = {
        let mut commit = core.commit.lock();
        core.check_poison()?;
        (commit.journal.take_unsynced(), commit.newest)
    };
    if unsynced.is_empty() {
        return Ok(newest);
    }
    step::step("sync");
    unsynced.flush(&*core.disk).map_err(|error| core.poison(error.to_string()))?;
    step::step("synced");
    let mut commit = core.commit.lock();
    core.check_poison()?;
    let now = commit.newest;
    match commit.journal.note_synced(newest, now) {
        // The note only sharpens the diagnosis of later damage, as the mark does.
        Ok(()) | Err(super::AppendError::Full) => Ok(newest),
        Err(error) => Err(core.append_error(error)),
    }
}

fn keep_short<S: Store>(core: &Core<S>) {
    while let Some(sealed) = core.work.next_sealed() {
        let Some(last) = sealed.last() else {
            // Else the store is told as full until somebody asks for room.
            if core.reserve.is_marked_short() {
                core.reserve.refill();
            }
            continue;
        };
        let mut done = checkpoint_with_reserve(core, last);
        while let Err(KvError::Full { .. }) = done {
            core.work.full.store(true, Ordering::Release);
            core.work.relieve();
            if !wait_for_room(core) {
                return;
            }
            done = checkpoint_with_reserve(core, last);
        }
        core.work.full.store(false, Ordering::Release);
        core.work.lending.store(false, Ordering::Release);
        core.reserve.refill();
        if done.is_ok() {
            core.work.sealed.fetch_sub(sealed.len(), Ordering::AcqRel);
            core.work.checkpoints.lock().compact = true;
            core.work.compaction_wanted.notify_one();
        }
        core.work.relieve();
    }
}

/// As [`checkpoint`], if need be with most of what is kept back: each try begins anew, so one after the other with a bit more would only
/// write for nothing. If it does not get through with that either, deletions are to find it again.
fn checkpoint_with_reserve<S: Store>(core: &Core<S>, sealed: &Sealed) -> Result<()> {
    let done = checkpoint(core, sealed);
    if !matches!(done, Err(KvError::Full { .. })) {
        return done;
    }
    // Who takes room is refused from now on, and does not fill the reserve with what is lent.
    core.work.lending.store(true, Ordering::Release);
    let mut lent = core.reserve.bytes();
    if !core.reserve.lend() {
        return done;
    }
    let done = checkpoint(core, sealed);
    if done.is_err() {
        while lent > 0 && !core.reserve.fill(lent) {
            lent /= 2;
        }
    }
    done
}

/// Waits until there is more room, or long enough: what is tried in between takes for a moment what others need. False when it is
/// time to end.
fn wait_for_room<S: Store>(core: &Core<S>) -> bool {
    let room = || core.disk.space().map_or(0, |(_, free)| free) + core.reserve.bytes();
    let before = room();
    for _ in 0..LOOKS_MAX {
        if !core.work.pause() {
            return false;
        }
        if room() > before {
            break;
        }
    }
    true
}

/// Makes what is sealed durable, then removes the journal before it.
fn checkpoint<S: Store>(core: &Core<S>, sealed: &Sealed) -> Result<()> {
    core.check_poison()?;
    step::step("checkpoint");
    core.store.checkpoint(core.horizon.oldest()).map_err(|error| background(core, error))?;
    step::step("checkpointed");
    let failed = |error: io::Error| core.poison(error.to_string());
    // The segment that stays must be found after a loss of power, before the others go.
    sealed.file.sync().map_err(failed)?;
    core.disk.sync_directory().map_err(failed)?;
    step::step("checkpoint synced");
    let names = core.commit.lock().journal.forget_before(sealed.number);
    for name in names {
        // What is left over is removed when the store is opened the next time.
        if let Err(error) = core.disk.remove(&name) {
            tracing::warn!(store = core.path, %error, "{name} was not removed");
        }
        step::step("segment removed");
    }
    Ok(())
}

/// A full disk can be emptied; after anything else it is not known what the store holds.
fn background<S: Store>(core: &Core<S>, error: StoreError) -> KvError {
    match error {
        StoreError::Io(error) if is_full(&error) => {
            KvError::Full { store: core.path.clone(), next: FREE_DISK }
        }
        error => core.poison_by(error),
    }
}

fn keep_tidy<S: Store>(core: &Core<S>) {
    while core.work.next_compaction() {
        for _ in 0..COMPACTIONS_MAX {
            if core.work.is_stopping() || core.check_poison().is_err() {
                break;
            }
            match core.store.compact(core.horizon.oldest()).map_err(|e| background(core, e)) {
                Ok(true) => step::step("compacted"),
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(store = core.path, %error, "the store was not compacted");
                    break;
                }
            }
        }
    }
}
