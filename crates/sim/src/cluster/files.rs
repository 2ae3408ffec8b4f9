//! The workload on contents: each client writes its own files, and reads everybody's.

use super::mount::{DEAD_OVER, Mount};
use super::places::{Directories, Whereabouts, cred};
use super::plan::Plan;
use super::register::{BLOCK, Opened, Register, mark_of};
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{FallocateMode, OpenFile, OpenFlags, RenameFlags};
use strake_types::{Credentials, Error, ErrorKind, Ino, Result};

/// Files that are made and removed again have numbers from here on, one for each client.
const BRIEF_FROM: u32 = 1 << 24;
/// A session lasts for longer than this after it was heard of.
const SESSION: Duration = Duration::from_secs(20);
/// So many of a hundred writes are dropped where they wait, as those of a process that is killed,
pub(super) const DROPPED: u64 = 3;
/// within this time.
pub(super) const DROPPED_AFTER_MS: u64 = 40;
/// Permission bits of what is made.
const MODE: u32 = 0o644;

/// All files, and what is known of them.
pub struct Files {
    world: Arc<World>,
    registers: Vec<Mutex<Register>>,
    /// Which file has which inode.
    inos: Mutex<BTreeMap<Ino, u32>>,
    places: Vec<Whereabouts>,
    directories: Arc<Directories>,
    /// Counts what may have ended a client's session.
    upsets: AtomicU64,
    /// For so many reasons that may happen at any time.
    doubts: AtomicU64,
    /// Until then what a client that died had sent may arrive.
    dead_until: Mutex<Duration>,
    /// Counts files that are made and removed again.
    brief: AtomicU64,
    owners: u32,
    /// What is written lies inside inodes.
    inline: bool,
    /// So many of a hundred ranges may be long.
    long_ranges: u64,
    /// Longest pause of a client between two uses of files.
    pause_ms: u64,
    /// The workload is to end.
    pub ending: AtomicBool,
}

impl Files {
    /// The files of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan, directories: &Arc<Directories>) -> Arc<Self> {
        let register = |file| {
            let mut register = Register::new(file, plan.blocks);
            if plan.acknowledges_alone() {
                register.acknowledge_alone();
            }
            Mutex::new(register)
        };
        let registers = (0..plan.files).map(register).collect();
        let mut random = world.stream(0x9006);
        let place = |file| Whereabouts::new(directories, name_of(file), &mut random);
        let places = (0..plan.files).map(place).collect();
        let ending = AtomicBool::new(false);
        let (owners, inline, pause_ms) = (plan.clients, plan.is_inline(), plan.pause_ms);
        let long_ranges = plan.long_ranges();
        let (world, directories) = (world.clone(), directories.clone());
        let (inos, upsets, doubts, dead_until, brief) = Default::default();
        Arc::new(Self {
            world,
            registers,
            inos,
            places,
            directories,
            upsets,
            doubts,
            dead_until,
            brief,
            owners,
            inline,
            long_ranges,
            pause_ms,
            ending,
        })
    }

    /// Machines have lost power, and with it what nobody else had.
    pub fn power_lost(&self) {
        self.registers.iter().for_each(|register| register.lock().power_lost());
    }

    /// The machine of the metadata server has lost power, and with it what its journal had not synced.
    pub fn journal_lost(&self) {
        let registers = self.registers.iter().filter(|_| self.inline);
        registers.for_each(|register| register.lock().journal_lost());
    }

    /// The metadata server was restarted, or a client is evicted.
    pub fn may_be_missed(&self) {
        self.upsets.fetch_add(1, Ordering::Relaxed);
        self.registers.iter().for_each(|register| register.lock().may_be_missed());
        let now = self.world.now();
        let mut until = self.dead_until.lock();
        if now < *until {
            // A metadata server that begins gives it another lease.
            *until = now + DEAD_OVER;
        }
    }

    /// A client was to be evicted, and nobody knows whether and when it is.
    pub fn may_be_missed_at_any_time(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
        self.registers.iter().for_each(|register| register.lock().may_be_missed_at_any_time());
    }

    /// By now it is, or never will be.
    pub fn doubt_ends(&self) {
        self.upsets.fetch_add(1, Ordering::Relaxed);
        self.doubts.fetch_sub(1, Ordering::Relaxed);
        self.registers.iter().for_each(|register| register.lock().doubt_ends());
    }

    /// A disk is full: what finds no room is given up, and others read on before its writer is told (seed 2790000000350).
    pub fn may_find_no_room(&self) {
        self.registers.iter().for_each(|register| register.lock().may_be_missed_at_any_time());
    }

    /// The disk has room again, and what found none has been refused.
    pub fn finds_room(&self) {
        self.registers.iter().for_each(|register| register.lock().doubt_ends());
    }

    /// All copies are equal again.
    pub fn whole_again(&self) {
        self.registers.iter().for_each(|register| register.lock().whole_again());
    }

    /// Numbers of all files.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.registers.len() as u32
    }

    fn register(&self, file: u32) -> &Mutex<Register> {
        &self.registers[file as usize]
    }

    fn place(&self, file: u32) -> &Whereabouts {
        &self.places[file as usize]
    }

    fn wrong<T>(&self, checked: std::result::Result<T, String>) {
        if let Err(what) = checked {
            self.world.fail(what);
        }
    }

    /// Makes a file, and writes all of it.
    pub async fn make(&self, mount: &Mount, file: u32) -> Result<()> {
        let (cred, (directory, name)) = (Credentials::root(), self.place(file).birthplace());
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let made = mount.volume.create(&cred, directory, name, MODE, 0, flags);
        let (_, open, _) = mount.call("create", made).await?;
        self.inos.lock().insert(open.ino(), file);
        let blocks = self.register(file).lock().len();
        self.write(mount, file, &open, 0, blocks).await?;
        self.sync(mount, file, &open).await?;
        self.release(mount, file, &open).await
    }

    pub(super) async fn write(
        &self,
        mount: &Mount,
        file: u32,
        open: &Arc<OpenFile>,
        first: u64,
        count: u64,
    ) -> Result<()> {
        let (version, data) = self.register(file).lock().begin_write(first, count);
        let what = format!("write file {file} blocks {first}+{count} version {version}");
        let written = mount.call(&what, mount.volume.write(open, first * BLOCK, data)).await;
        match &written {
            Ok(_) => self.register(file).lock().written(first, count, version),
            Err(_) => self.register(file).lock().failed(),
        }
        written.map(drop)
    }

    /// As [`Files::write`] by a process that is killed after a time: nobody knows what becomes of what it has not done by then.
    async fn write_and_die(
        &self,
        mount: &Mount,
        file: u32,
        open: &Arc<OpenFile>,
        (first, count): (u64, u64),
        life: Duration,
    ) -> Result<()> {
        let (version, data) = self.register(file).lock().begin_write(first, count);
        let what = format!("write file {file} blocks {first}+{count} version {version}, {life:?}");
        let write = mount.volume.write(open, first * BLOCK, data);
        match mount.call_for(&what, life, write).await {
            Ok(Some(_)) => self.register(file).lock().written(first, count, version),
            Ok(None) => {
                strake_base::count_case("write-dropped");
                self.register(file).lock().forget_own();
            }
            Err(error) => {
                self.register(file).lock().failed();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn punch(
        &self,
        mount: &Mount,
        file: u32,
        open: &Arc<OpenFile>,
        (first, count): (u64, u64),
    ) -> Result<()> {
        let version = self.register(file).lock().begin_zero(first, count);
        let what = format!("punch file {file} blocks {first}+{count} version {version}");
        let (offset, len) = (first * BLOCK, count * BLOCK);
        let punched = mount.volume.fallocate(open, FallocateMode::Punch, offset, len);
        let punched = mount.call(&what, punched).await;
        match &punched {
            Ok(()) if self.inline => self.register(file).lock().written(first, count, version),
            Ok(()) => self.register(file).lock().zeroed(first, count, version),
            Err(_) => self.register(file).lock().failed(),
        }
        punched
    }

    /// Reserves room, which changes nothing of what is there.
    async fn reserve(
        &self,
        mount: &Mount,
        file: u32,
        open: &Arc<OpenFile>,
        (first, count): (u64, u64),
    ) -> Result<()> {
        let what = format!("reserve file {file} blocks {first}+{count}");
        let (offset, len) = (first * BLOCK, count * BLOCK);
        let reserved = mount.volume.fallocate(open, FallocateMode::KeepSize, offset, len);
        let reserved = mount.call(&what, reserved).await;
        match &reserved {
            Ok(()) => strake_base::count_case("room-reserved"),
            Err(_) => self.register(file).lock().failed(),
        }
        reserved
    }

    pub(super) async fn sync(&self, mount: &Mount, file: u32, open: &Arc<OpenFile>) -> Result<()> {
        let what = format!("fsync file {file}");
        let misses = self.register(file).lock().misses();
        let synced = mount.call(&what, mount.volume.fsync(open, false)).await;
        self.answered(file, &synced, true);
        if synced.is_ok() {
            // It asks the metadata server whatever there is to sync.
            self.register(file).lock().heard(misses);
        }
        synced
    }

    pub(super) async fn release(
        &self,
        mount: &Mount,
        file: u32,
        open: &Arc<OpenFile>,
    ) -> Result<()> {
        let what = format!("close file {file}");
        let flushed = mount.call(&what, mount.volume.flush(open)).await;
        self.answered(file, &flushed, false);
        mount.call(&what, mount.volume.release(open)).await
    }

    fn answered(&self, file: u32, outcome: &Result<()>, synced: bool) {
        let mut register = self.register(file).lock();
        let checked = match outcome {
            Ok(()) => register.acknowledged(synced),
            Err(_) => {
                register.failed();
                Ok(())
            }
        };
        drop(register);
        self.wrong(checked);
    }

    pub(super) async fn open(
        &self,
        mount: &Mount,
        file: u32,
        flags: OpenFlags,
    ) -> Result<(Arc<OpenFile>, Opened)> {
        let opened = self.register(file).lock().open();
        let cred = Credentials::root();
        let attr = self.place(file).find(mount).await?;
        let open = mount.volume.open(&cred, attr.ino, flags);
        Ok((mount.call(&format!("open file {file}"), open).await?, opened))
    }

    pub(super) async fn read(
        &self,
        mount: &Mount,
        file: u32,
        (open, opened): (&Arc<OpenFile>, &Opened),
        (first, count): (u64, u64),
    ) -> Result<()> {
        let what = format!("read file {file} blocks {first}+{count}");
        let len = (count * BLOCK) as u32;
        let opened = &self.register(file).lock().read(opened);
        let read = mount.call(&what, mount.volume.read(open, first * BLOCK, len)).await?;
        let data = read.into_bytes();
        let own = self.is_owner(mount, file) && open.flags().write;
        if data.len() as u64 != count * BLOCK {
            self.world.fail(format!("file {file} blocks {first}+{count}: {} bytes", data.len()));
        }
        let checked = self.register(file).lock().check(opened, first, &data, own);
        self.wrong(checked);
        Ok(())
    }

    fn is_owner(&self, mount: &Mount, file: u32) -> bool {
        file % self.owners == mount.number % self.owners
    }

    fn own_of(&self, mount: &Mount) -> Vec<u32> {
        self.numbers().filter(|&file| self.is_owner(mount, file)).collect()
    }

    /// What a mount has written and not told is gone with it.
    pub fn forget(&self, mount: &Mount) {
        *self.dead_until.lock() = self.world.now() + DEAD_OVER;
        for file in self.own_of(mount) {
            self.register(file).lock().died();
        }
    }

    fn range(&self, file: u32, random: &mut SplitMix64) -> (u64, u64) {
        let blocks = self.register(file).lock().len();
        let first = random.below(blocks);
        let most = if random.percent(self.long_ranges) { blocks } else { 6 };
        (first, 1 + random.below(most.min(blocks - first)))
    }

    /// Writes files until the workload ends.
    pub async fn write_on(&self, mount: &Mount, mut random: SplitMix64) {
        let own = self.own_of(mount);
        while !self.ending.load(Ordering::Relaxed) && !own.is_empty() {
            let file = own[random.below(own.len() as u64) as usize];
            let failed = self.write_once(mount, file, &mut random).await.err();
            consider(&self.world, failed.map(|e| e.kind));
            if self.directories.are_several() {
                let failed = match random.percent(50) {
                    true => self.place(file).relocate(mount, &mut random).await.err(),
                    false => self.use_briefly(mount, &mut random).await.err(),
                };
                consider(&self.world, failed.map(|e| e.kind));
            }
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    async fn write_once(&self, mount: &Mount, file: u32, random: &mut SplitMix64) -> Result<()> {
        let (open, opened) = self.open(mount, file, OpenFlags::READ_WRITE).await?;
        let mut outcome = Ok(());
        for _ in 0..1 + random.below(6) {
            let (first, count) = self.range(file, random);
            outcome = match random.below(12) {
                0..5 if random.percent(DROPPED) => {
                    let life = Duration::from_millis(random.below(DROPPED_AFTER_MS));
                    self.write_and_die(mount, file, &open, (first, count), life).await
                }
                0..5 => self.write(mount, file, &open, first, count).await,
                5..8 => self.read(mount, file, (&open, &opened), (first, count)).await,
                8 => self.sync(mount, file, &open).await,
                9 => self.punch(mount, file, &open, (first, count)).await,
                // What is to stay inside its inode has no room of its own.
                10 if !self.inline => self.reserve(mount, file, &open, (first, count)).await,
                _ => {
                    tokio::time::sleep(Duration::from_millis(random.below(2_500))).await;
                    Ok(())
                }
            };
            if outcome.is_err() {
                break;
            }
        }
        outcome.and(self.release(mount, file, &open).await)
    }

    /// Reads files until the workload ends.
    pub async fn read_on(&self, mount: &Mount, mut random: SplitMix64) {
        while !self.ending.load(Ordering::Relaxed) {
            let file = random.below(u64::from(self.numbers().end)) as u32;
            // What this mount has written is in its memory.
            if !self.is_owner(mount, file) {
                let failed = self.read_once(mount, file, &mut random).await.err();
                consider(&self.world, failed.map(|e| e.kind));
            }
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    async fn read_once(&self, mount: &Mount, file: u32, random: &mut SplitMix64) -> Result<()> {
        let (open, opened) = self.open(mount, file, OpenFlags::READ).await?;
        let mut outcome = Ok(());
        for _ in 0..1 + random.below(3) {
            let range = self.range(file, random);
            outcome = outcome.and(self.read(mount, file, (&open, &opened), range).await);
        }
        let released = mount.volume.release(&open);
        outcome.and(mount.call(&format!("close file {file}"), released).await)
    }

    /// Reads all of a file, which has to work.
    pub async fn read_whole(&self, mount: &Mount, file: u32) -> Result<()> {
        let (open, opened) = self.open(mount, file, OpenFlags::READ).await?;
        let blocks = self.register(file).lock().len();
        self.read(mount, file, (&open, &opened), (0, blocks)).await?;
        mount.call("close", mount.volume.release(&open)).await
    }

    /// True if an inode is that of a file which may say that it occupies nothing although targets hold something.
    pub fn may_seem_empty(&self, ino: Ino) -> bool {
        let file = self.inos.lock().get(&ino).copied();
        file.is_some_and(|file| self.register(file).lock().may_seem_empty())
    }

    /// Files of which a dead client may have had something under way.
    pub fn awaiting_the_dead(&self) -> Vec<u32> {
        self.numbers().filter(|file| self.register(*file).lock().awaits_the_dead()).collect()
    }

    /// When nothing of clients that died arrives any more.
    pub fn dead_until(&self) -> Duration {
        *self.dead_until.lock()
    }

    /// Writes all of a file of which nothing of the dead arrives any more, and reads it on another mount.
    pub async fn rewrite(&self, mount: &Mount, file: u32, reader: &Mount) -> Result<()> {
        let (open, _) = self.open(mount, file, OpenFlags::READ_WRITE).await?;
        // What another mount has written, and seen, is nothing that this one is told of.
        self.register(file).lock().forget_own();
        let blocks = self.register(file).lock().len();
        self.write(mount, file, &open, 0, blocks).await?;
        self.sync(mount, file, &open).await?;
        self.release(mount, file, &open).await?;
        self.register(file).lock().dead_are_over();
        strake_base::count_case("read-after-death");
        self.read_whole(reader, file).await
    }

    /// Removes a file.
    pub async fn remove(&self, mount: &Mount, file: u32) -> Result<()> {
        self.place(file).remove(mount).await
    }

    /// Makes a file in one directory, writes it, moves it to another one, finds it there, and removes it while it is
    /// open.
    async fn use_briefly(&self, mount: &Mount, random: &mut SplitMix64) -> Result<()> {
        let nth = self.brief.fetch_add(1, Ordering::Relaxed);
        let mut directory = || self.directories.get(random.below(u64::MAX) as usize);
        let (from, to) = (directory(), directory());
        let (cred, name) = (cred(), Bytes::from(format!("brief-{nth}")));
        let made = mount.volume.create(&cred, from, name.clone(), MODE, 0, OpenFlags::READ_WRITE);
        let (_, open, _) = mount.call(&format!("make {name:?}"), made).await?;
        let (began, upsets) = (self.world.now(), self.upsets.load(Ordering::Relaxed));
        let using = async {
            let used = self.use_open(mount, &open, (from, to), &name, random).await;
            let released = mount.volume.release(&open);
            used.and(mount.call(&format!("close {name:?}"), released).await)
        };
        // It is still there then, and of what was written before that nobody has asked what becomes of it.
        let used = self.world.lengthening(mount.number, open.ino(), using).await;
        // Its session may be over, and with that the file that has no name.
        let lost = self.world.now() - began > SESSION
            || self.doubts.load(Ordering::Relaxed) > 0
            || self.upsets.load(Ordering::Relaxed) != upsets;
        if used.is_ok() {
            strake_base::count_case("file-deleted-while-open");
        }
        match used {
            Err(error) if error.kind == ErrorKind::Stale && lost => {
                Err(Error::with(ErrorKind::Unavailable, "the session was lost"))
            }
            used => used,
        }
    }

    async fn use_open(
        &self,
        mount: &Mount,
        open: &Arc<OpenFile>,
        (from, to): (Ino, Ino),
        name: &Bytes,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let (cred, volume) = (cred(), &mount.volume);
        let id = BRIEF_FROM + mount.number;
        let blocks = 1 + random.below(6);
        let (_, data) = Register::new(id, blocks).begin_write(0, blocks);
        mount.call(&format!("write {name:?}"), volume.write(open, 0, data)).await?;
        if random.percent(50) {
            mount.call(&format!("fsync {name:?}"), volume.fsync(open, false)).await?;
        }
        let flags = RenameFlags::default();
        let renamed = volume.rename(&cred, from, name.clone(), to, name.clone(), flags);
        mount.call(&format!("rename {name:?}"), renamed).await?;
        self.find_brief(mount, open, (to, name), random).await?;
        self.read_brief(mount, open, id, blocks).await?;
        let unlinked = volume.unlink(&cred, to, name.clone());
        mount.call(&format!("unlink {name:?}"), unlinked).await?;
        self.read_brief(mount, open, id, blocks).await
    }

    /// A name leads to a file, and opens it where it would make one otherwise.
    async fn find_brief(
        &self,
        mount: &Mount,
        open: &OpenFile,
        (directory, name): (Ino, &Bytes),
        random: &mut SplitMix64,
    ) -> Result<()> {
        let (cred, volume, flags) = (cred(), &mount.volume, OpenFlags::READ_WRITE);
        let found = match random.percent(50) {
            true => {
                let found = volume.lookup(&cred, directory, name.clone());
                mount.call(&format!("lookup {name:?}"), found).await?.ino
            }
            false => {
                let made = volume.create(&cred, directory, name.clone(), MODE, 0, flags);
                let (attr, again, _) = mount.call(&format!("make {name:?} again"), made).await?;
                mount.call("close it again", volume.release(&again)).await?;
                attr.ino
            }
        };
        if found != open.ino() {
            self.world.fail(format!("{name:?} leads to {found} after a rename"));
        }
        Ok(())
    }

    /// What was not synced may be lost with machines, but nothing else is there.
    async fn read_brief(
        &self,
        mount: &Mount,
        open: &Arc<OpenFile>,
        id: u32,
        blocks: u64,
    ) -> Result<()> {
        let read = mount.volume.read(open, 0, (blocks * BLOCK) as u32);
        let bytes = mount.call("read a brief file", read).await?.into_bytes();
        for (block, bytes) in (0..).zip(bytes.chunks(BLOCK as usize)) {
            let mark = mark_of(bytes);
            if mark.is_none_or(|mark| mark.is_some_and(|(file, at, _)| (file, at) != (id, block))) {
                self.world.fail(format!("a brief file of {} has {mark:?}", mount.number));
            }
        }
        Ok(())
    }
}

/// Trouble explains that something cannot be done now, but nothing else.
pub fn consider(world: &World, failed: Option<ErrorKind>) {
    let disks_fill = world.disks_fill.load(Ordering::Relaxed);
    if let Some(kind) = failed.filter(|kind| !is_explained(*kind, disks_fill)) {
        world.fail(format!("a client was told {kind:?}"));
    }
}

/// True if trouble explains such an error; `disks_fill`: some are full at times.
fn is_explained(kind: ErrorKind, disks_fill: bool) -> bool {
    use ErrorKind::{Io, NoSpace, NotCurrent, StaleMap, TimedOut, Unavailable};
    match kind {
        Io | NotCurrent | StaleMap | TimedOut | Unavailable => true,
        NoSpace => disks_fill,
        _ => false,
    }
}

fn name_of(file: u32) -> Bytes {
    format!("file-{file}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one kind of trouble explains was explained in every run, and a target that takes no writes any more, too.
    #[test]
    fn no_room_is_explained_by_full_disks_only_and_a_stopped_target_by_nothing() {
        assert!(is_explained(ErrorKind::NoSpace, true) && !is_explained(ErrorKind::NoSpace, false));
        assert!(is_explained(ErrorKind::Unavailable, false));
        assert!(!is_explained(ErrorKind::Poisoned, true));
    }
}
