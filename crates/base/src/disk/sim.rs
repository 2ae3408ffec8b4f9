//! A disk that exists only in memory and fails on command, the same way for the same seed.
//!
//! [`SimDisk`] is the machine: it can lose power, kill the process that uses it, refuse, fill up and
//! rot. What the process sees is the [`Disk`] of [`SimDisk::process`]; after a kill or a power loss
//! that one and all its files fail, and a new process starts with a new one.

mod content;

use super::{Disk, DiskFile, Place};
use crate::random::SplitMix64;
use content::{Change, Content, PAGE};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// What happens to the operation counted down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// It and all later ones fail, as if the process had died within it: a write may have been done
    /// in part. Ends with [`SimDisk::kill`] or [`SimDisk::power_loss`].
    Stop,
    /// It fails with an I/O error; later ones work.
    Io,
    /// It fails for lack of space; later ones work.
    Full,
    /// It fails because too many files are open; later ones work.
    Files,
}

struct State {
    random: SplitMix64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Names as they were after each change since they were last durable.
    name_history: Vec<BTreeMap<String, u64>>,
    files: BTreeMap<u64, File>,
    next_file: u64,
    capacity_pages: u64,
    boot: u64,
    /// Which process is alive: handles of another one fail.
    process: u64,
    locked: bool,
    /// Changes and syncs so far.
    operations: u64,
    fault: Option<(u64, SimFault)>,
    stopped: bool,
    syncs_fail: bool,
    cold: bool,
    unmounts_hidden: bool,
}

#[derive(Default)]
struct File {
    now: Content,
    durable: Content,
    pending: Vec<Change>,
    /// Pages that cannot be read until they are written as a whole, or have been tried so many times.
    unreadable: BTreeMap<u64, u64>,
}

impl File {
    /// True if a write would have to read a page, for what stays in it, and the disk does not read that one.
    fn cannot_fill(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut pages = self.unreadable.range(offset / PAGE..end.div_ceil(PAGE));
        len > 0 && pages.any(|(page, _)| page * PAGE < offset || end < (page + 1) * PAGE)
    }

    /// A read of some pages. False if the disk does not read one of them.
    fn try_pages(&mut self, pages: Range<u64>) -> bool {
        let mut tried = false;
        for (_, times) in self.unreadable.range_mut(pages) {
            *times -= 1;
            tried = true;
        }
        self.unreadable.retain(|_, times| *times > 0);
        !tried
    }
}

impl SimDisk {
    /// An empty disk. Everything random about it comes from `seed`.
    pub fn new(seed: u64, capacity_bytes: u64) -> Self {
        let state = State {
            random: SplitMix64::new(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_history: Vec::new(),
            files: BTreeMap::new(),
            next_file: 1,
            capacity_pages: capacity_bytes / PAGE,
            boot: 1,
            process: 1,
            locked: false,
            operations: 0,
            fault: None,
            stopped: false,
            syncs_fail: false,
            cold: false,
            unmounts_hidden: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk as the present process sees it.
    pub fn process(&self) -> Arc<dyn Disk> {
        Arc::new(SimProcess { state: self.state.clone(), process: self.state.lock().process })
    }

    /// Kills the process: its lock is gone, everything it wrote stays.
    pub fn kill(&self) {
        self.state.lock().end_process();
    }

    /// Cuts the power: what was not synced is lost, kept or torn, each by chance; names too.
    pub fn power_loss(&self) {
        let state = &mut *self.state.lock();
        state.end_process();
        state.boot += 1;
        let keep_percent = [0, 10, 50, 90, 100][state.random.below(5) as usize];
        let kept_names = state.random.below(state.name_history.len() as u64 + 1) as usize;
        if kept_names > 0 {
            state.durable_names = state.name_history.swap_remove(kept_names - 1);
        }
        state.name_history.clear();
        state.names = state.durable_names.clone();
        for file in state.files.values_mut() {
            for change in std::mem::take(&mut file.pending) {
                file.durable.apply_torn(&change, &mut state.random, keep_percent);
            }
            file.now = file.durable.clone();
        }
        state.drop_nameless();
    }

    /// Puts the files of `other` in the place of this disk's, as who restores a copy does: with the
    /// same names and contents, all of it durable. The process that uses this disk is killed.
    pub fn restore(&self, other: &SimDisk) {
        let copied: Vec<(String, Content)> = {
            let state = other.state.lock();
            let file = |(name, id): (&String, &u64)| {
                Some((name.clone(), state.files.get(id)?.now.clone()))
            };
            state.names.iter().filter_map(file).collect()
        };
        let state = &mut *self.state.lock();
        state.end_process();
        (state.names, state.files) = Default::default();
        for (name, content) in copied {
            let file = File { now: content.clone(), durable: content, ..File::default() };
            state.names.insert(name, state.next_file);
            state.files.insert(state.next_file, file);
            state.next_file += 1;
        }
        state.durable_names = state.names.clone();
        state.name_history.clear();
    }

    /// Lets the operation after `count` more changes or syncs meet `fault`.
    pub fn fault_after(&self, count: u64, fault: SimFault) {
        let state = &mut *self.state.lock();
        state.fault = Some((state.operations + count, fault));
    }

    /// True if a [`SimFault::Stop`] has been reached.
    pub fn stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Changes and syncs so far: what [`SimDisk::fault_after`] counts.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Whether every sync of a file fails from now on. As with a real kernel, what a failed sync
    /// was to write counts as written afterwards, but is on the disk only by chance.
    pub fn set_syncs_fail(&self, fail: bool) {
        self.state.lock().syncs_fail = fail;
    }

    /// Others take all that is free; returns the capacity in bytes that it had.
    pub fn fill(&self) -> u64 {
        let mut state = self.state.lock();
        let capacity = state.capacity_pages;
        state.capacity_pages -= state.free_pages();
        capacity * PAGE
    }

    /// Changes how much the disk holds.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state.lock().capacity_pages = capacity_bytes / PAGE;
    }

    /// Whether nothing is in the kernel's cache: [`DiskFile::read_cached_at`] then always refuses.
    pub fn set_cold(&self, cold: bool) {
        self.state.lock().cold = cold;
    }

    /// From now on nobody can know whether it was unmounted, as of some file systems.
    pub fn hide_unmounts(&self) {
        self.state.lock().unmounts_hidden = true;
    }

    /// Bytes of space that a file occupies.
    pub fn occupied(&self, name: &str) -> u64 {
        let state = self.state.lock();
        let file = state.names.get(name).and_then(|id| state.files.get(id));
        file.map_or(0, |file| file.now.occupied_pages() * PAGE)
    }

    /// Where the pages of a file begin that were written to.
    pub fn written(&self, name: &str) -> Vec<u64> {
        let state = self.state.lock();
        let file = state.names.get(name).and_then(|id| state.files.get(id));
        file.map(|file| file.now.written_pages().map(|page| page * PAGE).collect())
            .unwrap_or_default()
    }

    /// Makes the page that has a byte unreadable, as a bad sector does, until it is written as a whole:
    /// to write a part of it, it is read.
    pub fn spoil(&self, name: &str, offset: u64) {
        self.spoil_for(name, offset, u64::MAX);
    }

    /// The same, until so many reads have met it.
    pub fn spoil_for(&self, name: &str, offset: u64, reads: u64) {
        let state = &mut *self.state.lock();
        if let Some(file) = state.names.get(name).and_then(|id| state.files.get_mut(id)) {
            file.unreadable.insert(offset / PAGE, reads);
        }
    }

    /// The disk reads again what it could not.
    pub fn unspoil(&self) {
        self.state.lock().files.values_mut().for_each(|file| file.unreadable.clear());
    }

    /// Flips a bit of a stored byte, on the disk and in the cache.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let state = &mut *self.state.lock();
        if let Some(file) = state.names.get(name).and_then(|id| state.files.get_mut(id)) {
            file.now.flip_bit(offset, bit);
            file.durable.flip_bit(offset, bit);
        }
    }
}

impl State {
    fn end_process(&mut self) {
        self.process += 1;
        self.locked = false;
        self.stopped = false;
        self.fault = None;
    }

    fn drop_nameless(&mut self) {
        let State { names, durable_names, files, name_history, .. } = self;
        let named = |id: &u64, map: &BTreeMap<String, u64>| map.values().any(|other| other == id);
        files.retain(|id, _| {
            named(id, names)
                || named(id, durable_names)
                || name_history.iter().any(|map| named(id, map))
        });
    }

    fn names_changed(&mut self) {
        self.name_history.push(self.names.clone());
    }

    fn free_pages(&self) -> u64 {
        let used: u64 = self.files.values().map(|file| file.now.occupied_pages()).sum();
        self.capacity_pages.saturating_sub(used)
    }

    /// True if the next operation is to fail for lack of open files: also to open a file that is there, which is not counted.
    fn is_out_of_files(&self) -> bool {
        matches!(self.fault, Some((at, SimFault::Files)) if self.operations >= at)
    }

    /// Counts an operation. `Err` if it is to fail.
    fn count(&mut self) -> Result<(), SimFault> {
        if self.stopped {
            return Err(SimFault::Stop);
        }
        self.operations += 1;
        match self.fault {
            Some((at, fault)) if self.operations > at => {
                self.fault = None;
                self.stopped = fault == SimFault::Stop;
                Err(fault)
            }
            _ => Ok(()),
        }
    }
}

/// What a disk says of a bad sector.
fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

fn error_of(fault: SimFault) -> io::Error {
    match fault {
        SimFault::Stop => io::Error::other("the simulated process is dead"),
        SimFault::Io => io::Error::other("simulated input/output error"),
        SimFault::Full => io::ErrorKind::StorageFull.into(),
        SimFault::Files => io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()),
    }
}

/// A [`SimDisk`] as one process sees it.
struct SimProcess {
    state: Arc<Mutex<State>>,
    process: u64,
}

/// An open file of a [`SimDisk`].
struct SimFile {
    state: Arc<Mutex<State>>,
    process: u64,
    id: u64,
}

/// The lock on a [`SimDisk`].
struct SimLock {
    state: Arc<Mutex<State>>,
    process: u64,
}

fn alive(state: &Mutex<State>, process: u64) -> io::Result<MutexGuard<'_, State>> {
    let guard = state.lock();
    if guard.process != process || guard.stopped {
        return Err(error_of(SimFault::Stop));
    }
    Ok(guard)
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.process == self.process {
            state.locked = false;
        }
    }
}

impl Disk for SimProcess {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = alive(&self.state, self.process)?;
        let id = match state.names.get(name).copied() {
            Some(id) => {
                if state.is_out_of_files() {
                    state.fault = None;
                    return Err(error_of(SimFault::Files));
                }
                id
            }
            None if !create => return Err(io::ErrorKind::NotFound.into()),
            None => {
                state.count().map_err(error_of)?;
                let id = state.next_file;
                state.next_file += 1;
                state.files.insert(id, File::default());
                state.names.insert(name.to_owned(), id);
                state.names_changed();
                id
            }
        };
        Ok(Arc::new(SimFile { state: self.state.clone(), process: self.process, id }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(alive(&self.state, self.process)?.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.count().map_err(error_of)?;
        state.names.remove(name);
        state.names_changed();
        state.drop_nameless();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.count().map_err(error_of)?;
        if let Some(id) = state.names.remove(from) {
            state.names.insert(to.to_owned(), id);
        }
        state.names_changed();
        state.drop_nameless();
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        state.count().map_err(error_of)?;
        state.durable_names = state.names.clone();
        state.name_history.clear();
        state.drop_nameless();
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = alive(&self.state, self.process)?;
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(SimLock { state: self.state.clone(), process: self.process }))
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let state = alive(&self.state, self.process)?;
        Ok((state.capacity_pages * PAGE, state.free_pages() * PAGE))
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(format!("boot-{}", alive(&self.state, self.process)?.boot))
    }

    fn knows_unmounts(&self) -> io::Result<bool> {
        Ok(!alive(&self.state, self.process)?.unmounts_hidden)
    }

    fn birth(&self, name: &str) -> io::Result<u64> {
        let state = alive(&self.state, self.process)?;
        state.names.get(name).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    /// Nobody moves it.
    fn place(&self) -> io::Result<Place> {
        Ok(Place::Same)
    }

    fn path(&self) -> String {
        "simulated disk".to_owned()
    }
}

impl SimFile {
    /// Applies a change, or the part of it that a process which dies within it has done.
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        let state = &mut *state;
        let outcome = state.count();
        let free = state.free_pages();
        let file = file_of(&mut state.files, self.id)?;
        let change = match (outcome, change) {
            (Ok(()), change) => {
                let needed = match &change {
                    Change::Write { offset, data } => {
                        file.now.missing_pages(*offset, data.len() as u64)
                    }
                    Change::Allocate { offset, len } => file.now.missing_pages(*offset, *len),
                    Change::SetLen(_) | Change::Punch { .. } => 0,
                };
                if needed > free {
                    return Err(error_of(SimFault::Full));
                }
                if let Change::Write { offset, data } = &change
                    && file.cannot_fill(*offset, data.len() as u64)
                {
                    return Err(unreadable());
                }
                change
            }
            (Err(SimFault::Stop), Change::Write { offset, mut data }) => {
                data.truncate(state.random.below(data.len() as u64 + 1) as usize);
                Change::Write { offset, data }
            }
            (Err(fault), _) => return Err(error_of(fault)),
        };
        if let Change::Write { offset, data } = &change {
            let end = offset + data.len() as u64;
            file.unreadable.retain(|page, _| page * PAGE >= end || (page + 1) * PAGE <= *offset);
        }
        file.now.apply(&change);
        file.pending.push(change);
        outcome.map_err(error_of)
    }
}

fn file_of(files: &mut BTreeMap<u64, File>, id: u64) -> io::Result<&mut File> {
    // A file without a name lives on while it is open; nobody looks at it afterwards.
    Ok(files.entry(id).or_default())
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        let file = file_of(&mut state.files, self.id)?;
        if offset + buf.len() as u64 > file.now.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = (offset + buf.len() as u64).div_ceil(PAGE);
        if !buf.is_empty() && !file.try_pages(offset / PAGE..end) {
            return Err(unreadable());
        }
        file.now.read(buf, offset);
        Ok(())
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        if alive(&self.state, self.process)?.cold {
            return Ok(false);
        }
        self.read_exact_at(buf, offset).map(|()| true)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write { offset, data: data.to_vec() })
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = alive(&self.state, self.process)?;
        let state = &mut *state;
        let mut outcome = state.count();
        if outcome == Err(SimFault::Stop) {
            return Err(error_of(SimFault::Stop));
        }
        if state.syncs_fail {
            outcome = Err(SimFault::Io);
        }
        let file = file_of(&mut state.files, self.id)?;
        for change in std::mem::take(&mut file.pending) {
            match outcome {
                Ok(()) => file.durable.apply(&change),
                Err(_) => file.durable.apply_torn(&change, &mut state.random, 50),
            }
        }
        outcome.map_err(error_of)
    }

    fn reread(&self) -> io::Result<()> {
        self.sync()?;
        let mut state = alive(&self.state, self.process)?;
        let file = file_of(&mut state.files, self.id)?;
        file.now = file.durable.clone();
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn len(&self) -> io::Result<u64> {
        let mut state = alive(&self.state, self.process)?;
        Ok(file_of(&mut state.files, self.id)?.now.len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Change::Allocate { offset, len })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Change::Punch { offset, len })
    }
}

#[cfg(test)]
mod tests;
