//! The workload on contents: each client writes its own files, and reads everybody's.

use super::mount::Mount;
use super::plan::Plan;
use super::register::{BLOCK, Opened, Register};
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{FallocateMode, OpenFile, OpenFlags};
use strake_types::{Credentials, ErrorKind, Ino, Result};

/// The directory of all files.
pub const ROOT: Ino = Ino(1);
/// Permission bits of what is made.
const MODE: u32 = 0o644;

/// All files, and what is known of them.
pub struct Files {
    world: Arc<World>,
    registers: Vec<Mutex<Register>>,
    owners: u32,
    /// Longest pause of a client between two uses of files.
    pause_ms: u64,
    /// The workload is to end.
    pub ending: AtomicBool,
}

impl Files {
    /// The files of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan) -> Arc<Self> {
        let register = |file| {
            let mut register = Register::new(file, plan.blocks);
            if plan.acknowledges_alone() {
                register.acknowledge_alone();
            }
            Mutex::new(register)
        };
        let registers = (0..plan.files).map(register).collect();
        let ending = AtomicBool::new(false);
        let (owners, pause_ms) = (plan.clients, plan.pause_ms);
        Arc::new(Self { world: world.clone(), registers, owners, pause_ms, ending })
    }

    /// Machines have lost power, and with it what nobody else had.
    pub fn power_lost(&self) {
        self.registers.iter().for_each(|register| register.lock().power_lost());
    }

    /// The metadata server was restarted, or a client is evicted.
    pub fn may_be_missed(&self) {
        self.registers.iter().for_each(|register| register.lock().may_be_missed());
    }

    /// A client was to be evicted, and nobody knows whether and when it is.
    pub fn may_be_missed_at_any_time(&self) {
        self.registers.iter().for_each(|register| register.lock().may_be_missed_at_any_time());
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

    fn wrong<T>(&self, checked: std::result::Result<T, String>) {
        if let Err(what) = checked {
            self.world.fail(what);
        }
    }

    /// Makes a file, and writes all of it.
    pub async fn make(&self, mount: &Mount, file: u32) -> Result<()> {
        let (cred, name) = (Credentials::root(), name_of(file));
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let made = mount.volume.create(&cred, ROOT, name, MODE, 0, flags);
        let (_, open, _) = mount.call("create", made).await?;
        let blocks = self.register(file).lock().len();
        self.write(mount, file, &open, 0, blocks).await?;
        self.sync(mount, file, &open).await?;
        self.release(mount, file, &open).await
    }

    async fn write(
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
            Ok(()) => self.register(file).lock().written(first, count, version),
            Err(_) => self.register(file).lock().failed(),
        }
        punched
    }

    async fn sync(&self, mount: &Mount, file: u32, open: &Arc<OpenFile>) -> Result<()> {
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

    async fn release(&self, mount: &Mount, file: u32, open: &Arc<OpenFile>) -> Result<()> {
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

    async fn open(
        &self,
        mount: &Mount,
        file: u32,
        flags: OpenFlags,
    ) -> Result<(Arc<OpenFile>, Opened)> {
        let opened = self.register(file).lock().open();
        let cred = Credentials::root();
        let found = mount.volume.lookup(&cred, ROOT, name_of(file));
        let attr = mount.call(&format!("lookup file {file}"), found).await?;
        let open = mount.volume.open(&cred, attr.ino, flags);
        Ok((mount.call(&format!("open file {file}"), open).await?, opened))
    }

    async fn read(
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
        for file in self.own_of(mount) {
            self.register(file).lock().died();
        }
    }

    fn range(&self, file: u32, random: &mut SplitMix64) -> (u64, u64) {
        let blocks = self.register(file).lock().len();
        let first = random.below(blocks);
        let most = if random.percent(20) { blocks } else { 6 };
        (first, 1 + random.below(most.min(blocks - first)))
    }

    /// Writes files until the workload ends.
    pub async fn write_on(&self, mount: &Mount, mut random: SplitMix64) {
        let own = self.own_of(mount);
        while !self.ending.load(Ordering::Relaxed) && !own.is_empty() {
            let file = own[random.below(own.len() as u64) as usize];
            let failed = self.write_once(mount, file, &mut random).await.err();
            consider(&self.world, failed.map(|e| e.kind));
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    async fn write_once(&self, mount: &Mount, file: u32, random: &mut SplitMix64) -> Result<()> {
        let (open, opened) = self.open(mount, file, OpenFlags::READ_WRITE).await?;
        let mut outcome = Ok(());
        for _ in 0..1 + random.below(6) {
            let (first, count) = self.range(file, random);
            outcome = match random.below(11) {
                0..5 => self.write(mount, file, &open, first, count).await,
                5..8 => self.read(mount, file, (&open, &opened), (first, count)).await,
                8 => self.sync(mount, file, &open).await,
                9 => self.punch(mount, file, &open, (first, count)).await,
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

    /// Removes a file.
    pub async fn remove(&self, mount: &Mount, file: u32) -> Result<()> {
        let cred = Credentials::root();
        let removed = mount.volume.unlink(&cred, ROOT, name_of(file));
        mount.call(&format!("unlink file {file}"), removed).await.map(drop)
    }
}

/// Trouble explains that something cannot be done now, but nothing else.
pub fn consider(world: &World, failed: Option<ErrorKind>) {
    use ErrorKind::{Io, NoSpace, NotCurrent, Poisoned, StaleMap, TimedOut, Unavailable};
    match failed {
        None | Some(Io | NoSpace | NotCurrent | Poisoned | StaleMap | TimedOut | Unavailable) => {}
        Some(kind) => world.fail(format!("a client was told {kind:?}")),
    }
}

fn name_of(file: u32) -> Bytes {
    format!("file-{file}").into()
}
