//! Open files and their contents.

use super::contested::What;
use super::pages::DROP_WAIT;
use super::{FuseDoor, OpenHandle, gone, page_cache_flags};
use crate::abi;
use crate::errno::Errno;
use crate::reply::{Opened, Reply, Shown};
use crate::request::CopyRange;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_client::Believer;
use strake_client::api::{FallocateMode, OpenFlags, SeekTo};
use strake_client::file::OpenFile;
use strake_types::{Attr, Credentials, ErrorKind, FileKind, Ino};
use tokio::time::{Instant, timeout};

/// Most that a COPY_FILE_RANGE of older kernels can answer: whole pages in 32 bits.
const COPY_BYTES_MAX: u64 = 0xffff_f000;

/// How often a file is made whose name was taken, and free again.
const CREATE_TRIES: u32 = 4;
/// From the beginning of a hole on so much is written out at a time.
const HOLE_BYTES: u64 = 1 << 20;

/// A write from the page cache is under way until this is dropped.
struct WriteEnd<'a> {
    door: &'a FuseDoor,
    file: &'a OpenFile,
    range: (u64, u64),
    /// It went elsewhere than where the kernel has its pages.
    elsewhere: bool,
}

impl Drop for WriteEnd<'_> {
    fn drop(&mut self) {
        let (door, ino) = (self.door, self.file.ino());
        let left_out = door.recalls.writing.end(ino, self.range);
        // Who drops the file meanwhile has left these out.
        door.recalls.contested.note_given(ino, What::Pages);
        let unleased = || self.file.is_shared() && !door.volume.is_leased(self.file);
        if left_out || self.elsewhere || unleased() {
            let own = (self.range.0, self.range.1 - self.range.0);
            door.forget_again(ino, Some(own), door.recalls.dropping.begin(ino));
        }
    }
}

impl FuseDoor {
    fn open_flags(&self, flags: u32) -> OpenFlags {
        let has = |flag: i32| flags & flag as u32 != 0;
        let access = flags as i32 & libc::O_ACCMODE;
        OpenFlags {
            read: access != libc::O_WRONLY,
            write: access != libc::O_RDONLY,
            // With its write-back cache the kernel finds the end of the file by itself.
            append: has(libc::O_APPEND) && !self.view.writeback,
            truncate: has(libc::O_TRUNC),
            exclusive: has(libc::O_EXCL),
            direct: has(libc::O_DIRECT),
        }
    }

    /// An open file gets a number. If it is `contested` it goes around the kernel's page cache.
    fn register(&self, file: Arc<OpenFile>, flags: u32, contested: bool) -> Opened {
        // A kernel that cannot map a file that goes around its page cache had better keep pages.
        let shared =
            (file.opened_shared() || contested) && self.maps_direct.load(Ordering::Relaxed);
        let runs = flags & abi::OPEN_EXEC != 0;
        let flags = page_cache_flags(flags, self.view.writeback, shared, file.keep_cache());
        let direct = flags & abi::FOPEN_DIRECT_IO != 0;
        Opened { fh: self.handles.add(OpenHandle { file, direct, runs, part: None }), flags }
    }

    /// True if a file is to go around the kernel's pages, because other mounts use it by turns with this one: whoever is told to drop
    /// pages loses answers about its length. It has dropped them then, unless somebody here uses them.
    async fn is_contested_open(&self, ino: Ino, writes: bool) -> bool {
        let (recalls, now) = (&self.recalls, self.recalls.now_ms());
        let contested = match writes {
            true => recalls.contested.has(ino, now),
            false => recalls.contested.has_by_turns(ino, now),
        };
        if !contested || !self.maps_direct.load(Ordering::Relaxed) {
            return false;
        }
        let is_used = |open: &OpenHandle| open.file.ino() == ino && !open.direct;
        if recalls.contested.left(ino, What::Pages).is_some() && !self.handles.any(is_used) {
            let _in_time = timeout(DROP_WAIT, self.forget_contents(&[ino])).await;
        }
        true
    }

    pub(super) async fn open(
        &self,
        cred: &Credentials,
        ino: Ino,
        flags: u32,
        kill_suidgid: bool,
    ) -> Result<Reply, Errno> {
        let how = self.open_flags(flags);
        // Of an open for reading the kernel finds this out after the OPEN, when the file is cut already.
        if how.truncate
            && !how.write
            && self.handles.any(|open| open.runs && open.file.ino() == ino)
        {
            return Err(ErrorKind::TextBusy.into());
        }
        let file = self.volume.open(cred, ino, how).await?;
        if kill_suidgid && flags & libc::O_TRUNC as u32 != 0 {
            // The kernel releases no handle of an open that failed: it has no number yet, and goes when it is dropped.
            self.drop_setid(&file).await?;
        }
        let contested = self.is_contested_open(ino, how.write).await;
        Ok(Reply::Open(self.register(file, flags, contested)))
    }

    /// For the process that fetches a part of a file which a program has open.
    pub(super) fn open_part(&self, handle: OpenHandle) -> Reply {
        Reply::Open(Opened { fh: self.handles.add(handle), flags: abi::FOPEN_KEEP_CACHE })
    }

    /// Of a file that is made the kernel does not check whether it may be opened. So what has got the name meanwhile is opened
    /// here for its owner only, and not cut; else the kernel is told ESTALE, walks there anew (once), finds it and checks that.
    pub(super) async fn create(
        &self,
        cred: &Credentials,
        at: (Ino, Bytes),
        flags: u32,
        (mode, umask): (u32, u32),
    ) -> Result<Reply, Errno> {
        let how = OpenFlags { exclusive: true, ..self.open_flags(flags) };
        for _ in 0..CREATE_TRIES {
            let (parent, name) = at.clone();
            let made = self.volume.create(cred, parent, name, mode & 0o7777, umask, how).await;
            let is_taken = made.as_ref().is_err_and(|error| error.kind == ErrorKind::Exists);
            if !is_taken || flags & libc::O_EXCL as u32 != 0 {
                let (attr, file, _) = made.map_err(|error| gone(error.into()))?;
                let shown = Shown { name: Some(at), ..self.shown(attr) };
                return Ok(Reply::Created(shown, self.register(file, flags, false)));
            }
            let (parent, name) = at.clone();
            let found = match self.volume.lookup_anew(cred, parent, name).await {
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                found => found.map_err(|error| gone(error.into()))?,
            };
            if found.kind == FileKind::Directory {
                return Err(ErrorKind::IsDirectory.into());
            }
            if !self.may_open_as_owner(cred, &found, how) {
                break;
            }
            let opened = match self.open(cred, found.ino, flags, false).await {
                Ok(Reply::Open(opened)) => opened,
                Err(error) if error == Errno::from(ErrorKind::Stale) => continue,
                other => return other,
            };
            let attr = self.file(opened.fh)?.attr();
            self.recalls.note_unguarded(attr.ino);
            let shown = Shown { name: Some(at), ..self.shown(attr) };
            return Ok(Reply::Created(shown, opened));
        }
        Err(ErrorKind::Stale.into())
    }

    /// True if a file may be opened so because of whose it is, which groups and ACLs do not change. Not if that cuts it:
    /// an OPEN comes when the kernel has checked all else (that no program runs which is in it), and is known to outlive its process.
    fn may_open_as_owner(&self, cred: &Credentials, attr: &Attr, how: OpenFlags) -> bool {
        let has = |wanted: bool, bit: u32| !wanted || attr.mode & bit != 0;
        let is_owner = self.view.uid.is_none() && cred.uid == attr.uid;
        let may = has(how.read, libc::S_IRUSR) && has(how.write, libc::S_IWUSR);
        is_owner && may && !how.truncate && attr.kind == FileKind::File
    }

    pub(super) async fn tmpfile(
        &self,
        cred: &Credentials,
        directory: Ino,
        flags: u32,
        (mode, umask): (u32, u32),
    ) -> Result<Reply, Errno> {
        let how = self.open_flags(flags);
        let (attr, file) = self.volume.tmpfile(cred, directory, mode & 0o7777, umask, how).await?;
        Ok(Reply::Created(self.shown(attr), self.register(file, flags, false)))
    }

    pub(super) async fn read(
        &self,
        fh: u64,
        (offset, size): (u64, u32),
        fills_pages: bool,
    ) -> Result<Reply, Errno> {
        let handle = self.handle(fh)?;
        if fills_pages {
            self.recalls.contested.note_given(handle.file.ino(), What::Pages);
        }
        if let Some(part) = &handle.part {
            return Ok(Reply::Data(part.read(&self.volume, &handle, (offset, size)).await?.parts));
        }
        let (mut unleased, ino) = (None, handle.file.ino());
        let told = || unleased = Some(self.recalls.dropping.begin(ino));
        let (data, took) = self.volume.read_telling(&handle.file, offset, size, told).await?;
        if let Some(drops) = unleased {
            // Nobody would tell the kernel when they change. A map asks by a handle that goes around the page cache, too. What
            // goes to a program waits for no pages: another read may have those locked for long.
            let own = fills_pages.then_some((offset, u64::from(size)));
            self.forget_again(ino, own, drops);
        }
        if let Some(took) = took {
            self.fetch_around(handle, offset..offset + u64::from(size), took);
        }
        Ok(Reply::Data(data.parts))
    }

    pub(super) async fn write(
        &self,
        handle: &OpenHandle,
        offset: u64,
        data: Bytes,
        (append, sync): (bool, bool),
    ) -> Result<Reply, Errno> {
        // With its write-back cache the kernel finds the end of the file by itself.
        let append = append && !self.view.writeback;
        let written = match handle.direct {
            true => self.volume.write_as(&handle.file, append, offset, data).await?,
            false => {
                let mut end = self.begin_write(&handle.file, offset, data.len());
                let written = self.volume.write_as(&handle.file, append, offset, data).await?;
                end.elsewhere = written.offset != offset;
                written
            }
        };
        // Through the page cache the kernel sends an FSYNC of its own.
        if sync && handle.direct {
            self.volume.sync_written(&handle.file).await?;
        }
        Ok(Reply::Written(written.len as u32))
    }

    /// Pages that were changed through a map. The handle says nothing of how they are to be written, not even where
    /// it appends.
    pub(super) async fn write_back(
        &self,
        handle: &OpenHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<Reply, Errno> {
        let _end = self.begin_write(&handle.file, offset, data.len());
        let written = self.volume.write_pages(&handle.file, offset, data).await?;
        Ok(Reply::Written(written.len as u32))
    }

    /// The kernel holds the pages of such a write locked until it is answered.
    fn begin_write<'a>(&'a self, file: &'a OpenFile, offset: u64, len: usize) -> WriteEnd<'a> {
        self.recalls.contested.note_given(file.ino(), What::Pages);
        let range = self.recalls.writing.begin(file.ino(), offset, len as u64);
        WriteEnd { door: self, file, range, elsewhere: false }
    }

    pub(super) async fn flush(&self, ino: Ino, fh: u64, owner: u64) -> Result<Reply, Errno> {
        let handle = self.handle(fh)?;
        if handle.part.is_some() {
            return Ok(Reply::Empty);
        }
        let unlocks = self.locks.begin_close(ino, owner);
        let flushed = self.volume.flush(&handle.file).await;
        self.end_close(unlocks).await?;
        flushed?;
        Ok(Reply::Empty)
    }

    pub(super) async fn release(&self, ino: Ino, fh: u64, flocked: bool) -> Result<Reply, Errno> {
        // Before the number is free: whoever opens the file next may get it, and lock something by it.
        let unlocks = self.locks.begin_release(ino, fh, flocked);
        let handle = self.handles.remove(fh).ok_or(Errno::EBADF)?;
        if handle.part.is_some() {
            return Ok(Reply::Empty);
        }
        self.prefetch.cancel_for(&handle.file);
        let released = self.volume.release(&handle.file).await;
        self.end_close(unlocks).await?;
        released?;
        Ok(Reply::Empty)
    }

    pub(super) async fn fsync(&self, fh: u64, datasync: bool) -> Result<Reply, Errno> {
        self.volume.fsync(&self.file(fh)?, datasync).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn fallocate(
        &self,
        cred: &Credentials,
        fh: u64,
        range: (u64, u64),
        mode: u32,
        unique: u64,
    ) -> Result<Reply, Errno> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = ZERO | KEEP;
        let mode = match mode as i32 {
            0 => FallocateMode::Allocate,
            KEEP => FallocateMode::KeepSize,
            PUNCH => FallocateMode::Punch,
            ZERO => FallocateMode::Zero,
            ZERO_KEEP => FallocateMode::ZeroKeepSize,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let file = self.file(fh)?;
        // The kernel does not say here, as it does at a write, that an ordinary user does it.
        self.begin_change(&file, cred.uid != 0).await?;
        let is_wanted = || self.locks.is_wanted(unique);
        self.volume.fallocate_while(&file, mode, range, &is_wanted).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn lseek(&self, fh: u64, offset: u64, whence: u32) -> Result<Reply, Errno> {
        let to = match whence as i32 {
            libc::SEEK_DATA => SeekTo::Data,
            libc::SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno::EINVAL),
        };
        if self.view.writeback {
            // What it keeps back only the kernel knows: from now on all is data to it, up to the length that it knows.
            return Err(Errno::ENOSYS);
        }
        Ok(Reply::Offset(self.seek(&self.file(fh)?, offset, to).await?))
    }

    /// The kernel asks before it has written what programs have stored into maps: where a hole is found in a file that may
    /// be mapped so, that is written and looked at again, for [`DROP_WAIT`] at most.
    async fn seek(&self, file: &Arc<OpenFile>, offset: u64, to: SeekTo) -> Result<u64, Errno> {
        let (mut written, mut until) = (0..0, None);
        loop {
            let found = self.volume.seek(file, offset, to).await;
            let length = file.attr().length;
            let hole = match (&found, to) {
                (Ok(at), SeekTo::Data) => offset..*at,
                (Ok(at), SeekTo::Hole) => *at..length.min(*at + HOLE_BYTES),
                (Err(error), _) if error.kind == ErrorKind::NoSuchAddress => offset..length,
                (Err(_), _) => 0..0,
            };
            if hole.is_empty() || written.contains(&hole.start) || !file.may_be_mapped() {
                return Ok(found?);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + DROP_WAIT);
            if !self.write_out(file.ino(), hole.clone(), until).await {
                // All is data.
                return Ok(if to == SeekTo::Data { offset } else { length });
            }
            written = hole;
        }
    }

    pub(super) async fn copy_file_range(
        &self,
        cred: &Credentials,
        range: CopyRange,
        unique: u64,
    ) -> Result<Reply, Errno> {
        let (from, to) = (self.file(range.from)?, self.file(range.to)?);
        let len = if range.wide { range.len } else { range.len.min(COPY_BYTES_MAX) };
        self.begin_change(&to, cred.uid != 0).await?;
        let is_wanted = || self.locks.is_wanted(unique);
        let ranges = (range.from_offset, range.to_offset, len);
        let copied = self.volume.copy_range_while(&from, &to, ranges, &is_wanted).await?;
        Ok(if range.wide { Reply::Copied(copied) } else { Reply::Written(copied as u32) })
    }
}
