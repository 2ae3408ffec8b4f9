//! Making a target, and opening it after whatever has happened to it.

use super::boot::{self, Boot};
use super::buffer::Buffers;
use super::data::{self, Data, Share};
use super::identity::{self, Identity};
use super::leaf::Block;
use super::log::{self, Found, Log};
use super::record::{Edit, KEY_BYTES, Kind, Run};
use super::resident::Resident;
use super::room::FOR_GROWTH;
use super::space::{GRANULE_BLOCKS, Ground, Space, each_place};
use super::store::{Commit, Flushes, Store, Unmarked};
use super::table::{self, Table};
use super::{BLOCK_BYTES, ChunkError, ChunkOptions, Result, SEGMENT_BLOCKS};
use crate::reserve::{self, is_full};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use strake_base::disk::Disk;

/// Leaves of the map after which it is told how far it was read: 1 TiB of data in chunks of 1 MiB.
const LEAVES_TOLD: u64 = 1 << 20;

/// Makes a target on an empty disk. The identity comes last: without it there is no target.
pub(super) fn format(disk: &dyn Disk, identity: &Identity, options: &ChunkOptions) -> Result<()> {
    let target = disk.path();
    let io = |error: io::Error| ChunkError::io(&target, &error);
    let _lock = lock(disk, &target)?;
    let names = disk.list().map_err(io)?;
    let own = |name: &String| {
        let ours = [table::FILE, reserve::FILE, log::FILES[0], log::FILES[1]];
        ours.contains(&name.as_str()) || name.starts_with(data::PREFIX)
    };
    // What is ours without an identity was left by a format that was cut off.
    if names.iter().any(|name| !own(name) && name != identity::NEW_FILE) {
        return Err(ChunkError::Occupied { target });
    }
    for name in &names {
        disk.remove(name).map_err(io)?;
    }
    Table::create(disk, options.map_cache_bytes, options.reserve_bytes)?;
    Log::format(disk, options.log_bytes_max).map_err(io)?;
    disk.sync_directory().map_err(io)?;
    identity.write(disk)
}

/// Opens a target: the durable map, and what the logs add to it.
pub(super) fn open(disk: Arc<dyn Disk>, options: ChunkOptions) -> Result<Arc<Store>> {
    let target = disk.path();
    // What is read is checked, but redb reads some of it before it checks it.
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| open_unguarded(disk, options)));
    opened.unwrap_or_else(|_told| {
        let cause = "what it holds cannot be understood; the log says where".to_owned();
        Err(ChunkError::Damaged { target, cause })
    })
}

fn open_unguarded(disk: Arc<dyn Disk>, options: ChunkOptions) -> Result<Arc<Store>> {
    let target = disk.path();
    let io = |error: io::Error| ChunkError::io(&target, &error);
    let lock = lock(&*disk, &target)?;
    let identity = identity_in(&*disk, options.cluster.as_deref())?;
    let has_failed = boot::has_ended(&*disk);
    if has_failed {
        reread(&*disk).map_err(io)?;
    }
    // The second is held until the target is open.
    let (share, _ahead) = (Share::begin(), table::read_ahead(&*disk));
    let table = Table::open(&*disk, options.map_cache_bytes, options.reserve_bytes)?;
    let durable = table.generation()?;
    // Of what was not synced when a disk failed no more is known than after a power loss.
    let boot_id = if has_failed { String::new() } else { disk.boot_id().map_err(io)? };
    let (log, found) = Log::open(&*disk, options.log_bytes_max, durable, &boot_id).map_err(io)?;
    let boot = Boot::open(&*disk)?;
    let capacity_bytes = match options.capacity_bytes {
        Some(bytes) => bytes,
        None => disk.space().map_err(io)?.0,
    };
    let commit = Commit {
        log,
        queue: Vec::new(),
        queued_weight: 0,
        segments: BTreeSet::new(),
        unsynced_bytes: 0,
        unmarked: Unmarked::default(),
        map_bytes: 0,
        flushing_bytes: 0,
    };
    let mut store = Store {
        target: target.clone(),
        identity,
        resident: Resident::new(options.map_cache_bytes),
        options,
        flushes: Mutex::new(Flushes { durable, ..Flushes::default() }),
        flushed: Condvar::new(),
        commit: Mutex::new(commit),
        space: Mutex::new(Space::new(capacity_bytes)),
        table,
        data: Data::new(disk.clone(), share),
        disk,
        boot,
        buffers: Buffers::default(),
        place: Mutex::default(),
        poison: OnceLock::new(),
        chunks: AtomicU64::new(0),
        corrupt: AtomicU64::new(0),
        unread: Mutex::default(),
        signal: Arc::default(),
        amounts: Mutex::default(),
        _lock: lock,
    };
    let written = store.load_space()?;
    store.check_files(&written)?;
    if found.is_of_boot {
        store.check_logged(&found.edits)?;
    }
    store.identity.upgrade(&*store.disk)?;
    store.carry_out_again(found)?;
    if has_failed {
        store.commit.lock().log.forget_other().map_err(io)?;
        store.boot.begin_anew().map_err(io)?;
    }
    // They are told for as long as a lock is not to be had.
    store.amounts();
    Ok(Arc::new(store))
}

/// What the target says it is: of this cluster, if one is named, or of none yet.
fn identity_in(disk: &dyn Disk, cluster: Option<&str>) -> Result<Identity> {
    let target = disk.path();
    let Some(identity) = Identity::read(disk)? else { return Err(ChunkError::Missing { target }) };
    match cluster {
        Some(expected) if !identity.cluster.is_empty() && identity.cluster != expected => {
            let (found, expected) = (identity.cluster, expected.to_owned());
            Err(ChunkError::Foreign { target, found, expected })
        }
        _ => Ok(identity),
    }
}

/// A disk has failed under an earlier process: only what it really has counts.
fn reread(disk: &dyn Disk) -> io::Result<()> {
    tracing::warn!(target_dir = %disk.path(), "the disk had failed: reading what it has");
    let named = [table::FILE, log::FILES[0], log::FILES[1], identity::FILE];
    let names = disk.list()?;
    let own = |name: &&String| named.contains(&name.as_str()) || name.starts_with(data::PREFIX);
    names.iter().filter(own).try_for_each(|name| disk.open(name, false)?.reread())
}

fn lock(disk: &dyn Disk, target: &str) -> Result<Box<dyn Send + Sync>> {
    disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => ChunkError::InUse { target: target.to_owned() },
        _ => ChunkError::io(target, &error),
    })
}

/// How many blocks of each data file hold what was written, from its beginning to the last of them.
#[derive(Default)]
struct Written(Vec<u64>);

impl Written {
    fn note(&mut self, at: u64) {
        let (nth, end) = ((at / SEGMENT_BLOCKS) as usize, at % SEGMENT_BLOCKS + 1);
        if nth >= self.0.len() {
            self.0.resize(nth + 1, 0);
        }
        self.0[nth] = self.0[nth].max(end);
    }

    fn note_edits(&mut self, edits: &[Edit]) {
        let runs = edits.iter().flat_map(|edit| &edit.runs);
        let data = runs.filter(|run| run.kind == Kind::Data);
        data.flat_map(Run::places).for_each(|at| self.note(at));
    }
}

impl Store {
    /// Learns from the durable map which places are used, and how often. Returns what the data files must hold.
    fn load_space(&self) -> Result<Written> {
        let mut space = self.space.lock();
        let mut written = Written::default();
        let (mut chunks, mut leaves, all) = (0, 0u64, self.table.leaf_count()?);
        self.table.scan([0; KEY_BYTES]..=[u8::MAX; KEY_BYTES], |_, map| {
            chunks += 1;
            let before = leaves;
            leaves += u64::from(map.stored.count_ones());
            if leaves / LEAVES_TOLD > before / LEAVES_TOLD {
                tracing::info!(target_dir = %self.target, leaves, all, "reading the extent map");
            }
            for block in map.iter() {
                if let Some(at) = block.place() {
                    space.name(at);
                }
                if let Block::Data(at, _) = block {
                    written.note(at);
                }
            }
            true
        })?;
        self.chunks.store(chunks, Ordering::Relaxed);
        // Whatever is not seen here would be taken for free.
        match all {
            count if count == leaves => Ok(written),
            count => Err(ChunkError::Damaged {
                target: self.target.clone(),
                cause: format!("{} shows {leaves} leaves of {count}", table::FILE),
            }),
        }
    }

    /// Refuses a target that has lost a data file, or the end of one: a new one would be made in its place, and nobody would know
    /// before he reads.
    fn check_files(&self, written: &Written) -> Result<()> {
        for (nth, blocks) in written.0.iter().enumerate().filter(|(_, blocks)| **blocks > 0) {
            let (name, needed) = (data::name_of(nth), blocks * BLOCK_BYTES);
            let found = self.data.file_bytes(nth);
            let cause = match found.map_err(|error| ChunkError::io(&self.target, &error))? {
                Some(bytes) if bytes >= needed => continue,
                Some(bytes) => {
                    format!(
                        "{name} ends at byte {bytes}, and contents of files lay up to byte {needed} (recover.md)"
                    )
                }
                None => format!(
                    "{name} is missing, and contents of files lay in it: put it back (recover.md)"
                ),
            };
            return Err(ChunkError::Damaged { target: self.target.clone(), cause });
        }
        Ok(())
    }

    /// The same of what the logs add, if no power was lost since. Nobody was promised that for longer than to an unmount by force:
    /// where one goes unnoticed, it is only told.
    fn check_logged(&self, edits: &[Edit]) -> Result<()> {
        let mut written = Written::default();
        written.note_edits(edits);
        let checked = self.check_files(&written);
        let Err(ChunkError::Damaged { cause, .. }) = &checked else { return checked };
        let known = self.disk.knows_unmounts();
        if known.map_err(|error| ChunkError::io(&self.target, &error))? {
            return checked;
        }
        tracing::warn!(target_dir = %self.target, cause, "what was not synced is lost: was its disk unmounted by force?");
        Ok(())
    }

    /// Carries out the edits of the logs again and brings them into the durable map; only then may
    /// the files that hold them be used for new logs.
    fn carry_out_again(&self, found: Found) -> Result<()> {
        let mut commit = self.commit.lock();
        if !found.edits.is_empty() {
            tracing::info!(target_dir = %self.target, "recovering what was acknowledged");
        }
        for edit in &found.edits {
            self.carry_out_one(&mut commit, edit)?;
        }
        self.bring_back(&mut commit, &found).map_err(|error| self.not_brought_back(&error))?;
        // Even if nothing was found: the next log is to be the one that continues the durable map.
        if commit.log.generation > self.flushes.lock().durable {
            let snapshot = self.snapshot(&mut commit);
            self.flushes.lock().durable = self.flush(&snapshot)?;
        }
        self.table.room.settle(0);
        self.tell_map_room();
        commit.log.begin().map_err(|error| self.poisoned_by(error.to_string()))
    }

    /// An earlier process, or an earlier release, may have used up what is kept back for the map: nobody hears of that from a target
    /// that has just begun.
    fn tell_map_room(&self) {
        if !self.table.room.has_left(FOR_GROWTH) {
            tracing::error!(
                target_dir = %self.target,
                "the disk has no room for the extent map: nothing new is written there until something is deleted"
            );
        }
    }

    fn carry_out_one(&self, commit: &mut Commit, edit: &Edit) -> Result<()> {
        let chunk = self.chunk_or_new(edit.chunk)?;
        let (mut taken, mut given_up) = (Vec::new(), Vec::new());
        let map = &mut *chunk.map.write();
        let existed = map.exists;
        map.apply(edit, &mut taken, &mut given_up);
        match (existed, map.exists) {
            (false, true) => self.chunks.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.chunks.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        if !map.queued {
            map.queued = true;
            commit.queue.push(chunk.clone());
        }
        let mut space = self.space.lock();
        taken.into_iter().for_each(|at| space.name_again(at));
        given_up.into_iter().for_each(|at| space.give_up(at));
        Ok(())
    }

    /// Brings back what the edits found name: disk space that a power loss may have taken, or that went
    /// back to the disk when they were made and undone; and the contents of blocks that marks vouch for.
    fn bring_back(&self, commit: &mut Commit, found: &Found) -> io::Result<()> {
        let places = found.edits.iter().flat_map(|edit| &edit.runs).flat_map(Run::places);
        let granules: BTreeSet<u64> = places.map(|at| at / GRANULE_BLOCKS).collect();
        // What nothing names any more takes no room from what is named.
        let mut space = self.space.lock();
        let (gone, named): (BTreeSet<u64>, BTreeSet<u64>) =
            granules.into_iter().partition(|granule| space.let_go(*granule));
        drop(space);
        // First what nothing names: there may be no other room.
        self.punch_absent()?;
        for granule in named {
            let at = granule * GRANULE_BLOCKS;
            if let Err(error) = self.data.provision(granule, 1) {
                tracing::warn!(target_dir = %self.target, %error, "space set aside is lost");
            }
            // Without room, too: what a killed process has written there is not on disk yet.
            if self.data.is_there(at) {
                commit.segments.insert(at / SEGMENT_BLOCKS);
            }
        }
        for mark in &found.marks {
            let blocks = mark.blocks.chunks_exact(BLOCK_BYTES as usize);
            for (at, block) in each_place(&mark.places).zip(blocks) {
                if !gone.contains(&(at / GRANULE_BLOCKS)) {
                    self.data.write(block, at, 0)?;
                    commit.segments.insert(at / SEGMENT_BLOCKS);
                }
            }
        }
        Ok(())
    }

    fn not_brought_back(&self, error: &io::Error) -> ChunkError {
        if !is_full(error) {
            return ChunkError::io(&self.target, error);
        }
        let cause = "its disk has no room for what was synced before the power failed; make room on \
                     the disk and start again";
        ChunkError::Io { target: self.target.clone(), cause: cause.to_owned() }
    }

    /// Gives back what an earlier process had got from the disk and not used.
    fn punch_absent(&self) -> io::Result<()> {
        for (first, count) in self.data.granules()? {
            let absent = self.space.lock().absent(first, count);
            for (first, count) in absent {
                if let Err(error) = self.data.punch(first, count) {
                    tracing::warn!(target_dir = %self.target, %error, "cannot give space back");
                }
            }
        }
        Ok(())
    }
}
