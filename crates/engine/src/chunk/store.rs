//! The parts of a target, and how an edit becomes true.

use super::boot::Boot;
use super::buffer::Buffers;
use super::data::{Data, is_out_of_files};
use super::log::{Log, Position};
use super::map::{Chunk, Map};
use super::read::Unread;
use super::record::{Edit, Kind, LOG_HEAD_BYTES, MARK_BLOCKS_MAX};
use super::resident::Resident;
use super::room;
use super::space::{Amounts, Places, Space, push_places};
use super::table::Table;
use super::{ChunkError, ChunkOptions, Identity, Result};
use crate::reserve::is_full;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_base::disk::{Disk, Place};
use strake_types::ChunkId;

/// Dirty chunk maps at which a checkpoint begins in the background.
const QUEUED_CHUNKS_MAX: usize = 16 << 10;
/// Bytes of memory for them, and for what was given up, at which edits wait for one; at half of them it begins. The map of a
/// chunk of 64 MiB takes 200 KB. Those that a checkpoint is writing do not count.
pub(super) const QUEUED_BYTES_MAX: u64 = 256 << 20;

/// How long the state of a target is waited for: who asks tells others that this server lives.
const STAT_WAIT: Duration = Duration::from_millis(2);

/// The parts of an open target, with what a checkpoint of them needs. Locks are taken in the order of the fields.
pub struct Store {
    pub(super) target: String,
    pub(super) identity: Identity,
    pub(super) options: ChunkOptions,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) boot: Boot,
    pub(super) resident: Resident,
    /// Which checkpoint is durable, and whether one is under way.
    pub(super) flushes: Mutex<Flushes>,
    pub(super) flushed: Condvar,
    pub(super) commit: Mutex<Commit>,
    pub(super) space: Mutex<Space>,
    pub(super) table: Table,
    pub(super) data: Data,
    pub(super) buffers: Buffers,
    /// Where its directory was when somebody looked last.
    pub(super) place: Mutex<Place>,
    /// Why nothing more is written.
    pub(super) poison: OnceLock<String>,
    /// Chunks that exist.
    pub(super) chunks: AtomicU64,
    /// Checksum mismatches found.
    pub(super) corrupt: AtomicU64,
    /// Blocks that the disk did not read.
    pub(super) unread: Mutex<Unread>,
    /// Wakes the thread that makes checkpoints.
    pub(super) signal: Arc<Signal>,
    /// What [`Store::amounts()`] gave last.
    pub(super) amounts: Mutex<(u64, Amounts)>,
    /// Held as long as the target is open.
    pub(super) _lock: Box<dyn Send + Sync>,
}

/// What an edit changes besides its chunk; whoever holds it decides the order of edits.
pub(super) struct Commit {
    pub(super) log: Log,
    /// Chunks that have changed since the last checkpoint began.
    pub(super) queue: Vec<Arc<Chunk>>,
    /// Bytes of memory, about, that go with it.
    pub(super) queued_weight: u64,
    /// Segments written to, or in which room was reserved, since the last checkpoint began.
    pub(super) segments: BTreeSet<u64>,
    pub(super) unsynced_bytes: u64,
    pub(super) unmarked: Unmarked,
    /// What the next checkpoint writes to the map, about at most,
    pub(super) map_bytes: u64,
    /// and what the one does that is under way.
    pub(super) flushing_bytes: u64,
}

impl Commit {
    /// Edits wait for a checkpoint.
    fn is_full(&self) -> bool {
        self.log.is_full() || self.queued_weight >= QUEUED_BYTES_MAX
    }
}

/// Places that edits of the log name as data, since it began or since its last mark.
#[derive(Default)]
pub(super) struct Unmarked {
    places: Vec<Places>,
    blocks: u64,
}

impl Unmarked {
    fn add(&mut self, at: u64, count: u32) {
        self.blocks += u64::from(count);
        if self.blocks <= MARK_BLOCKS_MAX {
            push_places(&mut self.places, at, count);
        }
    }

    /// `None`: there are too many for a mark.
    pub(super) fn places(&self) -> Option<&[Places]> {
        (self.blocks <= MARK_BLOCKS_MAX).then_some(&self.places)
    }
}

/// See [`Store::flushes`].
#[derive(Default)]
pub(super) struct Flushes {
    /// Number of the last log whose edits are in the durable map.
    pub(super) durable: u64,
    /// The last mark that is durable.
    pub(super) marked: Position,
    pub(super) running: bool,
}

impl Flushes {
    /// Whether what lies before this end of a log is durable.
    pub(super) fn covers(&self, (generation, end): Position) -> bool {
        let empty = end <= LOG_HEAD_BYTES as u64;
        self.durable >= generation - u64::from(empty) || self.marked >= (generation, end)
    }
}

/// Asks the background thread for something.
#[derive(Default)]
pub(super) struct Signal {
    pub(super) state: Mutex<Asked>,
    pub(super) changed: Condvar,
}

/// What is asked of the background thread.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) checkpoint: bool,
    pub(super) stop: bool,
}

impl Store {
    /// Makes an edit true: in the log first, then in memory. All that it names must have been
    /// written, and the caller holds the chunk's writer lock. `taken` goes back if this fails.
    pub(super) fn commit(&self, chunk: &Arc<Chunk>, edit: &Edit, taken: &[Places]) -> Result<()> {
        let outcome = self.try_commit(chunk, edit, taken);
        if outcome.is_err() {
            self.space.lock().untake(taken);
        }
        outcome
    }

    fn try_commit(&self, chunk: &Arc<Chunk>, edit: &Edit, taken: &[Places]) -> Result<()> {
        let (mut commit, map_bytes) = loop {
            let commit = self.commit.lock();
            self.check_poison()?;
            let map_bytes = room::bytes_of(&chunk.map.read(), edit);
            let waiting = commit.map_bytes + commit.flushing_bytes;
            // One alone is always tried: nothing that a checkpoint frees is in its way.
            let has_room = waiting == 0 || self.table.room.keep(waiting + map_bytes);
            if has_room && !commit.is_full() {
                break (commit, map_bytes);
            }
            drop(commit);
            self.checkpoint()?;
        };
        commit.log.append(edit).map_err(|error| self.write_failed(&error))?;
        commit.map_bytes += map_bytes;
        let given_up = {
            let map = &mut *chunk.map.write();
            let (existed, before) = (map.exists, map.weight());
            let mut given_up = Vec::new();
            map.apply(edit, &mut Vec::new(), &mut given_up);
            match (existed, map.exists) {
                (false, true) => self.chunks.fetch_add(1, Ordering::Relaxed),
                (true, false) => self.chunks.fetch_sub(1, Ordering::Relaxed),
                _ => 0,
            };
            let weight = map.weight();
            let counted = if map.queued { before } else { 0 };
            commit.queued_weight = (commit.queued_weight + weight).saturating_sub(counted);
            if !map.queued {
                map.queued = true;
                commit.queue.push(chunk.clone());
            }
            self.resident.note_growth(chunk.id, weight.saturating_sub(before));
            given_up
        };
        for run in edit.runs.iter().filter(|run| run.kind != Kind::Hole) {
            // Also of what is only reserved: the room that was set aside is not on disk before.
            commit.segments.extend(run.segments());
            if run.kind == Kind::Data {
                commit.unmarked.add(run.at, u32::from(run.count));
            }
        }
        commit.unsynced_bytes += blocks_of(taken) * super::BLOCK_BYTES;
        if !given_up.is_empty() {
            let mut space = self.space.lock();
            let before = space.given_up_weight();
            given_up.into_iter().for_each(|at| space.give_up(at));
            commit.queued_weight += space.given_up_weight() - before;
        }
        self.ask_for_checkpoint(&commit);
        Ok(())
    }

    fn ask_for_checkpoint(&self, commit: &Commit) {
        let due = commit.log.percent() >= 50
            || commit.unsynced_bytes >= self.options.unsynced_bytes_max
            || commit.queue.len() >= QUEUED_CHUNKS_MAX
            || commit.queued_weight >= QUEUED_BYTES_MAX / 2;
        if due {
            let mut asked = self.signal.state.lock();
            if !asked.checkpoint {
                asked.checkpoint = true;
                self.signal.changed.notify_all();
            }
        }
    }

    /// Takes places for new data, after a checkpoint if need be.
    pub(super) fn take(&self, count: u64, cutting: bool) -> Result<Vec<Places>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        for last in [false, true] {
            let mut space = self.space.lock();
            let taken = space.take(count, cutting, &self.data);
            let waiting = space.is_waiting() || self.table.room.keeps_more();
            drop(space);
            match taken.map_err(|error| self.take_failed(&error))? {
                Some(taken) => return Ok(taken),
                None if waiting && !last => self.checkpoint()?,
                None => break,
            }
        }
        Err(ChunkError::Full { target: self.target.clone() })
    }

    /// Refuses what makes the map larger while fewer eighths of what is kept back for it are left, after a
    /// checkpoint if need be.
    pub(super) fn check_map_room(&self, eighths: u64) -> Result<()> {
        let room = &self.table.room;
        if room.may_grow(eighths, false) {
            return Ok(());
        }
        if self.space.lock().is_waiting() {
            self.checkpoint()?;
            self.give_space_back();
            if room.may_grow(eighths, true) {
                return Ok(());
            }
        }
        if room.begins_to_refuse() {
            tracing::warn!(target_dir = %self.target, "the disk has no room for the extent map: what makes it larger is refused");
        }
        Err(ChunkError::Full { target: self.target.clone() })
    }

    /// A chunk; see [`Resident::get_or_load`].
    pub(super) fn chunk(&self, id: ChunkId, create: bool) -> Result<Option<Arc<Chunk>>> {
        self.resident.get_or_load(id, create, || self.table.load(id))
    }

    /// A chunk to be written to.
    pub(super) fn chunk_or_new(&self, id: ChunkId) -> Result<Arc<Chunk>> {
        let chunk = self.chunk(id, true)?;
        Ok(chunk.unwrap_or_else(|| Chunk::new(id, Map::default())))
    }

    /// The first chunks from `first` to `last`, `limit` if there are so many, ascending; some may have
    /// been deleted.
    pub(super) fn ids_between(
        &self,
        first: ChunkId,
        last: ChunkId,
        limit: usize,
    ) -> Result<VecDeque<ChunkId>> {
        if first > last {
            return Ok(VecDeque::new());
        }
        // First those in memory: one that leaves it meanwhile is in the table.
        let mut ids: BTreeSet<_> = self.resident.between(first, last, limit).into_iter().collect();
        let mut count = 0;
        self.table.ids(first, last, |id| {
            ids.insert(id);
            count += 1;
            count < limit
        })?;
        Ok(ids.into_iter().take(limit).collect())
    }

    /// Refuses if an earlier write or flush has failed.
    pub(super) fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) => {
                Err(ChunkError::Poisoned { target: self.target.clone(), cause: cause.clone() })
            }
            None => Ok(()),
        }
    }

    /// What a failed write means: no room is an answer, anything else poisons the target.
    pub(super) fn write_failed(&self, error: &io::Error) -> ChunkError {
        if is_full(error) {
            return ChunkError::Full { target: self.target.clone() };
        }
        self.poisoned_by(error.to_string())
    }

    /// As [`Store::write_failed`], before anything is written: that no file more may be open is an answer, too.
    fn take_failed(&self, error: &io::Error) -> ChunkError {
        match is_out_of_files(error) {
            true => ChunkError::io(&self.target, error),
            false => self.write_failed(error),
        }
    }

    /// Takes no writes from now on.
    pub(super) fn poisoned_by(&self, cause: String) -> ChunkError {
        let first = self.poison.get_or_init(|| {
            tracing::error!(target_dir = %self.target, %cause, "target takes no writes any more");
            self.boot.end(&self.target);
            cause
        });
        ChunkError::Poisoned { target: self.target.clone(), cause: first.clone() }
    }

    pub(super) fn read_failed(&self, error: &io::Error) -> ChunkError {
        ChunkError::Io { target: self.target.clone(), cause: error.to_string() }
    }

    /// What is not synced, and the space: as of a moment ago where a disk that does not answer is waited for.
    pub(super) fn amounts(&self) -> (u64, Amounts) {
        let mut last = self.amounts.lock();
        if let Some(commit) = self.commit.try_lock_for(STAT_WAIT) {
            last.0 = commit.unsynced_bytes;
        }
        if let Some(space) = self.space.try_lock_for(STAT_WAIT) {
            last.1 = space.bytes();
        }
        *last
    }
}

/// Number of places in some runs.
pub(super) fn blocks_of(places: &[Places]) -> u64 {
    places.iter().map(|(_, count)| u64::from(*count)).sum()
}
