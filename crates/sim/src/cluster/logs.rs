//! The workload on files that all clients append to, cut and read: who changes one holds its lock, and
//! opens it after that. [`super::log`] knows what there has to be.

use super::files::consider;
use super::log::Log;
use super::mount::Mount;
use super::places::Directories;
use super::plan::Plan;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{LockKind, LockRequest, OpenFile, OpenFlags};
use strake_types::{Credentials, Error, ErrorKind, Ino, Result, SetAttr};

/// No file becomes longer than this.
const BYTES_MAX: usize = 256 << 10;
/// Most bytes that are read at once.
const READ_BYTES: usize = 32 << 10;

/// Empty files that may take the place of one of which too little is known.
const SPARES: usize = 6;

/// Such a file.
#[derive(Default)]
struct Kept {
    ino: Mutex<Ino>,
    log: Mutex<Log>,
    spares: Mutex<Vec<Ino>>,
}

/// All such files.
pub struct Logs {
    world: Arc<World>,
    logs: Vec<Kept>,
    directories: Arc<Directories>,
    /// Longest record.
    record_bytes: u64,
    /// Longest pause of a client between two uses.
    pause_ms: u64,
}

impl Logs {
    /// The files of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan, directories: &Arc<Directories>) -> Arc<Self> {
        let logs: Vec<Kept> = (0..plan.logs).map(|_| Kept::default()).collect();
        if plan.acknowledges_alone() {
            logs.iter().for_each(|kept| kept.log.lock().acknowledge_alone());
        }
        let (record_bytes, pause_ms) = (plan.record_bytes, plan.pause_ms * 2);
        let (world, directories) = (world.clone(), directories.clone());
        Arc::new(Self { world, logs, directories, record_bytes, pause_ms })
    }

    /// Machines have lost power, and with it what nobody else had.
    pub fn power_lost(&self) {
        self.logs.iter().for_each(|kept| kept.log.lock().power_lost());
    }

    /// All copies are equal again.
    pub fn whole_again(&self) {
        self.logs.iter().for_each(|kept| kept.log.lock().whole_again());
    }

    fn log(&self, nth: usize) -> &Mutex<Log> {
        &self.logs[nth].log
    }

    fn ino(&self, nth: usize) -> Ino {
        *self.logs[nth].ino.lock()
    }

    fn hold<T>(&self, nth: usize, checked: std::result::Result<T, String>) {
        if let Err(what) = checked {
            self.world.fail(format!("log {nth}: {what}"));
        }
    }

    /// Makes them, empty, and others that may take their places.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        for (nth, kept) in self.logs.iter().enumerate() {
            let mut made = Vec::new();
            for spare in 0..=SPARES {
                made.push(self.make_one(mount, nth, spare).await?);
            }
            *kept.ino.lock() = made.pop().unwrap_or_default();
            *kept.spares.lock() = made;
        }
        Ok(())
    }

    async fn make_one(&self, mount: &Mount, nth: usize, spare: usize) -> Result<Ino> {
        let (cred, directory) = (Credentials::root(), self.directories.get(nth));
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let made = mount.volume.create(&cred, directory, name_of(nth, spare), 0o644, 0, flags);
        let (attr, open, _) = mount.call("create a log", made).await?;
        mount.call("close a log", mount.volume.release(&open)).await?;
        Ok(attr.ino)
    }

    /// Who holds the lock of a file of which too little is known lets another one take its place; true if so.
    fn replace(&self, nth: usize, client: u32) -> bool {
        let kept = &self.logs[nth];
        let mut log = kept.log.lock();
        if !log.is_held_by(client) || !log.is_spoilt() {
            return false;
        }
        let Some(new) = kept.spares.lock().pop() else { return false };
        *log = log.successor();
        *kept.ino.lock() = new;
        self.world.note(format_args!("inode {new} takes the place of log {nth}"));
        strake_base::count_case("log-replaced");
        true
    }

    /// Appends, cuts and reads until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        while !is_over() && !self.logs.is_empty() {
            let nth = random.below(self.logs.len() as u64) as usize;
            let outcome = match random.percent(60) {
                true => self.change(mount, nth, &mut random).await,
                false => self.read_unlocked(mount, nth, &mut random).await,
            };
            consider(&self.world, outcome.err().map(|error| error.kind));
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    /// What a mount was about to do, and whatever it has locked, is gone with it.
    pub fn forget(&self, mount: &Mount) {
        self.logs.iter().for_each(|kept| kept.log.lock().died(mount.number));
    }

    /// A client is about to be evicted.
    pub fn evict(&self, client: u32) {
        self.logs.iter().for_each(|kept| kept.log.lock().evict(client));
    }

    /// That has happened.
    pub fn evicted(&self, client: u32) {
        let now = self.world.now();
        self.logs.iter().for_each(|kept| kept.log.lock().evicted(client, now));
    }

    /// A client stands still for long.
    pub fn silence(&self, client: u32) {
        self.logs.iter().for_each(|kept| kept.log.lock().silence(client));
    }

    /// It goes on, and nobody knows whether its session is over.
    pub fn comes_back(&self, client: u32) {
        let now = self.world.now();
        self.logs.iter().for_each(|kept| kept.log.lock().comes_back(client, now));
    }

    /// Locks a file, which may be another one by then; `None`: that is so, or it was given up.
    async fn lock(
        &self,
        mount: &Mount,
        nth: usize,
        random: &mut SplitMix64,
    ) -> Result<Option<Ino>> {
        let lock = request(mount, LockKind::Exclusive, random.percent(70));
        let patience = Duration::from_millis(50 + random.below(5_000));
        let (asked, ino) = (self.world.now(), self.ino(nth));
        let wait = async {
            let locked = tokio::time::timeout(patience, mount.volume.set_lock(ino, lock));
            let gave_up = |_| Error::with(ErrorKind::WouldBlock, "gave up");
            locked.await.map_err(gave_up)?
        };
        match mount.call(&format!("lock log {nth}"), wait).await {
            Ok(()) if self.ino(nth) != ino => {
                self.unlock(mount, nth, ino).await?;
                Ok(None)
            }
            Ok(()) => {
                let granted = self.log(nth).lock().granted(mount.number, asked);
                self.hold(nth, granted);
                Ok(Some(ino))
            }
            Err(error) if error.kind == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn unlock(&self, mount: &Mount, nth: usize, ino: Ino) -> Result<()> {
        let unlock = mount.volume.set_lock(ino, request(mount, LockKind::Unlock, false));
        mount.call(&format!("unlock log {nth}"), unlock).await
    }

    async fn change(&self, mount: &Mount, nth: usize, random: &mut SplitMix64) -> Result<()> {
        let Some(ino) = self.lock(mount, nth, random).await? else { return Ok(()) };
        let changed = self.change_locked(mount, (nth, ino), random).await;
        self.log(nth).lock().let_go(mount.number);
        changed.and(self.unlock(mount, nth, ino).await)
    }

    async fn change_locked(
        &self,
        mount: &Mount,
        (nth, ino): (usize, Ino),
        random: &mut SplitMix64,
    ) -> Result<()> {
        let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
        let open = self.open(mount, (nth, ino), flags).await?;
        let len = open.attr().length as usize;
        if self.log(nth).lock().is_held_by(mount.number) {
            let opened = self.log(nth).lock().opened(len);
            self.hold(nth, opened);
        }
        if self.replace(nth, mount.number) {
            return mount.call(&format!("close log {nth}"), mount.volume.release(&open)).await;
        }
        self.world.remains.lock().begin(mount.number, ino);
        let changed = self.change_open(mount, nth, &open, random).await;
        self.world.remains.lock().end(mount.number, ino);
        changed
    }

    async fn change_open(
        &self,
        mount: &Mount,
        nth: usize,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let mut outcome = self.read_own(mount, nth, open, random).await;
        for _ in 0..1 + random.below(4) {
            if outcome.is_err() {
                break;
            }
            outcome = match random.below(10) {
                0..5 => self.append(mount, nth, open, random).await,
                5 => self.resize(mount, nth, open, random).await,
                6 => self.read_own(mount, nth, open, random).await,
                7 => self.sync(mount, nth, open).await,
                _ => {
                    tokio::time::sleep(Duration::from_millis(random.below(1_500))).await;
                    Ok(())
                }
            };
        }
        let flushed = mount.call(&format!("close log {nth}"), mount.volume.flush(open)).await;
        if outcome.is_ok() && flushed.is_ok() {
            self.log(nth).lock().acknowledged(mount.number, false);
        } else {
            self.log(nth).lock().failed(mount.number);
        }
        let released = mount.call(&format!("close log {nth}"), mount.volume.release(open)).await;
        let closed = flushed.and(released);
        self.world.lengthened(open.ino(), &closed);
        outcome.and(closed)
    }

    async fn open(
        &self,
        mount: &Mount,
        (nth, ino): (usize, Ino),
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        let (cred, asked) = (Credentials::root(), self.world.now());
        let open = mount.volume.open(&cred, ino, flags);
        let open = mount.call(&format!("open log {nth}"), open).await?;
        self.log(nth).lock().heard(mount.number, asked);
        Ok(open)
    }

    async fn append(
        &self,
        mount: &Mount,
        nth: usize,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let len = 1 + random.below(self.record_bytes) as usize;
        let (at, bytes) = {
            let mut log = self.log(nth).lock();
            if !log.is_held_by(mount.number) || log.len() + len > BYTES_MAX {
                return Ok(());
            }
            log.append(len)
        };
        let what = format!("append {len} bytes to log {nth} at {at}");
        let written = mount.call(&what, mount.volume.write(open, 0, bytes)).await;
        self.world.lengthened(open.ino(), &written);
        let written = written?;
        let mut log = self.log(nth).lock();
        if log.is_held_by(mount.number) {
            let landed = log.landed(at, written.offset as usize);
            drop(log);
            self.hold(nth, landed);
        }
        Ok(())
    }

    async fn resize(
        &self,
        mount: &Mount,
        nth: usize,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let len = {
            let mut log = self.log(nth).lock();
            if !log.is_held_by(mount.number) {
                return Ok(());
            }
            let now = log.len() as u64;
            let len = match random.below(4) {
                0 => 0,
                1 => (now + random.below(self.record_bytes)).min(BYTES_MAX as u64),
                _ => random.below(now + 1),
            };
            log.resize(len as usize);
            len
        };
        let change = SetAttr { length: Some(len), ..SetAttr::default() };
        let cred = Credentials::root();
        let cut = mount.volume.setattr(&cred, self.ino(nth), change, Some(open));
        let cut = mount.call(&format!("set the length of log {nth} to {len}"), cut).await;
        self.world.lengthened(open.ino(), &cut);
        cut.map(drop)
    }

    async fn sync(&self, mount: &Mount, nth: usize, open: &Arc<OpenFile>) -> Result<()> {
        let synced = mount.call(&format!("fsync log {nth}"), mount.volume.fsync(open, false)).await;
        self.world.lengthened(open.ino(), &synced);
        synced?;
        self.log(nth).lock().acknowledged(mount.number, true);
        Ok(())
    }

    /// A part of what the holder of the lock sees.
    async fn read_own(
        &self,
        mount: &Mount,
        nth: usize,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let len = self.log(nth).lock().len();
        let at = match random.percent(50) {
            true => len.saturating_sub(READ_BYTES),
            false => random.below(len as u64 + 1) as usize,
        };
        let data = self.read(mount, nth, open, at).await?;
        let log = self.log(nth).lock();
        if log.is_held_by(mount.number) {
            let checked = log.check_own(at, &data);
            let wanted = READ_BYTES.min(len - at);
            let regrown = log.may_have_regrown(at + data.len());
            drop(log);
            self.hold(nth, checked);
            if data.len() != wanted && !regrown {
                let what = format!("{} bytes at {at} where {wanted} are", data.len());
                self.hold(nth, Err::<(), _>(what));
            }
        }
        Ok(())
    }

    async fn read(
        &self,
        mount: &Mount,
        nth: usize,
        open: &Arc<OpenFile>,
        at: usize,
    ) -> Result<Bytes> {
        let read = mount.volume.read(open, at as u64, READ_BYTES as u32);
        Ok(mount.call(&format!("read log {nth} at {at}"), read).await?.into_bytes())
    }

    /// Who has no lock sees what was acknowledged before its open, and perhaps more.
    async fn read_unlocked(
        &self,
        mount: &Mount,
        nth: usize,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let (ino, seen) = (self.ino(nth), self.log(nth).lock().seen());
        let open = self.open(mount, (nth, ino), OpenFlags::READ).await?;
        let len = open.attr().length as usize;
        let at = random.below(len as u64 + 1) as usize;
        let read = self.read(mount, nth, &open, at).await;
        if let (Ok(data), true) = (&read, self.ino(nth) == ino) {
            let checked = self.log(nth).lock().check(seen, len, at, data);
            self.hold(nth, checked);
        }
        let released = mount.call(&format!("close log {nth}"), mount.volume.release(&open)).await;
        read.and(released)
    }

    /// Reads all of each for the last time, and removes it.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        let cred = Credentials::root();
        for nth in 0..self.logs.len() {
            let open = self.open(mount, (nth, self.ino(nth)), OpenFlags::READ).await?;
            let len = open.attr().length as usize;
            let opened = self.log(nth).lock().opened(len);
            self.hold(nth, opened);
            for at in (0..len).step_by(READ_BYTES) {
                let data = self.read(mount, nth, &open, at).await?;
                let checked = self.log(nth).lock().check_own(at, &data);
                self.hold(nth, checked);
            }
            mount.call(&format!("close log {nth}"), mount.volume.release(&open)).await?;
            for spare in 0..=SPARES {
                let (directory, name) = (self.directories.get(nth), name_of(nth, spare));
                let removed = mount.volume.unlink(&cred, directory, name);
                mount.call(&format!("unlink log {nth}"), removed).await?;
            }
        }
        Ok(())
    }
}

fn request(mount: &Mount, kind: LockKind, wait: bool) -> LockRequest {
    let owner = u64::from(mount.number);
    LockRequest { owner, pid: mount.number, start: 0, end: u64::MAX, kind, flock: true, wait }
}

fn name_of(nth: usize, spare: usize) -> Bytes {
    format!("log-{nth}-{spare}").into()
}
