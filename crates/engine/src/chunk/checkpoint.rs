//! Checkpoints: what is acknowledged becomes durable.
//!
//! 1. Under the commit lock, for moments: the next log begins, and the leaves that have changed are
//!    set aside as they are.
//! 2. The data files are synced: everything that these leaves name is on disk.
//! 3. The leaves are committed to the table, with the number of the log that they complete.
//! 4. Places that the table named before and does not name now become free.
//!
//! Edits go on meanwhile, to the next log. A power loss before 3 leaves the old table, whose places
//! are all untouched; after 3, the new one, whose data is on disk.
//!
//! A sync of a few blocks is spared all this. It appends a *mark* to the log, with the contents of the
//! blocks written since the last one, and syncs the log alone. After a power loss the edits before the
//! last mark are carried out again, and its blocks written again. A *note* follows the mark when the log is
//! on disk, so that damage to it later is not taken for what a power loss has left; it waits for no disk.

use super::leaf::Leaf;
use super::log::Position;
use super::map::Chunk;
use super::record::{KEY_BYTES, Mark, encode_key, encode_leaf};
use super::space::Places;
use super::store::{Commit, Flushes, Store, Unmarked};
use super::table::Writes;
use super::{ChunkStore, Result};
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

/// A leaf and the chunk's length (0 but in leaf 0); `None`: it is removed.
type NewLeaf = Option<(Arc<Leaf>, u64)>;

/// What a flush has made durable.
enum Flushed {
    /// Everything up to the end of the log with this number.
    Checkpoint(u64),
    /// Everything up to a mark.
    Marked(Position),
}

/// What a checkpoint writes.
pub(super) struct Snapshot {
    /// Number of the log whose edits it completes.
    generation: u64,
    segments: BTreeSet<u64>,
    leaves: Vec<([u8; KEY_BYTES], NewLeaf)>,
    /// Places that become free.
    given_up: Vec<Places>,
    /// They stay in memory: until the commit the table is older than they are.
    chunks: Vec<Arc<Chunk>>,
}

impl ChunkStore {
    /// Makes everything acknowledged before the call durable: by a mark in the log if it is little,
    /// else by a checkpoint. Concurrent calls share it.
    pub fn sync(&self) -> Result<()> {
        self.check_poison()?;
        let wanted = self.commit.lock().log.position();
        let run = || match self.mark()? {
            Some(marked) => Ok(Flushed::Marked(marked)),
            None => self.run_checkpoint(),
        };
        self.flush_until(|flushes| flushes.covers(wanted), run)
    }

    /// Gives the disk what is free in great pieces, and keeps back again what was used up, as the background thread does after
    /// each checkpoint: a target that waits for room hears of it so, for nobody writes there.
    pub fn balance_room(&self) {
        self.store.balance_room();
    }
}

impl Store {
    fn balance_room(&self) {
        self.give_space_back();
        self.table.refill_reserve();
    }

    /// Brings everything acknowledged before the call into the durable map. Concurrent calls share a
    /// checkpoint.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let wanted = {
            let commit = self.commit.lock();
            commit.log.generation - u64::from(commit.log.is_empty())
        };
        self.flush_until(|flushes| flushes.durable >= wanted, || self.run_checkpoint())
    }

    /// Runs `flush`, or waits for somebody else's, until `is_done`.
    fn flush_until(
        &self,
        is_done: impl Fn(&Flushes) -> bool,
        flush: impl Fn() -> Result<Flushed>,
    ) -> Result<()> {
        let mut flushes = self.flushes.lock();
        while !is_done(&flushes) {
            self.check_poison()?;
            if flushes.running {
                self.flushed.wait(&mut flushes);
                continue;
            }
            flushes.running = true;
            drop(flushes);
            let outcome = flush();
            flushes = self.flushes.lock();
            flushes.running = false;
            match outcome {
                Ok(Flushed::Checkpoint(durable)) => flushes.durable = durable,
                Ok(Flushed::Marked(position)) => flushes.marked = position,
                Err(_) => {}
            }
            self.flushed.notify_all();
            outcome?;
        }
        Ok(())
    }

    /// Writes a mark and syncs the log: one flush, of a file whose blocks exist. `None`: too much has
    /// been written since the last mark. No checkpoint is under way: its log would not be complete.
    fn mark(&self) -> Result<Option<Position>> {
        let (file, position) = {
            let mut commit = self.commit.lock();
            let Some(places) = commit.unmarked.places() else { return Ok(None) };
            if commit.log.is_full() {
                return Ok(None);
            }
            // Under the commit lock: a place that a later edit names is not read for an earlier one.
            let blocks = self.data.read_places(places);
            let mark = blocks.map(|blocks| Mark { places: places.to_vec(), blocks });
            if let Err(error) = mark.and_then(|mark| commit.log.append_mark(&mark)) {
                tracing::warn!(target_dir = %self.target, %error, "a checkpoint instead of a mark");
                return Ok(None);
            }
            commit.unmarked = Unmarked::default();
            (commit.log.file().clone(), commit.log.position())
        };
        let failed = |error: io::Error| self.poisoned_by(format!("flushing the log: {error}"));
        file.sync().map_err(failed)?;
        Ok(Some(self.note(position)))
    }

    /// Notes in the log up to where it was synced. Returns up to where it need not be synced again.
    pub(super) fn note(&self, synced: Position) -> Position {
        let mut commit = self.commit.lock();
        let last = commit.log.position();
        if last.0 != synced.0 || commit.log.is_full() {
            return synced;
        }
        match commit.log.append_note(synced.1) {
            // Nobody waits for the note itself.
            Ok(()) if last == synced => commit.log.position(),
            Ok(()) => synced,
            Err(error) => {
                tracing::warn!(target_dir = %self.target, %error, "no note of what was synced");
                synced
            }
        }
    }

    fn run_checkpoint(&self) -> Result<Flushed> {
        let (snapshot, begun) = {
            let mut commit = self.commit.lock();
            (self.snapshot(&mut commit), commit.log.begin())
        };
        let begun = begun.map_err(|error| self.poisoned_by(error.to_string()));
        // The table checks what it reads, but not everything it reads before it checks it; others wait for this.
        let flush = || catch_unwind(AssertUnwindSafe(|| self.flush(&snapshot)));
        let broken = |_told| Err(self.poisoned_by("a flush broke off".to_owned()));
        let flushed = begun.and_then(|()| flush().unwrap_or_else(broken));
        match flushed {
            Ok(_) => self.settle_room(),
            Err(_) => self.keep_in_memory(snapshot.chunks),
        }
        flushed.map(Flushed::Checkpoint)
    }

    /// A checkpoint has ended: of the room kept back for the map it needs nothing more.
    fn settle_room(&self) {
        let mut commit = self.commit.lock();
        commit.flushing_bytes = 0;
        self.table.room.settle(commit.map_bytes);
    }

    /// What could not be written is nowhere else: it is read as it is for as long as the target is open.
    fn keep_in_memory(&self, chunks: Vec<Arc<Chunk>>) {
        let mut commit = self.commit.lock();
        for chunk in chunks {
            if !std::mem::replace(&mut chunk.map.write().queued, true) {
                commit.queue.push(chunk);
            }
        }
    }

    /// Sets aside what has changed. The caller begins the next log before it lets the lock go.
    pub(super) fn snapshot(&self, commit: &mut Commit) -> Snapshot {
        let chunks = std::mem::take(&mut commit.queue);
        let mut leaves = Vec::new();
        for chunk in &chunks {
            let map = &mut *chunk.map.write();
            for nth in 0..64u8 {
                let bit = 1 << nth;
                if map.dirty & bit == 0 {
                    continue;
                }
                let leaf = map.leaves.get(usize::from(nth)).filter(|leaf| !leaf.is_empty());
                let key = encode_key(chunk.id, nth);
                match leaf.cloned().or_else(|| (nth == 0).then(Arc::default)) {
                    Some(leaf) if map.exists => {
                        map.stored |= bit;
                        leaves.push((key, Some((leaf, if nth == 0 { map.len } else { 0 }))));
                    }
                    _ if map.stored & bit != 0 => {
                        map.stored &= !bit;
                        leaves.push((key, None));
                    }
                    _ => {}
                }
            }
            (map.dirty, map.queued) = (0, false);
        }
        (commit.unsynced_bytes, commit.queued_weight) = (0, 0);
        commit.unmarked = Unmarked::default();
        commit.flushing_bytes = std::mem::take(&mut commit.map_bytes);
        Snapshot {
            generation: commit.log.generation,
            segments: std::mem::take(&mut commit.segments),
            leaves,
            given_up: self.space.lock().begin_checkpoint(),
            chunks,
        }
    }

    /// Makes a snapshot durable; returns the number of its log.
    pub(super) fn flush(&self, snapshot: &Snapshot) -> Result<u64> {
        self.data
            .sync(&snapshot.segments)
            .map_err(|error| self.poisoned_by(format!("flushing data: {error}")))?;
        let mut writes: Writes = snapshot
            .leaves
            .iter()
            .map(|(key, leaf)| {
                (*key, leaf.as_ref().map(|(leaf, len)| encode_leaf(key, leaf, *len)))
            })
            .collect();
        // In order, the table's pages are written once each.
        writes.sort_unstable_by_key(|write| write.0);
        self.table
            .commit(&writes, snapshot.generation)
            .map_err(|error| self.poisoned_by(format!("flushing the extent map: {error}")))?;
        self.space.lock().end_checkpoint(&snapshot.given_up);
        Ok(snapshot.generation)
    }

    /// Gives disk space that is free in great pieces back to the disk.
    pub(super) fn give_space_back(&self) {
        let on_disk = self.disk.space().map_or(0, |(_, free)| free);
        let leaving = self.space.lock().leaving(on_disk);
        for (first, count) in leaving {
            if let Err(error) = self.data.punch(first, count) {
                tracing::warn!(target_dir = %self.target, %error, "cannot give disk space back");
            }
            self.space.lock().left(first, count);
        }
    }
}

/// The background thread: a checkpoint when one is asked for, and every so often.
pub(super) fn run_worker(store: &Weak<Store>) {
    let Some(signal) = store.upgrade().map(|store| store.signal.clone()) else { return };
    loop {
        let Some(period) = store.upgrade().map(|store| store.options.checkpoint_ms_max) else {
            return;
        };
        {
            let mut asked = signal.state.lock();
            if !asked.checkpoint && !asked.stop {
                signal.changed.wait_for(&mut asked, Duration::from_millis(period));
            }
            if asked.stop {
                return;
            }
            asked.checkpoint = false;
        }
        let Some(store) = store.upgrade() else { return };
        // A failure has poisoned the store, and whoever writes next is told.
        if store.checkpoint().is_ok() {
            store.balance_room();
        }
    }
}
